"""The claims of `make rolling` can fail: wrong records, leaders and phases, without daemons."""

from quorum_rpc.v1 import admin_pb2

from tests.chaos.data.history import Fate, Send
from tests.rolling.figures import Phase, PhaseFigures, figures_of
from tests.rolling.notes import Append, Notes
from tests.rolling.restarts import balance_of

MS = 1_000_000


def send(number: int) -> Send:
    """A record of partition 0, sent at `number` and ended at once."""
    return Send("p1", 0, (f"p1-{number}",), 2 * number, 2 * number + 1, Fate.UNKNOWN)


def acknowledged(count: int) -> Notes:
    """So many records, at the offsets from 0 on."""
    notes = Notes(partitions=2)
    for number in range(count):
        notes.sent()
        notes.acknowledged(send(number), number, due_ns=0)
    return notes


def test_a_restart_without_a_loss_has_no_problem() -> None:
    notes = acknowledged(3)
    for offset in range(3):
        assert notes.unread() == {0: f"{offset} of 3"}
        assert notes.read(0, offset, f"p1-{offset}")
    assert notes.unread() == {}
    assert notes.judge() == []
    assert notes.totals == (3, 3, 3)


def test_an_acknowledged_record_that_is_not_read_is_lost() -> None:
    notes = acknowledged(2)
    notes.read(0, 0, "p1-0")
    (problem,) = notes.judge()
    assert problem.startswith("L1 partition 0: p1-1 was acknowledged at 1, and the log ends at 1")


def test_a_record_that_is_read_twice_is_found_at_either_offset() -> None:
    notes = acknowledged(1)
    assert notes.read(0, 0, "p1-0")
    assert notes.read(0, 1, "p1-0"), "another offset: the log has the record twice"
    assert not notes.read(0, 1, "p1-0"), "the same offset: the consumer got the record twice"
    assert [problem for problem in notes.judge() if "2 times" in problem or "got offset 1, and not 2" in problem]


def test_a_record_that_failed_is_a_problem_although_nothing_is_lost() -> None:
    notes = acknowledged(0)
    notes.sent()
    notes.failed(send(0), may_be_written=True)
    assert notes.judge() == ["p1 sent p1-0..p1-0 to 0: unknown"]
    notes.sent()
    assert notes.judge()[-1] == "1 records were taken by a producer and have no end"


def partitions(*leaders: int) -> list[admin_pb2.PartitionDescription]:
    """Partitions that prefer broker 101."""
    return [admin_pb2.PartitionDescription(replicas=[101, 102, 103], leader_id=leader) for leader in leaders]


def test_one_leader_of_ten_may_be_away_and_two_may_not() -> None:
    assert balance_of(partitions(*[101] * 9, 102))[101].is_balanced
    assert not balance_of(partitions(*[101] * 8, 102, 103))[101].is_balanced
    assert balance_of(partitions(*[101] * 9, 102))[102] == (0, 0, 1)


def test_an_append_counts_in_the_phase_in_which_it_was_due() -> None:
    """The second one was due at 9 ms, 1 ms before the phase `stop` began, and ended in it. The first one was due too early."""
    phases = [Phase("before", 2 * MS), Phase("empty", 10 * MS), Phase("stop", 10 * MS)]
    appends = [Append(1 * MS, 70 * MS), Append(9 * MS, 5 * MS), Append(10 * MS, 1 * MS), Append(11 * MS, 3 * MS)]
    assert figures_of(phases, 30 * MS, appends) == [
        PhaseFigures("before", 0.008, 1, 5.0, 5.0, 5.0),
        PhaseFigures("stop", 0.02, 2, 3.0, 3.0, 3.0),
    ]
