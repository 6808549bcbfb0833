"""Plans that spread replicas evenly over brokers: which replica moves where, and who is preferred as leader.

    1  Each replica on a broker that is to be emptied moves to another broker.
    2  While two brokers differ by two replicas or more, one replica moves from the fullest broker to the emptiest.
    3  A partition prefers another of its replicas, if that broker is online, is not to be emptied, and has at least two preferred
       leaderships less. No data moves.

Example. Brokers 1, 2 and 3 hold 40 replicas each, and broker 4 is new. The average is 30, so a plan needs at least 30 moves, and
step 2 makes 30: ten from each old broker. No replica moves between two old brokers.

A partition keeps its number of replicas, and never has two on one broker. Its spread over racks gets no worse: a move is
allowed if the new broker's rack holds fewer replicas of the partition than the old broker's rack, or if the racks are the same.
So a rack with fewer brokers may keep fuller brokers. In step 1 the rack with the fewest replicas of the partition comes first,
then the emptiest broker.

*Step 2 makes as few moves as possible* if no rack forbids a move. The fullest broker always has a partition that the emptiest
lacks, so the pair can always be brought closer; and each move takes a replica that some plan must move.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final, NamedTuple, TypeAlias

from metadata_log.format.ids import NodeId

Place: TypeAlias = tuple[str, int]
"""A partition, by topic and number."""
Replicas: TypeAlias = tuple[NodeId, ...]
Assignments: TypeAlias = Mapping[Place, Replicas]

_ANY: Final[frozenset[NodeId]] = frozenset()


class PlannedBroker(NamedTuple):
    """A broker of the cluster. `is_usable`: the broker is online, and may get replicas."""

    broker_id: NodeId
    rack: str | None = None
    is_usable: bool = True


class Impossible(Exception):
    """There is no such plan; the text says why."""


class _Planner:
    """The assignments on the way to the plan, and what they mean for each broker."""

    def __init__(
        self, brokers: Iterable[PlannedBroker], partitions: Assignments, off: Set[NodeId], onto: Set[NodeId]
    ) -> None:
        self._racks = {broker.broker_id: broker.rack for broker in brokers}
        usable = [broker.broker_id for broker in sorted(brokers) if broker.is_usable and broker.broker_id not in off]
        self.givers = usable
        self.takers = [broker_id for broker_id in usable if not onto or broker_id in onto]
        self.off = off
        self.before = partitions
        self.now = dict(partitions)
        self.changed: set[Place] = set()
        self.counts: Counter[NodeId] = Counter()
        self.on: defaultdict[NodeId, dict[Place, None]] = defaultdict(dict)
        """The partitions on each broker, in a fixed order."""
        for place, replicas in sorted(partitions.items()):
            self.counts.update(replicas)
            for broker_id in replicas:
                self.on[broker_id][place] = None

    def move(self, place: Place, giver: NodeId, taker: NodeId) -> None:
        """Puts a replica on another broker. The new replica has the old one's place in the order."""
        self.now[place] = tuple([taker if each == giver else each for each in self.now[place]])
        self.changed.add(place)
        self.counts[giver] -= 1
        self.counts[taker] += 1
        del self.on[giver][place]
        self.on[taker][place] = None

    def in_rack_of(self, broker_id: NodeId, replicas: Replicas) -> int:
        """Counts the replicas in the broker's rack."""
        rack = self._racks.get(broker_id)
        return sum([self._racks.get(each) == rack for each in replicas])

    def may_move(self, place: Place, giver: NodeId, taker: NodeId) -> bool:
        """True if the taker has no replica of the partition yet, and the racks do not forbid the move."""
        replicas = self.now[place]
        if taker in replicas:
            return False
        if self._racks.get(giver) == self._racks.get(taker):
            return True
        return self.in_rack_of(taker, replicas) < self.in_rack_of(giver, replicas)


def plan(
    brokers: Iterable[PlannedBroker],
    partitions: Assignments,
    *,
    off: Set[NodeId] = _ANY,
    onto: Set[NodeId] = _ANY,
) -> dict[Place, Replicas]:
    """Returns the new replicas of each partition that changes.

    `off`: brokers to be emptied; without `onto` the others then get their replicas, and no others move. `onto`: the only brokers
    that get replicas, until they hold as many as the others. Without both, all usable brokers give and get.

    Raises:
        Impossible: too few brokers may get replicas.
    """
    work = _Planner(list(brokers), partitions, off, onto)
    _empty(work)
    _level(work, only_new=bool(off) and not onto)
    _spread_leaders(work, None if not off and not onto else frozenset(work.changed))
    return {place: work.now[place] for place in sorted(work.changed) if work.now[place] != partitions[place]}


def _empty(work: _Planner) -> None:
    """Step 1."""
    for giver in sorted(work.off):
        for place in list(work.on[giver]):
            replicas = work.now[place]
            free = [taker for taker in work.takers if taker not in replicas]
            if not free:
                topic, partition = place
                raise Impossible(
                    f"{topic}-{partition} has {len(replicas)} replicas, and no other broker may get the one of broker {giver}"
                )
            rest = tuple([each for each in replicas if each != giver])
            taker = min(free, key=lambda each: (work.in_rack_of(each, rest), work.counts[each], each))
            work.move(place, giver, taker)


def _level(work: _Planner, *, only_new: bool) -> None:
    """Step 2. With `only_new` just the replicas of step 1 change: they move anyway, so another broker costs no further move.

    A move may allow another one that was refused before, so the search begins anew until it finds nothing.
    """
    while True:
        movable = {
            giver: [place for place in work.on[giver] if not only_new or giver not in work.before[place]]
            for giver in work.givers
        }
        search = _Search(work, movable)
        moves = 0
        while (found := search.next()) is not None:
            work.move(*found)
            moves += 1
        if not moves:
            return


class _Search:
    """The search for moves of step 2. For each pair of brokers it looks at each partition once."""

    def __init__(self, work: _Planner, movable: Mapping[NodeId, list[Place]]) -> None:
        self._work = work
        self._movable = movable
        self._unseen: dict[tuple[NodeId, NodeId], Iterator[Place]] = {}

    def next(self) -> tuple[Place, NodeId, NodeId] | None:
        """Returns the next move: from the fullest broker to the emptiest, or else between the next two that differ by two."""
        work, counts = self._work, self._work.counts
        for giver in sorted(work.givers, key=lambda each: (-counts[each], each)):
            for taker in sorted(work.takers, key=lambda each: (counts[each], each)):
                if counts[giver] < counts[taker] + 2:
                    break
                if (giver, taker) not in self._unseen:
                    self._unseen[giver, taker] = iter(self._movable[giver])
                for place in self._unseen[giver, taker]:
                    if place in work.on[giver] and work.may_move(place, giver, taker):
                        return place, giver, taker
        return None


def _spread_leaders(work: _Planner, only: frozenset[Place] | None) -> None:
    """Step 3, for `only` these partitions; None: for all. A broker that is not online would lead none of them."""
    usable = frozenset(work.givers)
    led = Counter(dict.fromkeys(work.givers, 0))
    led.update(replicas[0] for replicas in work.now.values())
    is_moved = True
    while is_moved:
        is_moved = False
        for place in sorted(work.now if only is None else only):
            first, *others = work.now[place]
            able = [each for each in others if each in usable]
            best = min(able, key=lambda each: (led[each], each), default=first)
            if led[best] + 2 <= led[first]:
                work.now[place] = (best, *[each for each in work.now[place] if each != best])
                work.changed.add(place)
                led[first] -= 1
                led[best] += 1
                is_moved = True
