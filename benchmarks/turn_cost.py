"""Measures the CPU time of a write: three whole nodes in one process, joined by lists instead of gRPC.

    python -m benchmarks.turn_cost [--writes 20000] [--at-once 64] [--profile leader|follower|both] [--partitions 0]

On a busy machine wall time says little, and gRPC hides the cost of a turn. So production's nodes run here on a memory file
system. A round gives each node one turn for all waiting inputs. A leader's flush ends one round after its begin, as on a
thread. The figures are the thread's CPU time inside of `turn` and `next_deadline_ms`, and the turns, flushes and
fetches of a write.

The calls of a write do not depend on the machine at all. A last piece of the load counts them with cProfile: calls of functions
written in Python, and of built-in ones. A change of the code on the way of a write shows there first.

Neighbours make CPU time dearer too, because they share caches and the core's units. So a yardstick, a fixed piece of Python, runs
between the measurements. All times are scaled to a machine with a yardstick of YARDSTICK_US: the reference machine at rest.
"""

import argparse
import cProfile
import pstats
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, uuid_text
from metadata_log.format.records import Endpoint, FeatureRange, Voter, Voters
from quorum.controller.protocol.commands import Command, RegisterBrokerCommand, RegisterBrokerReply
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.core.protocol.messages import FetchRequest, PeerRequest, PeerResponse
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.node import Node
from quorum.runtime.protocol.jobs import FlushJob, Job
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched
from quorum.runtime.protocol.world import (
    Answer,
    BrokerFetch,
    Event,
    JobDone,
    RaftRequest,
    ReplyTo,
    Submission,
    Tick,
)
from snapshots.store import SnapshotStore

TOPICS = 1_000
PIECES = 10
"""How many pieces the load has. The median counts: a neighbour may slow down a piece, or the yardstick beside it."""
YARDSTICK_US = 12_000
BROKERS = (101, 102, 103)
CONTACT_EVERY_MS = 2_000
CLUSTER_ID = uuid_text(b"sixteen cpu secs")
NODE_IDS = (1, 2, 3)


class _Point(NamedTuple):
    place: int
    name: str
    values: tuple[int, ...]


def _yardstick_us() -> float:
    """Calls, small tuples, dictionaries and attributes: the material of a turn."""
    began = time.thread_time()
    points: dict[str, _Point] = {}
    for n in range(10_000):
        point = _Point(n, f"p{n % 1_000}", (n, n + 1))
        before = points.get(point.name)
        points[point.name] = point if before is None else before._replace(values=point.values)
    return (time.thread_time() - began) * 1e6


