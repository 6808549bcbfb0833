"""What a watch has shown: the truth passes; a gap, a duplicate, another order and an untrue state are found."""

import pytest

from clients.entities.core.watch_values import WatchEvent
from metadata_log.format.records import Entity as EntityRecord
from metadata_log.format.records import RemoveEntity, Voters
from metaquorum import Entity, EntityDeleted, EntityWritten, ResetReason, WatchBatch, WatchPosition
from tests.chaos.entities.scripted import log_of, named, replayed
from tests.chaos.entities.watch_history import false_watches, states_at
from tests.chaos.entities.watchers import Episode, View
from tests.sim.history import History
from tests.sim.laws.entities.watches import WatchLaws

BATCHES = log_of(
    [EntityRecord("register", "a", b"1", None), named(1)],  # at 1, ends at 3
    [EntityRecord("guarded", "m", b"2", None), named(2)],  # ends at 5
    [EntityRecord("register", "a", b"3", None, 1), EntityRecord("register", "b", b"4", None), named(3)],  # ends at 8
    [RemoveEntity("register", "a"), named(4)],  # ends at 10
)
POSITIONS = {batch.end_offset: WatchPosition(0, batch.end_offset, batch.epoch, batch.chain) for batch in BATCHES}


def entity(name: str, value: bytes, version: int, created: int, kind: str = "register") -> Entity:
    return Entity(kind, name, value, version, created)


A1 = EntityWritten(1, entity("a", b"1", 1, 1))
A3, B4 = EntityWritten(5, entity("a", b"3", 5, 1)), EntityWritten(6, entity("b", b"4", 6, 6))
GONE = EntityDeleted(8, "register", "a")


def batch(offset: int, *events: WatchEvent, reset: ResetReason = ResetReason.NO_RESET) -> WatchBatch:
    return WatchBatch(POSITIONS[offset], events, reset, 0)


def state(offset: int, *entities: Entity, reset: ResetReason = ResetReason.NO_POSITION) -> WatchBatch:
    return batch(offset, *(EntityWritten(0, each) for each in entities), reset=reset)


def found(*batches: WatchBatch, since: int | None = None, views: tuple[View, ...] = ()) -> list[str]:
    episodes = [Episode("watcher 2", "register", None if since is None else POSITIONS[since], [*batches])]
    history = History(Voters(()))
    laws = WatchLaws(history, states_at(episodes, views))
    replayed(history, laws.committed, batches=BATCHES)
    return false_watches(episodes, views, laws)


def test_the_truth() -> None:
    """A state and changes; bookmarks; changes of several batches in one; a position of before; a state in between."""
    a1, b4 = entity("a", b"1", 1, 1), entity("b", b"4", 6, 6)
    assert found(state(3, a1), batch(5), batch(8, A3, B4), batch(10, GONE)) == []
    assert found(batch(3, A1), batch(10, A3, B4, GONE), since=1) == []
    assert found(state(10, b4, reset=ResetReason.BELOW_LOG_START), since=3) == []


@pytest.mark.parametrize(
    ("batches", "law"),
    [
        ([batch(3, A1), batch(8, B4), batch(10, GONE)], "W1 Exact"),  # a gap
        ([batch(3), batch(10, A3, B4, GONE)], "W1 Exact"),
        ([batch(3, A1), batch(8, A1, A3, B4)], "W1 Exact"),  # a duplicate
        ([batch(8, A1, A3, B4), batch(5, A3)], "W1 Exact"),  # back
        ([batch(8, A1, B4, A3)], "W1 Exact"),  # another order
        ([batch(8, A1, A3._replace(offset=6), B4)], "W1 Exact"),
        ([batch(5, A1, EntityWritten(3, entity("m", b"2", 3, 3, "guarded")))], "W1 Exact"),  # not of the filter
        ([batch(3, A1._replace(entity=entity("a", b"9", 1, 1)))], "W1 Exact"),
        ([batch(3, A1)._replace(position=WatchPosition(0, 2, 1, bytes(32)))], "W1 WholeBatches"),
        ([batch(3, A1)._replace(position=WatchPosition(0, 3, 1, bytes(32)))], "W1 Position"),
        ([batch(3, A1)._replace(position=WatchPosition(0, 11, 1, bytes(32)))], "W1 Committed"),
        ([state(8, entity("b", b"4", 6, 6), reset=ResetReason.BELOW_LOG_START)], "W2 TrueReset"),  # not all
        ([state(10, entity("a", b"3", 5, 1), reset=ResetReason.BELOW_LOG_START)], "W2 TrueReset"),  # an old one
        ([state(10, entity("b", b"4", 6, 6), reset=ResetReason.OTHER_HISTORY)], "W2 TrueReset"),  # there is only one
        ([state(10, entity("b", b"4", 6, 6), reset=ResetReason.NO_POSITION)], "W2 TrueReset"),  # there was a position
    ],
)
def test_a_watch_that_shows_something_else_than_the_log(batches: list[WatchBatch], law: str) -> None:
    (text,) = found(*batches, since=1)
    assert text.startswith(law), text


def test_a_watch_without_a_position_begins_with_a_state() -> None:
    assert "and no state" in found(batch(3, A1))[0]


def test_a_live_view_is_the_state_at_its_position() -> None:
    def view(offset: int, *entities: Entity) -> View:
        return View("watcher 3", "register", POSITIONS[offset], entities)

    b4 = entity("b", b"4", 6, 6)
    assert found(views=(view(10, b4), view(8, entity("a", b"3", 5, 1), b4), view(1))) == []
    (text,) = found(views=(view(10, b4), view(8, b4)))
    assert "a live view: W2 TrueReset" in text
