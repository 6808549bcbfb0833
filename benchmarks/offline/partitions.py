"""The partitions of the simulated cluster, with only the fields that a year changes."""

from collections.abc import Iterable, Iterator

from metadata_log.format.ids import NO_LEADER, NodeId, Uuid
from metadata_log.format.partition_state import PartitionState, partition_of
from metadata_log.format.records import RECOVERED, Partition, PartitionChange

NodeIds = tuple[NodeId, ...]


class Seat:
    """One partition. The methods change it as replay will, and return the record of the change."""

    __slots__ = (
        "adding", "directories", "isr", "leader", "leader_epoch", "number", "partition_epoch", "removing", "replicas", "topic_id",
    )  # fmt: skip

    def __init__(self, topic_id: Uuid, number: int, replicas: NodeIds, directories: tuple[Uuid, ...]) -> None:
        self.topic_id = topic_id
        self.number = number
        self.replicas = self.isr = replicas
        self.removing: NodeIds = ()
        self.adding: NodeIds = ()
        self.leader = replicas[0]
        self.leader_epoch = self.partition_epoch = 0
        self.directories = directories

    @property
    def record(self) -> Partition:
        """The canonical record."""
        state: PartitionState = (
            self.replicas, self.isr, self.removing, self.adding, self.leader, RECOVERED, self.leader_epoch, self.partition_epoch,
            self.directories, (), (),
        )  # fmt: skip
        return partition_of(self.topic_id, self.number, state)

    def lose(self, broker: NodeId) -> PartitionChange:
        """Take `broker` out of the ISR. The last member stays, and the partition has no leader then."""
        self.partition_epoch += 1
        isr = tuple([each for each in self.isr if each != broker])
        if not isr:
            self.leader = NO_LEADER
            self.leader_epoch += 1
            return PartitionChange(self.topic_id, self.number, None, NO_LEADER)
        self.isr = isr
        if self.leader != broker:
            return PartitionChange(self.topic_id, self.number, isr)
        self.leader = next(each for each in self.replicas if each in isr)
        self.leader_epoch += 1
        return PartitionChange(self.topic_id, self.number, isr, self.leader)

    def join(self, broker: NodeId) -> PartitionChange:
        """Take `broker` into the ISR again, as the leader proposes; or let it lead, if it is the last member."""
        self.partition_epoch += 1
        if broker in self.isr:
            self.leader = broker
            self.leader_epoch += 1
            return PartitionChange(self.topic_id, self.number, None, broker)
        # Leaders propose an ISR in the order of the replicas.
        self.isr = tuple([each for each in self.replicas if each == broker or each in self.isr])
        return PartitionChange(self.topic_id, self.number, self.isr)

    def lead(self, broker: NodeId) -> PartitionChange:
        """Make a member of the ISR the leader."""
        self.partition_epoch += 1
        self.leader_epoch += 1
        self.leader = broker
        return PartitionChange(self.topic_id, self.number, None, broker)

    def begin_move(self, source: NodeId, target: NodeId, directory: Uuid) -> PartitionChange:
        """Add a replica on `target`, which will replace the replica on `source`."""
        self.partition_epoch += 1
        self.replicas, self.adding, self.removing = (*self.replicas, target), (target,), (source,)
        self.directories = (*self.directories, directory)
        return PartitionChange(
            self.topic_id, self.number, None, None, self.replicas, self.removing, self.adding, None, self.directories
        )

    def end_move(self) -> PartitionChange:
        """Drop the replica that was to be replaced."""
        self.partition_epoch += 1
        (source,) = self.removing
        kept = [pair for pair in zip(self.replicas, self.directories, strict=True) if pair[0] != source]
        self.replicas, self.directories = tuple(pair[0] for pair in kept), tuple(pair[1] for pair in kept)
        self.isr = tuple(each for each in self.isr if each != source)
        self.adding = self.removing = ()
        leader = None
        if self.leader == source:
            self.leader = leader = next(each for each in self.replicas if each in self.isr)
            self.leader_epoch += 1
        return PartitionChange(
            self.topic_id, self.number, self.isr, leader, self.replicas, (), (), None, self.directories
        )


class Seats:
    """All partitions, by topic and by broker. Every iteration has the order of insertion, so a seed gives one log."""

    def __init__(self) -> None:
        self.by_topic: dict[Uuid, list[Seat]] = {}
        self._by_broker: dict[NodeId, dict[Seat, None]] = {}
        self.count = 0

    def add(self, topic_id: Uuid, seats: list[Seat]) -> None:
        self.by_topic[topic_id] = seats
        self.count += len(seats)
        for seat in seats:
            self.place(seat, seat.replicas)

    def remove(self, topic_id: Uuid) -> None:
        seats = self.by_topic.pop(topic_id)
        self.count -= len(seats)
        for seat in seats:
            self.displace(seat, seat.replicas)

    def place(self, seat: Seat, brokers: Iterable[NodeId]) -> None:
        for broker in brokers:
            self._by_broker.setdefault(broker, {})[seat] = None

    def displace(self, seat: Seat, brokers: Iterable[NodeId]) -> None:
        for broker in brokers:
            del self._by_broker[broker][seat]

    def on(self, broker: NodeId) -> Iterator[Seat]:
        """Return the partitions with a replica on `broker`."""
        return iter(self._by_broker.get(broker, {}))
