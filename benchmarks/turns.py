"""`python -m benchmarks.turns`: the longest turn of an active controller, for the largest request of each kind.

A turn of the event loop that is long keeps followers and brokers waiting. So a whole node runs here by itself, without gRPC, on a
memory file system. Each step asks for as much as one request may, and drives turns until nothing is left to do. The figures are
the thread's CPU time inside of a turn, so that neighbours disturb little. Jobs (flushes, snapshots) are not part of a turn.

Example: 500,000 partitions of three replicas on 25 brokers. Each broker has 60,000 replicas, so the step `session ends` fences a
broker with 60,000 replicas, slice by slice. The row shows how many turns that took, and the longest of them.

The last part measures what the event loop does around a turn: it translates the largest messages.
"""

import argparse
import gc
import inspect
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from quorum_rpc.v1 import admin_pb2
from rich.console import Console
from rich.table import Table

from benchmarks.lone_controller import CONFIG, LoneController
from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import ISR, LEADER, LEADER_EPOCH, PARTITION_EPOCH, REPLICAS
from metadata_log.format.records import ELR_VERSION, METADATA_VERSION
from quorum.__main__ import GC_THRESHOLDS
from quorum.controller import views
from quorum.controller.partitions.listing.ongoing_reassignments import ongoing_reassignments
from quorum.controller.partitions.listing.partition_listing import PartitionFilter, list_partitions
from quorum.controller.protocol.commands import (
    AlterPartition,
    FenceBroker,
    IsrMember,
    PartitionAlteration,
)
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, TopicPartition
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.controller.protocol.mode_commands import DrainBroker, EndBrokerMode, Mode
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import Answer
from quorum.wire import in_pieces
from quorum.wire.admin_methods import TABLE
from quorum.wire.table import Submitted

LIMIT_MS = 10.0
REQUEST_MAX = 10_000
"""How many entries the largest request names."""
TOPIC_PARTITIONS = 25
IDLE_MS = 0.3
"""A shorter turn has decided nothing."""
FIRST_BROKER_ID = 101
console = Console(stderr=True, width=110)