class _Member:
    """One node, with lists instead of a world."""

    def __init__(self, node_id: NodeId, path: Path, voters: Voters, trio: "Trio") -> None:
        self.node_id = node_id
        self.inbox: list[Event] = []
        self.jobs: list[Job] = []
        self.cpu_s = 0.0
        self.counts: Counter[str] = Counter()
        self.profile: cProfile.Profile | None = None
        self._trio = trio
        directory = RealDirectory(path)
        identity = Identity(CLUSTER_ID, node_id, node_id.to_bytes(16, "big"), 1, "controller")
        write_identity(directory, identity)
        SnapshotStore(directory.subdirectory(LOG_DIRECTORY)).write_bootstrap(voters)
        config = NodeConfig()
        opened = open_directory(directory, identity, config)
        self.node = Node(opened, config, self, random.Random(node_id), trio.now_ms, trio.wall_ms)
        self.due_ms: int | None = trio.now_ms

    def start(self) -> None:
        self.node.start(self._trio.now_ms, self._trio.wall_ms)

    def turn(self) -> None:
        """Takes one turn for all waiting inputs; no turn if no input waits and no timer is due."""
        now_ms = self._trio.now_ms
        if not self.inbox:
            if self.due_ms is None or self.due_ms > now_ms:
                return
            self.inbox.append(Tick())
        events, self.inbox = self.inbox, []
        if self.profile is not None:
            self.profile.enable()
        began = time.thread_time()
        self.node.turn(events, now_ms, self._trio.wall_ms)
        self.due_ms = self.node.next_deadline_ms()
        self.cpu_s += time.thread_time() - began
        if self.profile is not None:
            self.profile.disable()
        self.counts["turns"] += 1
        assert self.node.stopped is None, self.node.stopped

    def run_jobs(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job.run()
            self.inbox.append(JobDone(job))

    # --- World -----------------------------------------------------------------------------------------------------

    def send(self, destination: NodeId, request: PeerRequest, timeout_ms: int) -> None:
        self.counts["fetches" if isinstance(request, FetchRequest) else "other requests"] += 1
        self._trio.ask(self.node_id, destination, request)

    def reply(self, reply_to: ReplyTo, answer: Answer) -> None:
        self._trio.waiting.pop(reply_to)(answer)

    def start_job(self, job: Job) -> None:
        self.counts["flushes" if isinstance(job, FlushJob) else "other jobs"] += 1
        self.jobs.append(job)

    def stop_node(self, reason: str) -> None:
        raise AssertionError(reason)


class Trio:
    """Three nodes, a manual clock, and closed-loop clients."""

    def __init__(self, path: Path) -> None:
        self.now_ms = 1_000
        self.waiting: dict[ReplyTo, Callable[[Answer], None]] = {}
        self._last_reply_to = 0
        endpoints = {i: (Endpoint("CONTROLLER", "127.0.0.1", 9_000 + i),) for i in NODE_IDS}
        voters = Voters(tuple(Voter(i, i.to_bytes(16, "big"), endpoints[i]) for i in NODE_IDS))
        self.members = {i: _Member(i, path / str(i), voters, self) for i in NODE_IDS}
        self._contacts: list[MetadataFetch] = []
        self._contact_ms = 0
        for member in self.members.values():
            member.start()

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    def _reply_to(self, on_answer: Callable[[Answer], None]) -> ReplyTo:
        self._last_reply_to += 1
        self.waiting[self._last_reply_to] = on_answer
        return self._last_reply_to

    def ask(self, source: NodeId, destination: NodeId, request: PeerRequest) -> None:
        def carry_back(answer: Answer) -> None:
            self.members[source].inbox.append(answered(destination, request, cast(PeerResponse, answer)))

        self.members[destination].inbox.append(RaftRequest(request, self._reply_to(carry_back)))

    def leader(self) -> _Member | None:
        return next((member for member in self.members.values() if member.node.active.on), None)

    def round(self) -> None:
        """One turn for each node, the leader first; followers flush at once, the leader's flush ends after them."""
        self.now_ms += 1
        if self._contacts and self.now_ms - self._contact_ms > CONTACT_EVERY_MS:
            self._contact()
        leader = self.leader()
        for member in sorted(self.members.values(), key=lambda each: each is not leader):
            member.turn()
            if member is not leader:
                member.run_jobs()
                member.turn()
        if leader is not None:
            leader.run_jobs()

    def submit(self, command: Command, on_answer: Callable[[Answer], None]) -> None:
        leader = self.leader()
        assert leader is not None
        leader.inbox.append(Submission(command, self._reply_to(on_answer), self.now_ms + 60_000))

    def _until_answered(self, command: Command) -> Answer:
        answers: list[Answer] = []
        self.submit(command, answers.append)
        while not answers:
            self.round()
        return answers[0]

    def prepare(self) -> None:
        """A leader, three brokers online, and topics of one partition."""
        while self.leader() is None:
            self.round()
        for broker_id in BROKERS:
            directory = broker_id.to_bytes(16, "big")
            features = (FeatureRange("metadata.version", 1, 2),)
            endpoints = (Endpoint("CLIENT", "127.0.0.1", broker_id),)
            command = RegisterBrokerCommand(broker_id, directory, endpoints, features, None, (directory,))
            reply = self._until_answered(command)
            assert isinstance(reply, RegisterBrokerReply), reply
            self._contacts.append(
                MetadataFetch(broker_id, reply.broker_epoch, directory, 0, 0, b"", False, False, (), 0, 1 << 20)
            )
        for _ in range(5):
            self._contact()
            for _ in range(5):
                self.round()
        topics = tuple(NewTopic(f"t{i}", 1, 3) for i in range(TOPICS))
        self._until_answered(CreateTopics(topics))

    def _contact(self) -> None:
        """Each broker fetches once, just above its own registration."""
        self._contact_ms = self.now_ms
        leader = self.leader()
        assert leader is not None
        for index, fetch in enumerate(self._contacts):

            def keep(answer: Answer, index: int = index, fetch: MetadataFetch = fetch) -> None:
                if isinstance(answer, MetadataFetched) and answer.batches and fetch.offset <= fetch.broker_epoch:
                    last = answer.batches[-1]
                    place = {"offset": last.end_offset, "epoch": last.epoch, "chain": last.chain}
                    self._contacts[index] = replace(fetch, **place)  # type: ignore[arg-type]

            leader.inbox.append(BrokerFetch(fetch, self._reply_to(keep)))

    def load(self, writes: int, at_once: int, command: Callable[[int], Command]) -> None:
        """`writes` commands, `at_once` of them always under way."""
        begun = ended = 0

        def begin() -> None:
            nonlocal begun
            begun += 1
            self.submit(command(begun), end)

        def end(answer: Answer) -> None:
            nonlocal ended
            ended += 1
            results = getattr(answer, "results", None)
            assert results is not None, answer
            assert all(result.error is ErrorCode.NONE for result in results), answer
            if begun < writes:
                begin()

        for _ in range(at_once):
            begin()
        while ended < writes:
            self.round()


def alteration(n: int) -> Command:
    """The same small write as the benchmark beside etcd."""
    operation = ConfigOperation(ConfigOperationKind.SET, "retention.ms", str(1_000 + n))
    return AlterConfigs((ConfigAlteration(2, f"t{n % TOPICS}", (operation,)),))


def new_topic(partitions: int) -> Callable[[int], Command]:
    return lambda n: CreateTopics((NewTopic(f"p{n}", partitions, 3),))


def measure(writes: int, at_once: int, partitions: int, profiled: str | None) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="turn-cost-", dir=memory if memory.is_dir() else None) as directory:
        trio = Trio(Path(directory))
        trio.prepare()
        command = new_topic(partitions) if partitions else alteration
        trio.load(max(1, writes // 10), at_once, lambda n: command(n + 10_000_000))
        leader = trio.leader()
        assert leader is not None
        followers = [member for member in trio.members.values() if member is not leader]
        for member in trio.members.values():
            member.cpu_s = 0.0
            member.counts.clear()
        cpu_us: dict[NodeId, list[float]] = {member.node_id: [] for member in trio.members.values()}
        yardstick_us = _yardstick_us()
        for piece in range(PIECES):
            trio.load(writes // PIECES, at_once, lambda n, piece=piece: command(n + piece * writes))  # type: ignore[misc]
            before_us, yardstick_us = yardstick_us, _yardstick_us()
            scale = YARDSTICK_US / ((before_us + yardstick_us) / 2)
            for member in trio.members.values():
                cpu_us[member.node_id].append(member.cpu_s * 1e6 / (writes // PIECES) * scale)
                member.cpu_s = 0.0
        print(f"{writes} writes, {at_once} at once" + (f", {partitions} partitions each" if partitions else ""))
        pieces = {member.node_id: Counter(member.counts) for member in trio.members.values()}
        for member in (leader, followers[0]):
            member.profile = cProfile.Profile()
        trio.load(writes // PIECES, at_once, lambda n: command(n + PIECES * writes))
        for name, members in (("leader", [leader]), ("follower", followers)):
            median_us = min(statistics.median(cpu_us[member.node_id]) for member in members)
            counted: Counter[str] = sum((pieces[member.node_id] for member in members), Counter())
            per_write = ", ".join(f"{n / len(members) / writes:.2f} {what}" for what, n in sorted(counted.items()))
            calls = _calls(members[0], writes // PIECES)
            print(f"  {name:8} {median_us:7.1f} us CPU a write; a write: {calls}, {per_write}")
        for name, member in (("leader", leader), ("follower", followers[0])):
            if profiled in (name, "both"):
                pstats.Stats(member.profile).sort_stats("tottime").print_stats(45)


def _calls(member: _Member, writes: int) -> str:
    assert member.profile is not None
    counted: Counter[str] = Counter()
    for entry in member.profile.getstats():
        counted["built-in" if isinstance(entry.code, str) else "Python"] += entry.callcount
    return f"{counted['Python'] / writes:.1f} Python and {counted['built-in'] / writes:.1f} built-in calls"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turn_cost", description=__doc__)
    parser.add_argument("--writes", type=int, default=20_000)
    parser.add_argument("--at-once", type=int, action="append", help="may be given several times; default: 1 and 64")
    parser.add_argument("--partitions", type=int, default=0, help="create topics of so many partitions instead")
    parser.add_argument("--profile", choices=("leader", "follower", "both"))
    arguments = parser.parse_args()
    for at_once in arguments.at_once or [1, 64]:
        measure(arguments.writes, at_once, arguments.partitions, arguments.profile)


if __name__ == "__main__":
    main()
