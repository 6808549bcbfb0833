"""Random histories of a consumer keep the laws of `history`, and each planted bug breaks one."""

from collections.abc import Callable
from typing import Any

import pytest

from clients.consumer.assigned import AssignedPartition
from clients.consumer.commits import Commits
from clients.consumer.consumer_core import ConsumerCore
from clients.consumer.errors import LogTruncated
from clients.consumer.in_flight import Entry, InFlight
from clients.consumer.outcomes import Outcomes
from clients.consumer.positions import Position
from clients.consumer.records import RecordBuffer
from tests.clients.consumer.history import Broken, History


def play(seed: int, *, has_unclean: bool = True, events: int = 80) -> History:
    history = History(seed, has_unclean=has_unclean)
    try:
        history.play(events)
    except AssertionError as e:
        raise AssertionError(f"seed {seed}: {e}") from e
    return history


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_any_history_keeps_the_laws(first: int) -> None:
    delivered = truncations = restarts = 0
    for seed in range(first, first + 25):
        history = play(seed)
        delivered += history.delivered
        truncations += history.truncations
        restarts += history.restarts
    assert delivered > 2_000
    assert truncations >= 5
    assert restarts >= 5


def test_without_unclean_elections_no_truncation_is_reported() -> None:
    for seed in range(10):
        assert play(seed, has_unclean=False).truncations == 0


# --- planted bugs ----------------------------------------------------------------------------------------------------


def forgets_epochs(part: AssignedPartition, first: int, end: int, epoch: int) -> None:
    part.position = Position(end)


def compares_ends_only(part: AssignedPartition, end: Any) -> LogTruncated | None:
    assert part.position is not None
    if end is not None and end.offset >= part.position.offset:
        part.is_checked = True
        return None
    return LogTruncated(part.key, part.position.offset, None if end is None else end.offset)


def remembers_one_epoch(part: AssignedPartition, first: int, end: int, epoch: int) -> None:
    part.position = Position(end, epoch)


def believes_old_answers(entry: Entry, number: int) -> bool:
    entry.asker.asked = number
    return True


def keeps_the_buffer(part: AssignedPartition) -> None:
    part.version += 1
    part.asked = None
    part._check()


def trusts_a_new_leader(part: AssignedPartition) -> None:
    part.is_checked = part.position is not None


def keeps_records_below_the_position(buffer: RecordBuffer, offset: int, limit: int) -> Any:
    return TAKE(buffer, buffer._batches[0].base_offset, limit)


def commits_at_once(commits: Commits, partition: Any, position: Any) -> None:
    commits._taken[partition] = position


def forgets_seeks(commits: Commits, partition: Any, position: Any) -> None:
    if position is not None:
        commits._taken[partition] = position


def waits_for_ever(core: ConsumerCore, now_ms: int) -> list[Any]:
    return []


def fetches_the_same_again(part: AssignedPartition) -> int:
    assert part.position is not None
    return part.position.offset


def does_nothing(*_: Any) -> None:
    return None


TAKE = RecordBuffer.take
MUTANTS: dict[str, tuple[type, str, Callable[..., Any] | property]] = {
    "a position forgets its epoch": (AssignedPartition, "advance", forgets_epochs),
    "a truncation is told by the end of the epoch alone": (AssignedPartition, "compare", compares_ends_only),
    "only the last epoch is remembered": (AssignedPartition, "advance", remembers_one_epoch),
    "answers from before a seek count": (Entry, "counts", believes_old_answers),
    "the buffer survives seeks and leaders": (AssignedPartition, "_renew", keeps_the_buffer),
    "a new leader is believed": (AssignedPartition, "_check", trusts_a_new_leader),
    "records below the position are delivered": (RecordBuffer, "take", keeps_records_below_the_position),
    "records are committed when they are handed out": (Commits, "hand_out", commits_at_once),
    "a seek leaves the handed-out position": (Commits, "move", forgets_seeks),
    "two fetches are in flight to a leader": (InFlight, "is_busy", lambda *_: False),
    "late requests are waited for": (ConsumerCore, "_drop_requests", waits_for_ever),
    "a fetch does not go on behind the buffer": (AssignedPartition, "fetch_offset", property(fetches_the_same_again)),
    "a position out of range stays": (Outcomes, "_out_of_range", does_nothing),
    "a reset commits nothing and forgets nothing": (Commits, "move", does_nothing),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_each_planted_bug_breaks_a_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, bug = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, bug)
    for seed in range(200):
        try:
            History(seed).play(80)
        except Broken:
            return
        except AssertionError:
            continue  # an assert of the consumer itself is no law
    raise LookupError("no history finds this bug")