class Turns:
    """The steps, on one node."""

    def __init__(self, lone: LoneController, partitions: int, brokers: int) -> None:
        self.table = Table(title=f"{partitions:,} partitions on {brokers} brokers: CPU time of turns")
        for heading in ("step", "turns", "longest ms", "median ms", f"above {LIMIT_MS:.0f} ms", "in all s"):
            self.table.add_column(heading, justify="left" if heading == "step" else "right")
        self.long = 0
        self._lone = lone
        self._topics = partitions // TOPIC_PARTITIONS
        self._brokers = range(FIRST_BROKER_ID, FIRST_BROKER_ID + brokers)

    def step(self, name: str, act: Callable[[], object]) -> None:
        """Measures the turns of one step."""
        gc.collect()
        self._lone.turns_ms.clear()
        answer = act()
        if isinstance(answer, Refused):
            console.print(f"{name}: {answer.code.name} {answer.message}")
        self.show(name, self._lone.turns_ms)

    def show(self, name: str, times_ms: list[float]) -> None:
        """Adds a row."""
        longest, median = max(times_ms), sorted(times_ms)[len(times_ms) // 2]
        above = sum(each > LIMIT_MS for each in times_ms)
        self.long += above
        row = (f"{len(times_ms):,}", f"{longest:.1f}", f"{median:.1f}", str(above), f"{sum(times_ms) / 1e3:.2f}")
        self.table.add_row(name, *row)
        where = f"   longest: turn {times_ms.index(longest) + 1}" if len(times_ms) > 1 else ""
        console.print(f"{name:45}", *(f"{cell:>8}" for cell in row), where, highlight=False)

    def run(self) -> None:
        """All steps."""
        lone = self._lone
        for broker_id in self._brokers:
            lone.register(broker_id)
        self._creations()
        self._requests()
        self._brokers_come_and_go()
        self._views()
        self._translations()
        few = tuple(f"few-{number}" for number in range(550))
        self.step("delete 550 topics (one batch)", lambda: lone.ask(DeleteTopics(few)))
        few = tuple(self._names())[REQUEST_MAX:][:1_100]
        self.step(f"delete {len(few):,} topics (one batch)", lambda: lone.ask(DeleteTopics(few)))
        self.step("delete 10,000 topics", lambda: lone.ask(DeleteTopics(tuple(self._names())[:REQUEST_MAX])))
        self.step("delete a topic of 200,000", lambda: lone.ask(DeleteTopics(("large",))))

    def _names(self) -> Iterator[str]:
        return (f"topic-{number:06}" for number in range(self._topics))

    def _places(self) -> list[tuple[str, int]]:
        """The partitions that the largest request names."""
        places = ((name, partition) for name in self._names() for partition in range(TOPIC_PARTITIONS))
        return [place for place, _ in zip(places, range(REQUEST_MAX), strict=False)]

    def _creations(self) -> None:
        lone, ask = self._lone, self._lone.ask
        names = [NewTopic(name, TOPIC_PARTITIONS, 3) for name in self._names()]

        def all_topics() -> None:
            for first in range(0, len(names), REQUEST_MAX):
                ask(CreateTopics(tuple(names[first : first + REQUEST_MAX])))

        self.step("create topics, 250,000 partitions a request", all_topics)
        self.step("create a topic of 100,000", lambda: ask(CreateTopics((NewTopic("large", 100_000, 3),))))
        self.step("100,000 partitions more", lambda: ask(CreatePartitions((NewPartitions("large", 200_000),))))
        self.step("create a topic of 1,000 (one batch)", lambda: ask(CreateTopics((NewTopic("medium", 1_000, 3),))))
        few = tuple(NewTopic(f"few-{number}", 1, 3) for number in range(550))
        self.step("create 550 topics (one batch)", lambda: ask(CreateTopics(few)))
        odd = tuple(NewTopic("._" * 8 + f"x{number}", 1, 1) for number in range(200))
        self.step("create 200 topics with 16 separators", lambda: ask(CreateTopics(odd)))
        first = FIRST_BROKER_ID
        assigned = tuple((first + n % 3, first + 3 + n % 3, first + 6 + n % 3) for n in range(REQUEST_MAX))
        self.step("create 10,000 as assigned", lambda: ask(CreateTopics((NewTopic("assigned", assignment=assigned),))))
        lone.contact(*self._brokers)

    def _requests(self) -> None:
        ask, places = self._lone.ask, self._places()

        def alter(key: str, value: str) -> Answer:
            operations = (ConfigOperation(ConfigOperationKind.SET, key, value),)
            return ask(AlterConfigs(tuple(ConfigAlteration(2, name, operations) for name in names)))

        names = list(self._names())[:REQUEST_MAX]
        self.step("configs of 10,000 topics", lambda: alter("retention.ms", "1000"))
        names = names[:550]
        self.step("configs of 550 topics (one batch)", lambda: alter("retention.ms", "1001"))
        names = list(self._names())[:REQUEST_MAX]
        self.step("min.insync.replicas of 10,000 topics", lambda: alter("min.insync.replicas", "2"))
        target = (self._brokers[-1], self._brokers[-2], self._brokers[-3])
        moved = tuple(Reassignment(*place, target) for place in places)
        self.step("reassign 10,000 (dry run)", lambda: ask(AlterPartitionReassignments(moved, validate_only=True)))
        self.step("reassign 10,000", lambda: ask(AlterPartitionReassignments(moved)))
        self.step("reassign 10,000 in vain", lambda: ask(AlterPartitionReassignments(moved)))
        back = tuple(Reassignment(*place, None) for place in places)
        self.step("cancel 10,000", lambda: ask(AlterPartitionReassignments(back)))
        large = tuple(Reassignment("large", number, target) for number in range(REQUEST_MAX))
        self.step("reassign 10,000 of one topic", lambda: ask(AlterPartitionReassignments(large)))
        back = tuple(Reassignment("large", number, None) for number in range(REQUEST_MAX))
        self.step("cancel 10,000 of one topic", lambda: ask(AlterPartitionReassignments(back)))
        self.step("elect 10,000 in vain", lambda: ask(ElectLeaders(tuple(TopicPartition(*each) for each in places))))
        self._proposals()

    def _proposals(self) -> None:
        """A leader takes a replica of each partition out of the ISR, and back."""
        lone = self._lone
        leader = self._brokers[0]

        def propose(size: int) -> Answer:
            image = lone.node.state.committed
            found: list[PartitionAlteration] = []
            for topic in image.topics_by_id.unordered_values():
                for number, state in enumerate(topic.states()):
                    if state[LEADER] == leader and len(found) < REQUEST_MAX:
                        isr = (leader, *[each for each in state[REPLICAS] if each != leader][: size - 1])
                        members = tuple(IsrMember(each) for each in isr)
                        epochs = state[LEADER_EPOCH], state[PARTITION_EPOCH]
                        found.append(PartitionAlteration(topic.topic_id, number, *epochs, members))
            return lone.tell(AlterPartition(leader, image.brokers[leader].broker_epoch, tuple(found)))

        self.step("AlterPartition, 10,000 ISRs shrink", lambda: propose(1))
        self.step("AlterPartition, 10,000 ISRs grow", lambda: propose(3))

    def _brokers_come_and_go(self) -> None:
        lone, broker_id, other = self._lone, self._brokers[0], self._brokers[1]

        def fall_silent() -> None:
            lone.silent.add(broker_id)
            lone.turns_ms.clear()
            while not lone.node.state.committed.brokers[broker_id].fenced:
                lone.turn()

        def come_back() -> None:
            lone.silent.clear()
            lone.contact(broker_id)
            assert not lone.node.state.committed.brokers[broker_id].fenced

        def grow_isrs() -> None:
            image = lone.node.state.committed
            by_leader: dict[NodeId, list[PartitionAlteration]] = {}
            for topic in image.topics_by_id.unordered_values():
                for number, state in enumerate(topic.states()):
                    if len(state[ISR]) < len(state[REPLICAS]):
                        members = tuple(IsrMember(each) for each in state[REPLICAS])
                        epochs = state[LEADER_EPOCH], state[PARTITION_EPOCH]
                        altered = PartitionAlteration(topic.topic_id, number, *epochs, members)
                        by_leader.setdefault(state[LEADER], []).append(altered)
            for leader, found in by_leader.items():
                for first in range(0, len(found), 1_000):
                    epoch = image.brokers[leader].broker_epoch
                    lone.tell(AlterPartition(leader, epoch, tuple(found[first : first + 1_000])))

        def balance() -> None:
            lone.now_ms += CONFIG.controller.leader_imbalance_check_interval_ms
            lone.contact(*self._brokers)
            while lone.turns_ms[-1] > IDLE_MS:
                lone.turn()

        self.step("session of a broker ends", fall_silent)
        self.step("the broker comes back", come_back)
        self.step("AlterPartition, 1,000 ISRs each", grow_isrs)
        places = tuple(
            TopicPartition(topic.name, number)
            for topic in lone.node.state.committed.topics_by_id.unordered_values()
            for number, state in enumerate(topic.states())
            if state[REPLICAS][0] == broker_id
        )[:REQUEST_MAX]
        self.step(f"elect {len(places):,} leaders", lambda: lone.ask(ElectLeaders(places)))
        placed = tuple(TopicPartition(*place) for place in self._places())
        self.step("elect 10,000 designated", lambda: lone.ask(ElectLeaders(placed, ElectionType.DESIGNATED, other)))
        self.step("leaders are balanced", balance)
        self.step("drain a broker", lambda: lone.ask(DrainBroker(other)))
        self.step("undrain", lambda: lone.ask(EndBrokerMode(other, Mode.MAINTENANCE)))
        self.step("an operator fences a broker", lambda: lone.ask(FenceBroker(other)))
        self.step("an operator ends that", lambda: lone.ask(EndBrokerMode(other, Mode.FENCED)))
        lone.contact(other)
        self._cluster_wide()
        self.step("a broker stops in order", lambda: lone.contact(other, wants_shut_down=True))
        lone.contact(other)

    def _cluster_wide(self) -> None:
        lone = self._lone
        wanted = (ConfigOperation(ConfigOperationKind.SET, "min.insync.replicas", "3"),)
        command = AlterConfigs((ConfigAlteration(4, "", wanted),))
        self.step("min.insync.replicas of all", lambda: lone.ask(command))
        wanted = (ConfigOperation(ConfigOperationKind.SET, "unclean.leader.election.enable", "true"),)
        unclean = AlterConfigs((ConfigAlteration(4, "", wanted),))
        self.step("unclean elections for all", lambda: lone.ask(unclean))
        off = UpdateFeatures((FeatureUpdate(ELR_VERSION, 0, UpgradeType.SAFE_DOWNGRADE),))
        self.step("eligible leader replicas off", lambda: lone.ask(off))
        down = UpdateFeatures((FeatureUpdate(METADATA_VERSION, 1, UpgradeType.SAFE_DOWNGRADE),), validate_only=True)
        self.step("downgrade (dry run)", lambda: lone.ask(down))

    # --- around a turn ---------------------------------------------------------------------------------------------

    def timed(self, name: str, act: Callable[[], object], times: int = 5) -> None:
        """Measures something that the event loop does outside of turns."""
        found: list[float] = []
        for _ in range(times):
            began = time.thread_time()
            act()
            found.append((time.thread_time() - began) * 1_000)
        self.show(name, [sorted(found)[times // 2]])

    def stepped(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        """Measures each step of a coroutine between two rests, and returns its result."""
        times_ms: list[float] = []
        while True:
            began = time.thread_time()
            try:
                work.send(None)
            except StopIteration as e:
                return e.value
            finally:
                times_ms.append((time.thread_time() - began) * 1_000)
                if inspect.getcoroutinestate(work) == inspect.CORO_CLOSED:
                    self.show(name, times_ms)

    def _views(self) -> None:
        image, controller = self._lone.node.state.committed, self._lone.node.active.controller
        names = tuple(self._names())[:REQUEST_MAX]
        self.timed("view: a page of topics", lambda: views.list_topics(image))
        self.timed("view: describe 10,000 topics", lambda: views.describe_topics(image, names))
        self.timed("view: describe a topic of 200,000", lambda: views.describe_topics(image, ("large",)))
        self.timed("view: partitions, all", lambda: list_partitions(image, PartitionFilter(), None, 0))
        few = PartitionFilter(led_by=self._brokers[3])
        self.timed("view: partitions of a leader", lambda: list_partitions(image, few, None, 0))
        self.timed("view: reassignments", lambda: ongoing_reassignments(image))
        counts = views.broker_counts(image)
        self.timed("view: brokers", lambda: views.list_brokers(image, controller, counts))

    def _translations(self) -> None:
        """The largest messages, as bytes and as commands."""
        rows = {row.method: row for row in TABLE.rows if isinstance(row, Submitted)}
        names, places = list(self._names())[:REQUEST_MAX], self._places()
        operation = admin_pb2.ConfigOperation(key="retention.ms", value="1000")
        target = admin_pb2.ReplicaList(broker_ids=[101, 102, 103])
        created = [admin_pb2.NewTopic(name=f"x{name}", partitions=1, replication_factor=3) for name in names]
        resources = [admin_pb2.ConfigResource(resource_type=2, name=name) for name in names]
        altered = [admin_pb2.ConfigAlteration(resource=each, operations=[operation]) for each in resources]
        moved = [admin_pb2.PartitionReassignment(topic=t, partition=p, target=target) for t, p in places]
        for method, request in (
            ("CreateTopics", admin_pb2.CreateTopicsRequest(topics=created)),
            ("DeleteTopics", admin_pb2.DeleteTopicsRequest(names=names)),
            ("IncrementalAlterConfigs", admin_pb2.IncrementalAlterConfigsRequest(alterations=altered)),
            ("AlterPartitionReassignments", admin_pb2.AlterPartitionReassignmentsRequest(partitions=moved)),
        ):
            self._translation(rows[method], type(request), request.SerializeToString())

    def _translation(self, row: Submitted, kind: Any, data: bytes) -> None:
        request = kind.FromString(data)
        self.timed(f"{row.method}: bytes to a message", lambda: kind.FromString(data))
        self.stepped(f"{row.method}: message to a command", in_pieces.command_of(request, row.from_request, row.items))
        command: Any = row.from_request(request)
        if not isinstance(command, DeleteTopics):
            command = replace(command, validate_only=True)
        answer = self._lone.ask(command)
        response = self.stepped(f"{row.method}: answer to a message", in_pieces.response_of(answer, row.to_response))
        self.timed(f"{row.method}: message to bytes", response.SerializeToString)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("--partitions", type=int, default=500_000)
    parser.add_argument("--brokers", type=int, default=25)
    arguments = parser.parse_args()
    gc.set_threshold(*GC_THRESHOLDS)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="turns-", dir=memory if memory.is_dir() else None) as directory:
        turns = Turns(LoneController(Path(directory)), arguments.partitions, arguments.brokers)
        turns.run()
        Console(width=110).print(turns.table)
    return 1 if turns.long else 0


if __name__ == "__main__":
    sys.exit(main())
