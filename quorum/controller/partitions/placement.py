"""The placement of new partitions: striped over racks, and inside each rack over its brokers.

With three racks A, B, C of three brokers each, successive partitions get

    partition   leader's rack   replicas
        0             A         A0 B1 C2
        1             B         B0 C1 A2
        2             C         C0 A1 B2
        3             A         A1 B2 C0
        ...

The leader's rack moves on with each partition (racks without an online broker are skipped), and so does the broker in the rack.
The i-th replica comes from the i-th rack after the leader's, i brokers further on. So two partitions with neighbouring leaders
share few replicas, and the load of a lost broker spreads. After one full round (each online broker has led once) the orders are
shuffled.

The laws, the strongest first:
    1  never two replicas of a partition on one broker
    2  the leader is online
    3  racks differ by at most one replica, unless a rack has no more brokers
    4  in each rack online brokers come before fenced brokers
    5  the brokers of equal racks lead equally often

Brokers without a rack form one rack. (Kafka's StripedReplicaPlacer has the same laws, but advances every rack at every partition:
so within one round the same broker of a rack leads again and again.)

A placer continues from request to request. So thousands of topics with one partition each are spread as evenly as one topic with
thousands of partitions.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from metadata_log.format.ids import NodeId


class UsableBroker(NamedTuple):
    """A broker that may get replicas. `is_online`: the broker may lead and be in an ISR."""

    broker_id: NodeId
    rack: str | None
    is_online: bool


class _Rack:
    """The brokers of one rack; online brokers are drawn first."""

    __slots__ = ("fenced", "online", "size")

    def __init__(self, online: list[NodeId], fenced: list[NodeId]) -> None:
        self.online = online
        self.fenced = fenced
        self.size = len(online) + len(fenced)

    def draw(self, row: int, visit: int) -> NodeId:
        """Draws the replica of the rack's `visit`-th turn for one partition; -1 if each of its brokers has a replica already."""
        online = self.online
        if visit < len(online):
            return online[(row + visit) % len(online)]
        visit -= len(online)
        if visit < len(self.fenced):
            return self.fenced[(row + visit) % len(self.fenced)]
        return -1


class Placer:
    """Places partitions on a fixed set of brokers. Its only state is the position of the striping."""

    def __init__(self, brokers: Iterable[UsableBroker], rng: random.Random) -> None:
        self._rng = rng
        by_rack: dict[str | None, tuple[list[NodeId], list[NodeId]]] = {}
        for broker in sorted(brokers):
            by_rack.setdefault(broker.rack, ([], []))[0 if broker.is_online else 1].append(broker.broker_id)
        self._racks = [_Rack(online, fenced) for online, fenced in by_rack.values()]
        self.broker_count = sum(rack.size for rack in self._racks)
        self.online_count = sum(len(rack.online) for rack in self._racks)
        self._doubled: list[NodeId] = []
        self._leading: list[int] = []
        """The positions of the racks with an online broker: only these take turns with leading."""
        self._shuffle()
        self._placed = rng.randrange(self.online_count) if self.online_count else 0

    def _shuffle(self) -> None:
        """Shuffles racks and brokers, so that the next round has other neighbours."""
        self._mix(self._racks)
        self._leading = [place for place, rack in enumerate(self._racks) if rack.online]
        for rack in self._racks:
            self._mix(rack.online)
            self._mix(rack.fenced)
        if len(self._racks) == 1 and not self._racks[0].fenced:
            self._doubled = self._racks[0].online * 2
        self._placed = 0

    def _mix(self, items: list[Any]) -> None:
        if len(items) > 1:  # with three brokers a round has only three partitions, so needless calls add up
            self._rng.shuffle(items)

    def place(self, partition_count: int, replication_factor: int) -> list[tuple[NodeId, ...]]:
        """Places `partition_count` partitions. The first replica of each is online, and is the preferred leader.

        At least one broker must be online, and `replication_factor` must be at most the number of brokers.
        """
        assert self.online_count > 0
        assert 1 <= replication_factor <= self.broker_count
        placed: list[tuple[NodeId, ...]] = []
        while len(placed) < partition_count:
            if self._placed == self.online_count:
                self._shuffle()
            count = min(partition_count - len(placed), self.online_count - self._placed)
            turns = range(self._placed, self._placed + count)
            if self._doubled:
                doubled = self._doubled
                placed += [tuple(doubled[turn : turn + replication_factor]) for turn in turns]
            else:
                placed += [self._place_one(turn, replication_factor) for turn in turns]
            self._placed += count
        return placed

    def _place_one(self, turn: int, replication_factor: int) -> tuple[NodeId, ...]:
        racks: Sequence[_Rack] = self._racks
        rack_count = len(racks)
        row, whose = divmod(turn, len(self._leading))
        first = self._leading[whose]
        replicas: list[NodeId] = []
        step = 0
        while len(replicas) < replication_factor:
            visit, after = divmod(step, rack_count)
            replica = racks[(first + after) % rack_count].draw(row + after, visit)
            if replica >= 0:
                replicas.append(replica)
            step += 1
        return tuple(replicas)
