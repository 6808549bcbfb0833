"""A controller that is alone: a whole node with its log on a real directory, and without gRPC, peers and an event loop.

The caller takes the turns, so a benchmark can measure each turn by itself. Example:

    1. `ask` puts a command into the inbox, and takes turns until nothing is left to do.
    2. Each turn adds its CPU time to `turns_ms`. A flush that the turn has started runs after the turn, and is not counted.
    3. The clock moves by 1 ms a turn. Every two seconds the registered brokers fetch, so their sessions do not end.
"""

import random
import time
from dataclasses import replace
from pathlib import Path
from random import randbytes

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.ids import NodeId, uuid_text
from metadata_log.format.records import ELR_VERSION, METADATA_VERSION, Endpoint, FeatureRange, Voter, Voters
from quorum.controller.protocol.commands import (
    Command,
    RegisterBrokerCommand,
    RegisterBrokerReply,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.messages import PeerRequest
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.node import Node
from quorum.runtime.protocol.jobs import FlushJob, Job
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import MetadataFetch
from quorum.runtime.protocol.world import Answer, BrokerFetch, Event, JobDone, ReplyTo, Submission, Tick
from snapshots.policy import MarkPolicy
from snapshots.store import SnapshotStore

CONTACT_EVERY_MS = 2_000
"""How long a broker waits between two fetches."""
CONFIG = NodeConfig(
    controller=ControllerConfig(reassignment_moves_per_broker_max=1_000_000, bootstrap_elr_version=1),
    marks=MarkPolicy(bytes_between=1 << 40),
)


class LoneController:
    """The only voter, with lists instead of a world, and sessions of brokers that fetch every two seconds."""

    def __init__(self, path: Path) -> None:
        self.now_ms = 1_000
        self.turns_ms: list[float] = []
        self.answers: dict[ReplyTo, Answer] = {}
        self.silent: set[NodeId] = set()
        self._inbox: list[Event] = []
        self._jobs: list[Job] = []
        self._last_reply_to = 0
        self._fetches: dict[NodeId, MetadataFetch] = {}
        self._contact_ms = 0
        directory = RealDirectory(path)
        identity = Identity(uuid_text(b"sixteen cpu secs"), 1, bytes(15) + b"\1", 1, "controller")
        write_identity(directory, identity)
        voter = Voter(1, identity.directory_id, (Endpoint("CONTROLLER", "127.0.0.1", 9_001),))
        SnapshotStore(directory.subdirectory(LOG_DIRECTORY)).write_bootstrap(Voters((voter,)))
        opened = open_directory(directory, identity, CONFIG)
        self.node = Node(opened, CONFIG, self, random.Random(1), self.now_ms, self._wall_ms)
        self.node.start(self.now_ms, self._wall_ms)
        while not self.node.active.on:
            self.turn()

    @property
    def _wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    def turn(self) -> None:
        """Takes one turn, and runs the jobs that it has started."""
        self.now_ms += 1
        if self.now_ms - self._contact_ms > CONTACT_EVERY_MS:
            self._contact_ms = self.now_ms
            self._inbox += [self._fetch(each) for each in self._fetches if each not in self.silent]
        events, self._inbox = [*self._inbox, Tick()], []
        began = time.thread_time()
        self.node.turn(events, self.now_ms, self._wall_ms)
        self.node.next_deadline_ms()
        self.turns_ms.append((time.thread_time() - began) * 1_000)
        assert self.node.stopped is None, self.node.stopped
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            if isinstance(job, FlushJob):
                job.run()
                self._inbox.append(JobDone(job))

    def settle(self) -> None:
        """Takes turns until nothing is left to do."""
        while self.node.has_more_to_do or self._inbox or self.node.state.applied < self.node.log.end:
            self.turn()

    def _reply_to(self) -> ReplyTo:
        self._last_reply_to += 1
        return self._last_reply_to

    def ask(self, command: Command) -> Answer:
        """Submits a client's command, with a request id, and returns the answer to it."""
        return self.tell(command, RequestIdentity(randbytes(16), bytes(32), "anonymous", self.node.log.end))

    def tell(self, command: Command, identity: RequestIdentity | None = None) -> Answer:
        """Submits a command, and returns the answer to it."""
        reply_to = self._reply_to()
        self._inbox.append(Submission(command, reply_to, self.now_ms + 600_000, identity))
        self.settle()
        return self.answers[reply_to]

    def register(self, broker_id: NodeId) -> None:
        """Registers a broker, which fetches from now on."""
        directory = broker_id.to_bytes(16, "big")
        features = (FeatureRange(METADATA_VERSION, 1, 2), FeatureRange(ELR_VERSION, 0, 1))
        endpoints = (Endpoint("CLIENT", "127.0.0.1", broker_id),)
        reply = self.tell(RegisterBrokerCommand(broker_id, directory, endpoints, features, None, (directory,)))
        assert isinstance(reply, RegisterBrokerReply), reply
        self._fetches[broker_id] = MetadataFetch(
            broker_id, reply.broker_epoch, directory, 0, 0, b"", False, False, (), 0, 1 << 20
        )
        self.contact(broker_id)

    def contact(self, *broker_ids: NodeId, wants_shut_down: bool = False) -> None:
        """These brokers fetch from the end of what is committed."""
        self._inbox += [self._fetch(each, wants_shut_down=wants_shut_down) for each in broker_ids]
        self.settle()

    def _fetch(self, broker_id: NodeId, *, wants_shut_down: bool = False) -> BrokerFetch:
        log, offset = self.node.log, self.node.state.applied
        chain, epoch = log.chain_at(offset), log.shape.epoch_below(offset)
        assert chain is not None and epoch is not None
        fetch = replace(self._fetches[broker_id], offset=offset, epoch=epoch, chain=chain)
        return BrokerFetch(replace(fetch, wants_shut_down=wants_shut_down), self._reply_to())

    # --- World -----------------------------------------------------------------------------------------------------

    def send(self, destination: NodeId, request: PeerRequest, timeout_ms: int) -> None:
        raise AssertionError(f"a lone voter asks {destination}")

    def reply(self, reply_to: ReplyTo, answer: Answer) -> None:
        self.answers[reply_to] = answer

    def start_job(self, job: Job) -> None:
        self._jobs.append(job)

    def stop_node(self, reason: str) -> None:
        raise AssertionError(reason)
