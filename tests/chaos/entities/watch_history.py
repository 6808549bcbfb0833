"""What watches and live views have shown, against the committed log, by the simulator's laws of watches (W1, W2).

Between two positions a watch shows exactly the committed changes of its filter, in order, each once. A state is that of its
offset. A node may begin anew with a state, if its log begins above the position; in a chaos run it must never say that the
position is of another history, because there is only one.
"""

from collections.abc import Iterable, Iterator, Sequence

from metadata_log.format.ids import Offset
from metadata_log.format.records import Entity as EntityRecord
from metadata_log.format.records import Owner, RemoveEntity
from metaquorum import Entity, EntityDeleted, EntityWritten, ResetReason, WatchBatch, WatchPosition
from tests.chaos.entities.watchers import Episode, View
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.laws.entities.watches import WatchLaws
from watches.core.changes import Change
from watches.core.filters import Area, EntityFilter, Filter, Subject
from watches.core.position import Position
from watches.core.position import ResetReason as Reason

_NEVER = (ResetReason.OTHER_GENERATION, ResetReason.OTHER_HISTORY)


def states_at(episodes: Iterable[Episode], views: Iterable[View]) -> frozenset[Offset]:
    """The offsets of all states that were shown."""
    shown = {batch.position.offset for each in episodes for batch in each.batches if batch.is_state}
    return frozenset(shown | {each.position.offset for each in views})


def false_watches(episodes: Sequence[Episode], views: Sequence[View], laws: WatchLaws) -> list[str]:
    """A text for each episode and each view that the log contradicts. `laws` have seen the whole log."""
    found = []
    for episode in episodes:
        try:
            _check(episode, laws)
        except LawBroken as e:
            found.append(str(e))
    for view in views:
        state = [_change(0, _record(each)) for each in view.entities]
        try:
            laws.reset(view.who, filter_of_kind(view.kind), _position(view.position), state, Reason.NO_POSITION)
        except LawBroken as e:
            found.append(f"a live view: {e}")
    return found


def _check(episode: Episode, laws: WatchLaws) -> None:
    """Raises LawBroken at the first batch that is wrong."""
    since = None if episode.since is None else _position(episode.since)
    for batch in episode.batches:
        until, changes = _position(batch.position), [*_changes(batch)]
        if batch.is_state:
            is_right = batch.reset not in _NEVER and (batch.reset is ResetReason.NO_POSITION) == (since is None)
            text = f"{episode.who} is shown a state at {until.offset}, because of {batch.reset.name}; it was at {since}"
            hold(is_right, "W2 TrueReset", text)
            laws.reset(episode.who, filter_of_kind(episode.kind), until, changes, Reason(batch.reset))
        else:
            hold(
                since is not None, "W2 TrueReset", f"{episode.who} is shown changes up to {until.offset}, and no state"
            )
            laws.continued(episode.who, filter_of_kind(episode.kind), since, until, changes)
        since = until


def filter_of_kind(kind: str) -> Filter:
    """The filter of a watch of entities of this kind; empty: of every kind."""
    return Filter((EntityFilter(kind),))


def _position(position: WatchPosition) -> Position:
    return Position(position.generation, position.offset, position.epoch, position.chain)


def _changes(batch: WatchBatch) -> Iterator[Change]:
    for event in batch.events:
        match event:
            case EntityWritten(offset, entity):
                yield _change(offset, _record(entity))
            case EntityDeleted(offset, kind, name):
                yield _change(offset, RemoveEntity(kind, name))
            case _:
                raise AssertionError(f"the watchers of a chaos run ask for entities only: {event}")


def _change(offset: Offset, record: EntityRecord | RemoveEntity) -> Change:
    return Change(offset, Subject(Area.ENTITY, record.name, record.kind), record)


def _record(entity: Entity) -> EntityRecord:
    owner = None if entity.owner is None else Owner(*entity.owner)
    return EntityRecord(entity.kind, entity.name, entity.value, owner, entity.created, entity.version)
