"""A law that replay does not check: no partition is led by a fenced broker (M3 in `docs/laws.md`).

The law holds at the ends of batches and of transactions, not inside: the controller fences a broker and moves its partitions in
one batch. So this class notes each record that might break the law, and looks again at the end. The class counts the
partitions of each leader, and searches the partitions of a fenced broker only if the count is not zero.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from metadata_log.format.ids import NO_LEADER, NodeId, Offset, Uuid
from metadata_log.image.entity_key import topic_key
from snapshots.offline.shares.misfits import Found, broker_key

RULE: Final = "leader-fenced"


class LedBy(NamedTuple):
    """A partition, and its leader."""

    topic_id: Uuid
    name: str
    leader: NodeId


class Leaders:
    """The leaders of one share's partitions."""

    def __init__(self) -> None:
        self.led: Counter[NodeId] = Counter()
        """How many partitions of the share each broker leads."""
        self.fenced: set[NodeId] = set()
        self._chosen: dict[tuple[Uuid, int], Offset] = {}
        """Partitions that got a leader which was fenced then, since the last end."""
        self._shut: dict[NodeId, Offset] = {}
        """Brokers that were fenced since the last end."""

    @property
    def may_be_broken(self) -> bool:
        """True if `check` has something to look at."""
        return bool(self._chosen or self._shut)

    def moved(self, old: NodeId, new: NodeId, place: tuple[Uuid, int], offset: Offset) -> None:
        """Note that a partition has another leader."""
        self.led[old] -= 1
        self.came(new, place, offset)

    def came(self, leader: NodeId, place: tuple[Uuid, int], offset: Offset) -> None:
        """Note the leader of a new partition."""
        self.led[leader] += 1
        if leader in self.fenced:
            self._chosen[place] = offset

    def broker(self, broker_id: NodeId, fenced: bool, offset: Offset) -> None:
        """Note the state of a broker. A broker that is not registered is not fenced."""
        if fenced and broker_id not in self.fenced:
            self.fenced.add(broker_id)
            self._shut[broker_id] = offset
        elif not fenced:
            self.fenced.discard(broker_id)

    def check(
        self, led_by: Callable[[Uuid, int], LedBy | None], partitions: Callable[[], Iterator[tuple[Uuid, int]]]
    ) -> Iterator[Found]:
        """Return what breaks the law at the end of a batch or of a transaction. `led_by` returns None for a partition that was
        removed; `partitions` lists all partitions of the share.
        """
        chosen, shut = self._chosen, self._shut
        self._chosen, self._shut = {}, {}
        seen: Counter[NodeId] = Counter()
        for place, offset in chosen.items():
            now = led_by(*place)
            if now is not None and now.leader in self.fenced:
                seen[now.leader] += 1
                reason = f"{now.name} is led by broker {now.leader}, which is fenced"
                at = max(offset, shut.get(now.leader, 0))
                yield Found(at, RULE, topic_key(now.topic_id), reason, because=broker_key(now.leader))
        for broker_id, offset in shut.items():
            if broker_id not in self.fenced or self.led[broker_id] <= seen[broker_id] or broker_id == NO_LEADER:
                continue
            found = (led_by(*place) for place in partitions() if place not in chosen)
            names = [each.name for each in found if each is not None and each.leader == broker_id]
            reason = f"broker {broker_id} is fenced and leads {min(names)}"
            yield Found(offset, RULE, broker_key(broker_id), reason, followers=len(names) - 1)

    def copy(self) -> "Leaders":
        """Return a copy, to return to if a transaction is aborted."""
        other = Leaders()
        other.led, other.fenced = self.led.copy(), set(self.fenced)
        other._chosen, other._shut = dict(self._chosen), dict(self._shut)
        return other
