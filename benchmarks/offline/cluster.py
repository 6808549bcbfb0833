"""A cluster of 30 brokers that lives through a year: each event writes the batches that the controllers would write.

The sizes of the batches are those of production code: a fencing and an election are cut into slices of 250 partitions
(`slice_changes_max`), each leader proposes its own ISRs, and a request of an operator is one batch that ends with the request's
outcome. Example: broker 107 of a cluster with 20,000 partitions is restarted.
  1. broker 107 asks to stop: 667 leaderships move and 2,000 ISRs shrink, in eight batches of 250 records;
  2. the controller fences the broker; the new process registers and is unfenced;
  3. each of the 29 other leaders proposes its ISRs with 107 again, as the replicas catch up: some 60 batches of 1 to 64 records;
  4. the controller gives the leaderships back to broker 107: three batches.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from benchmarks.offline.partitions import NodeIds, Seat, Seats
from benchmarks.offline.requests import Requests
from metadata_log.format.ids import NO_LEADER, NodeId, Offset, Uuid
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    NO_DATA_PLANE,
    SUPPORTED,
    TOPIC_RESOURCE,
    BrokerRegistrationChange,
    Config,
    Endpoint,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    Record,
    RegisterBroker,
    RegisterController,
    RemoveTopic,
    Topic,
)
from quorum.controller.protocol.config import ControllerConfig

BROKERS: Final = tuple(range(101, 131))
CONTROLLERS: Final = (1, 2, 3)
RACKS: Final = ("a", "b", "c")
SLICE: Final = ControllerConfig().slice_changes_max
PROPOSED_MAX: Final = 64
"""Maximum number of ISRs in one proposal of a leader: replicas catch up one after the other."""
TOPIC_PARTITIONS_MAX: Final = 40
MOVED_MAX: Final = 50
"""Maximum number of partitions in one reassignment."""

Append = Callable[[Sequence[Record]], Offset]
"""Appends one batch, and returns its base offset."""


class Cluster:
    """The state of the cluster, and its events."""

    def __init__(self, dice: random.Random, append: Append, partitions: int) -> None:
        """`partitions` is how many partitions the cluster has at the end of the year."""
        self._dice = dice
        self._append = append
        self._partitions = partitions
        self._goal = partitions * 7 // 10
        self.seats = Seats()
        self._topics: list[tuple[str, Uuid]] = []
        self._named = 0
        self._epochs: dict[NodeId, Offset] = {}
        self._directories = {broker: (dice.randbytes(16), dice.randbytes(16)) for broker in BROKERS}
        self._down: list[NodeId] = []
        self._to_restart: list[NodeId] = []
        self._requests = Requests(dice)

    # --- the beginning ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Write the first records of the cluster: features, controllers, brokers, and the first topics."""
        self._append([FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX)])
        for controller in CONTROLLERS:
            endpoints = (Endpoint("CONTROLLER", f"controller-{controller}", 9093),)
            self._append([RegisterController(controller, self._dice.randbytes(16), endpoints, SUPPORTED)])
        for broker in BROKERS:
            self._register(broker)
        while self.seats.count < self._goal:
            self.create_topic()

    def elect(self) -> None:
        """Write the beginning of an epoch."""
        leader = self._dice.choice(CONTROLLERS)
        other = self._dice.choice([each for each in CONTROLLERS if each != leader])
        self._append([LeaderChange(leader, CONTROLLERS, tuple(sorted((leader, other))))])

    def _register(self, broker: NodeId) -> None:
        endpoints = (Endpoint("CLIENTS", f"broker-{broker}", 9092), Endpoint("BROKERS", f"broker-{broker}", 9094))
        record = RegisterBroker(
            broker, self._dice.randbytes(16), endpoints, SUPPORTED, RACKS[broker % 3], True, False,
            self._directories[broker], data_plane=NO_DATA_PLANE,
        )  # fmt: skip
        self._epochs[broker] = self._append([record])
        self._append([BrokerRegistrationChange(broker, self._epochs[broker], fenced=False)])

    # --- brokers ------------------------------------------------------------------------------------------------------

    def restart_next(self) -> None:
        """Restart the next broker of a rolling restart."""
        if not self._to_restart:
            self._to_restart = [*BROKERS]
        broker = self._to_restart.pop(0)
        if broker not in self._down:
            self._append([BrokerRegistrationChange(broker, self._epochs[broker], in_controlled_shutdown=True)])
            self._leave(broker)
            self._return(broker)

    def fail(self) -> None:
        """Let a broker die, or bring the dead broker back."""
        if self._down:
            self._return(self._down.pop())
            return
        broker = self._dice.choice(BROKERS)
        self._leave(broker)
        self._down.append(broker)

    def _leave(self, broker: NodeId) -> None:
        involved = (seat for seat in self.seats.on(broker) if broker in seat.isr and seat.leader != NO_LEADER)
        self._sliced(seat.lose(broker) for seat in involved)
        self._append([BrokerRegistrationChange(broker, self._epochs[broker], fenced=True)])

    def _return(self, broker: NodeId) -> None:
        self._register(broker)
        leaderless = (seat for seat in self.seats.on(broker) if seat.leader == NO_LEADER and broker in seat.isr)
        self._sliced(seat.join(broker) for seat in leaderless)
        self._propose(broker, [seat for seat in self.seats.on(broker) if broker not in seat.isr])
        preferring = (seat for seat in self.seats.on(broker) if seat.replicas[0] == broker != seat.leader)
        self._sliced(seat.lead(broker) for seat in preferring if broker in seat.isr)

    def flap(self) -> None:
        """Let a broker be slow for a while: the leaders drop it from their ISRs, and take it back."""
        broker = self._dice.choice([each for each in BROKERS if each not in self._down])
        followed = [seat for seat in self.seats.on(broker) if broker in seat.isr and seat.leader != broker]
        slow = followed[: self._dice.randint(0, len(followed))]
        for seats in self._by_leader(slow):
            self._append([seat.lose(broker) for seat in seats])
        self._propose(broker, slow)

    def _propose(self, broker: NodeId, lacking: Iterable[Seat]) -> None:
        for seats in self._by_leader(lacking):
            self._append([seat.join(broker) for seat in seats])

    def _by_leader(self, seats: Iterable[Seat]) -> Iterable[list[Seat]]:
        """Return the partitions of each leader, in groups as a leader would propose them."""
        led: dict[NodeId, list[Seat]] = {}
        for seat in seats:
            if seat.leader != NO_LEADER:
                led.setdefault(seat.leader, []).append(seat)
        for each in led.values():
            rest = iter(each)
            while some := [*islice(rest, self._dice.randint(1, PROPOSED_MAX))]:
                yield some

    def _sliced(self, records: Iterable[MetadataRecord]) -> None:
        rest = iter(records)
        while some := [*islice(rest, SLICE)]:
            self._append(some)

    # --- requests -----------------------------------------------------------------------------------------------------

    def administer(self, done: float) -> None:
        """Write a request of an operator or an embedder. `done` is the part of the year that has passed."""
        self._goal = int(self._partitions * (0.7 + 0.3 * done))
        if self.seats.count < self._goal:
            self.create_topic()
        elif self._dice.randrange(20) == 0 and len(self._topics) > 3:
            self._remove_topic()
        else:
            self._requests.write(self._append, self._topics, BROKERS)

    def create_topic(self) -> None:
        name, topic_id = f"topic-{self._named:05}", self._dice.randbytes(16)
        self._named += 1
        self._topics.append((name, topic_id))
        count = self._dice.randint(1, TOPIC_PARTITIONS_MAX)
        live = [broker for broker in BROKERS if broker not in self._down]
        seats = [self._new_seat(topic_id, number, live) for number in range(count)]
        self.seats.add(topic_id, seats)
        configs = [Config(TOPIC_RESOURCE, name, "retention.ms", str(self._dice.randint(1, 30) * 86_400_000))]
        self._append([Topic(name, topic_id), *(seat.record for seat in seats), *configs, self._requests.outcome()])

    def _new_seat(self, topic_id: Uuid, number: int, live: Sequence[NodeId]) -> Seat:
        replicas = self._three(live)
        return Seat(topic_id, number, replicas, tuple(self._directory(broker) for broker in replicas))

    def _three(self, live: Sequence[NodeId]) -> NodeIds:
        return tuple(self._dice.sample(live, 3))

    def _directory(self, broker: NodeId) -> Uuid:
        return self._dice.choice(self._directories[broker])

    def _remove_topic(self) -> None:
        name, topic_id = self._topics.pop(self._dice.randrange(len(self._topics)))
        self.seats.remove(topic_id)
        self._append([RemoveTopic(name, topic_id), self._requests.outcome()])

    def reassign(self) -> None:
        """Move one replica of some partitions of a topic to another broker."""
        _, topic_id = self._dice.choice(self._topics)
        live = [broker for broker in BROKERS if broker not in self._down]
        seats = [seat for seat in self.seats.by_topic[topic_id] if seat.leader != NO_LEADER][:MOVED_MAX]
        begun, targets = [], []
        for seat in seats:
            source = self._dice.choice(seat.replicas)
            target = self._dice.choice([broker for broker in live if broker not in seat.replicas])
            begun.append(seat.begin_move(source, target, self._directory(target)))
            targets.append((seat, source, target))
            self.seats.place(seat, (target,))
        if not begun:
            return
        self._append([*begun, self._requests.outcome()])
        for seat, source, target in targets:
            self._append([seat.join(target)])
            self.seats.displace(seat, (source,))
        self._sliced([seat.end_move() for seat in seats])
