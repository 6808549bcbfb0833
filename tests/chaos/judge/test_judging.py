"""The judge, given hand-made histories: what it must not believe, and what it must not say where nobody can know."""

from types import SimpleNamespace
from typing import Any

import pytest

from metadata_log.format.errors import LogFormatError
from metadata_log.format.records import Topic
from tests.chaos.judge import judging
from tests.chaos.judge.committed import Committed
from tests.chaos.judge.final_log import Change
from tests.chaos.judge.history import Kind, Operation, Outcome, State
from tests.chaos.judge.judging import TEXTS_MAX, against, at_most, judge
from tests.chaos.judge.test_committed import left, logged


def did(
    number: int,
    kind: Kind,
    offset: int | None,
    value: State = None,
    outcome: Outcome = Outcome.DONE,
    *,
    client: int = 1,
    key: str = "alpha",
) -> Operation:
    """The `number`-th operation; each ends before the next begins."""
    return Operation(number, client, key, kind, value, outcome, 10 * number, 10 * number + 5, offset)


def test_the_truth() -> None:
    history = [did(1, Kind.CREATE, 10, 1), did(2, Kind.READ, 11, 1)]
    assert against(history, Committed([Change("alpha", 1, 10)], 0, [])) == (True, 0, [])


def test_clients_that_nobody_answered_are_a_problem() -> None:
    """Reads, and the writes by which the harness sees that the cluster is well, do not count as work."""
    history = [
        did(1, Kind.CREATE, 10, 1, client=0),
        did(2, Kind.READ, 10, 1),
        did(3, Kind.SET, None, 3, Outcome.UNKNOWN),
        did(4, Kind.CREATE, 10, 4, Outcome.EXISTS),
    ]
    (problem,) = against(history, Committed([Change("alpha", 1, 10)], 0, [])).problems
    assert "no change of any client at work" in problem


def test_without_a_log_there_is_one_line_and_no_verdict(tmp_path: Any) -> None:
    """It printed thousands of problems, one for each answer, and each of them was false."""
    cluster: Any = SimpleNamespace(findings=[], layout=SimpleNamespace(controllers=[]))
    history = [did(1, Kind.CREATE, 10, 1), *(did(n, Kind.SET, 10 + n, n) for n in range(2, 3_000))]
    judgement = judge(cluster, tmp_path, history, [])
    assert judgement.problems[0] == "no log can be read"
    assert judgement.problems[1:] == ["2,999 answers up to 3,009 cannot be judged: no log is known"]
    assert (judgement.linearizable, judgement.lost, judgement.equal) == (None, 0, False)
    assert any("linearizable" in line and line.endswith("not judged") for line in judgement.lines())


def test_where_the_log_is_known_it_is_asked() -> None:
    """Its beginning is lost: the creation and the first read cannot be judged, what was said of later offsets can."""
    log = Committed([Change("alpha", 3, 30)], 20, [])
    history = [
        did(1, Kind.CREATE, 10, 1),
        did(2, Kind.READ, 25, 1),
        did(3, Kind.SET, 30, 3),
        did(4, Kind.READ, 31, 3),
    ]
    assert against(history, log) == (
        None,
        0,
        ["2 answers up to 25 cannot be judged: the log is known from 20 on"],
    )
    lies = [did(4, Kind.READ, 31, 4), did(5, Kind.SET, 40, 5)]
    found = against([*history[:3], *lies], log)
    assert found.lost == 1
    assert ["the log up to there says 3" in each for each in found.problems].count(True) == 1
    assert ["is not in the log there" in each for each in found.problems].count(True) == 1


def test_of_each_kind_of_problem_some_are_told() -> None:
    """A thousand lost writes do not hide the one stale read; the log is whole here, and has none of the writes."""
    writes = [did(n, Kind.SET, 10 + n, n) for n in range(2, 1_000)]
    history = [did(1, Kind.CREATE, 10, 1), *writes, did(1_000, Kind.READ, 2_000, 7)]
    found = against(history, Committed([Change("alpha", 1, 10)], 0, []))
    assert found.lost == 998
    assert found.linearizable is False
    assert sum("is not in the log there" in each for each in found.problems) == TEXTS_MAX
    assert f"and {998 - TEXTS_MAX} more like these" in found.problems
    assert sum("the log up to there says 1" in each for each in found.problems) == 1


def test_at_most() -> None:
    texts = [str(n) for n in range(TEXTS_MAX)]
    assert at_most(texts) == texts
    assert at_most([*texts, "one"]) == [*texts, "and 1 more like these"]


def test_a_controller_whose_damage_was_not_mended_yet_is_no_problem_of_its_own(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run had ended for another reason amid a fault of the nemesis's; of anybody else such a directory is a finding."""

    def unreadable(node: Any, scratch: Any) -> Any:
        raise LogFormatError("its end is gone")

    monkeypatch.setattr(judging, "read_final_log", unreadable)
    nodes = [SimpleNamespace(name=f"controller-{n}") for n in (1, 2)]
    cluster: Any = SimpleNamespace(findings=[], layout=SimpleNamespace(controllers=nodes))
    first, *_ = judge(cluster, tmp_path, [], [], broken="controller-1").problems
    assert first == "controller-2 is not what a controller can start from: its end is gone"


def test_who_was_seen_equal_and_who_was_not(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a run that came to its end has seen its controllers equal; of any other the table must not say so."""
    batches = logged([Topic("t", bytes(16))])
    monkeypatch.setattr(judging, "read_final_log", lambda node, scratch: left(node.name, batches))
    nodes = [SimpleNamespace(name=f"controller-{n}") for n in (1, 2, 3)]
    cluster: Any = SimpleNamespace(findings=[], layout=SimpleNamespace(controllers=nodes))
    assert judge(cluster, tmp_path, [], [], equal_at=(1, batches[0].chain)).equal
    assert not judge(cluster, tmp_path, [], []).equal
