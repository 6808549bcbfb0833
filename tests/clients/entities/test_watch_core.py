"""A watch over broken streams: whole batches, each once, and differences instead of states."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.entities.core.values import Entity, Token
from clients.entities.core.watch_core import StreamUnusable, WatchCore
from clients.entities.core.watch_values import (
    EntityDeleted,
    EntityWritten,
    ResetReason,
    WatchBatch,
    WatchEvent,
    WatchMessage,
    WatchPosition,
)

NO = ResetReason.NO_RESET


def at(offset: int, generation: int = 0) -> WatchPosition:
    return WatchPosition(generation, offset, 1, b"c" * 32)


def written(offset: int, name: str, version: int | None = None) -> EntityWritten:
    version = offset if version is None else version
    return EntityWritten(offset, Entity("shard", name, b"", version, version))


def whole(offset: int, *events: WatchEvent, reset: ResetReason = NO, generation: int = 0) -> WatchMessage:
    return WatchMessage(at(offset, generation), events, True, reset, 7)


def part(*events: WatchEvent, reset: ResetReason = NO) -> WatchMessage:
    return WatchMessage(None, events, False, reset, 0)


def state(offset: int, *versions: tuple[str, int], reset: ResetReason = ResetReason.NO_POSITION) -> WatchMessage:
    return whole(offset, *(written(0, name, version) for name, version in versions), reset=reset)


def test_a_batch_of_several_messages_comes_as_a_whole() -> None:
    core = WatchCore(at(10))
    assert core.take(part(written(10, "a"))) is None
    batch = core.take(whole(12, written(11, "b")))
    assert batch is not None
    assert [event.offset for event in batch.events] == [10, 11]
    assert core.position == at(12)


def test_a_stream_that_breaks_inside_a_batch_shows_nothing_twice() -> None:
    core = WatchCore(at(10))
    assert core.take(part(written(10, "a"))) is None
    assert core.position == at(10)
    core.opened()  # at the next node, at 10
    assert core.take(part(written(10, "a"))) is None
    assert core.take(whole(12, written(11, "b"))) == WatchBatch(at(12), (written(10, "a"), written(11, "b")), NO, 7)


def test_every_entity_of_a_batch_gets_the_generation_of_its_last_message() -> None:
    core = WatchCore()
    core.take(part(written(10, "a")))
    batch = core.take(whole(12, written(11, "b"), generation=3))
    assert batch is not None
    assert [e.entity.token for e in batch.events if isinstance(e, EntityWritten)] == [Token(3, 10), Token(3, 11)]


def test_a_state_after_a_lost_position_becomes_the_difference() -> None:
    core = WatchCore(keep_state=True)
    first = core.take(state(100, ("1", 10), ("2", 20)))
    assert first is not None
    assert first.events == (written(10, "1"), written(20, "2"))
    after = core.take(state(500, ("1", 10), ("3", 300), ("4", 290), reset=ResetReason.BELOW_LOG_START))
    assert after is not None
    assert after.events == (EntityDeleted(-1, "shard", "2"), written(290, "4"), written(300, "3"))
    assert after.reset is ResetReason.BELOW_LOG_START


def test_after_another_history_an_equal_version_counts_as_another_write() -> None:
    """`quorum recover` has cut version 20 off, and another write got the offset 20."""
    core = WatchCore(keep_state=True)
    core.take(state(100, ("2", 20)))
    batch = core.take(state(60, ("2", 20), reset=ResetReason.OTHER_GENERATION))
    assert batch is not None
    assert batch.events == (written(20, "2"),)


def test_without_kept_state_the_program_gets_the_state_itself() -> None:
    core = WatchCore(at(10))
    batch = core.take(state(500, ("1", 10), reset=ResetReason.BELOW_LOG_START))
    assert batch is not None
    assert batch.is_state
    assert batch.events == (written(0, "1", 10),)


@pytest.mark.parametrize(
    "message",
    [
        whole(9),
        whole(12, written(9, "a")),
        whole(12, written(12, "a")),
        whole(12, written(11, "a"), written(10, "b")),
        WatchMessage(None, (), True, NO, 0),
    ],
    ids=["back", "below", "above", "order", "no position"],
)
def test_a_stream_that_contradicts_the_position_is_not_believed(message: WatchMessage) -> None:
    core = WatchCore(at(10))
    with pytest.raises(StreamUnusable):
        core.take(message)
    assert core.position == at(10)


def test_a_state_replaces_the_events_that_were_not_whole() -> None:
    """The node has loaded a snapshot in the middle of a batch."""
    core = WatchCore(at(10))
    core.take(part(written(10, "a")))
    core.take(part(written(0, "b", 5), reset=ResetReason.BELOW_LOG_START))
    batch = core.take(state(20, ("c", 15), reset=ResetReason.BELOW_LOG_START))
    assert batch is not None
    assert batch.events == (written(0, "b", 5), written(0, "c", 15))


def test_a_change_inside_a_state_is_not_believed() -> None:
    core = WatchCore()
    core.take(part(written(0, "b", 5), reset=ResetReason.NO_POSITION))
    with pytest.raises(StreamUnusable, match="a change inside a state"):
        core.take(whole(20, written(15, "c")))


@given(st.integers(0, 1 << 32), st.booleans())
def test_any_stream_history_shows_the_log_once_and_the_kept_state_is_true(seed: int, keeps: bool) -> None:
    """A log of random batches, streams that break at random messages, and a log start that moves: folding all that the watch
    shows gives the state of the log, and without a reset each event comes once."""
    dice = random.Random(seed)
    log, states = _random_log(dice)
    core, folded, shown, was_reset = WatchCore(keep_state=keeps), dict[str, int](), list[int](), False
    log_start = 0
    while core.position is None or core.position.offset < len(states) - 1:
        core.opened()
        for message in _stream(dice, log, states, core.position, log_start):
            batch = core.take(message)
            if batch is not None:
                was_reset |= batch.is_state and len(shown) > 0
                shown += [event.offset for event in batch.events if not batch.is_state]
                folded = _fold({} if batch.is_state and not keeps else folded, batch)
                assert folded == states[batch.position.offset], "the state is true at each position"
            if dice.random() < 0.3:
                break
        if dice.random() < 0.1 and core.position is not None:
            log_start = dice.randrange(core.position.offset, len(states))
    assert len(shown) == len(set(shown))
    assert shown == sorted(shown)


def _random_log(dice: random.Random) -> tuple[list[list[WatchEvent]], list[dict[str, int]]]:
    """Returns batches of events, and the state at each offset (only those at a batch's end are used)."""
    log, states, state, offset = list[list[WatchEvent]](), [dict[str, int]()], dict[str, int](), 0
    for _ in range(dice.randrange(1, 12)):
        batch: list[WatchEvent] = []
        for _ in range(dice.randrange(1, 4)):
            name = dice.choice("abc")
            if name in state and dice.random() < 0.4:
                batch.append(EntityDeleted(offset, "shard", name))
                del state[name]
            else:
                batch.append(written(offset, name))
                state[name] = offset
            offset += 1
            states.append(dict(state))
        log.append(batch)
    return log, states


def _stream(
    dice: random.Random,
    log: list[list[WatchEvent]],
    states: list[dict[str, int]],
    position: WatchPosition | None,
    log_start: int,
) -> list[WatchMessage]:
    messages, begin = list[WatchMessage](), 0 if position is None else position.offset
    if position is None or begin < log_start:
        ends = [0, *(batch[-1].offset + 1 for batch in log)]
        begin = dice.choice([end for end in ends if end >= max(begin, log_start)])
        reason = ResetReason.NO_POSITION if position is None else ResetReason.BELOW_LOG_START
        messages.append(state(begin, *states[begin].items(), reset=reason))
    for batch in log:
        if batch[0].offset >= begin:
            cut = dice.randrange(len(batch))
            messages += [part(*batch[:cut])] if cut else []
            messages.append(whole(batch[-1].offset + 1, *batch[cut:]))
    return messages


def _fold(folded: dict[str, int], batch: WatchBatch) -> dict[str, int]:
    folded = dict(folded)
    for event in batch.events:
        if isinstance(event, EntityWritten):
            folded[event.entity.name] = event.entity.version
        elif isinstance(event, EntityDeleted):
            del folded[event.name]
    return folded
