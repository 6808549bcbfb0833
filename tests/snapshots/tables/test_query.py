"""`quorum-offline query`: questions in Spark SQL over a log and over the tables of a history, as a person types them."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from snapshots.offline.__main__ import main
from snapshots.offline.commands import running
from snapshots.offline.history.views import register
from snapshots.offline.query.answers import QuestionRefused, ask, table_lines
from tests.snapshots.kafka.given import nodes, unpack
from tests.snapshots.nodes import Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTAGES = (
    "SELECT topic, partition, duration_ms DIV 1000 AS seconds, to_time, {} AS nothing FROM outages ORDER BY seconds"
)
Query = Callable[[Sequence[str | Path]], Result]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def views(spark: "SparkSession", story: Path) -> None:
    register(spark, str(story / "out"))


@pytest.fixture
def query(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Query:
    """The command, with the session of all tests."""

    @contextmanager
    def session(*_: object) -> Iterator[object]:
        with running.failing_in_one_line():
            yield spark, lambda _: None

    monkeypatch.setattr(running, "session", session)
    return lambda words: CliRunner().invoke(main, ["query", *map(str, words)])


def test_a_question_to_a_history_is_answered_for_people_and_for_machines(story: Path, query: Query) -> None:
    text = query([story / "out", OUTAGES.format("NULL")])
    assert text.stdout.splitlines() == [
        "topic     partition  seconds  to_time              nothing",
        "payments  0          1220     2026-11-20 12:50:20  -",
        "payments  0          1700     2026-11-09 03:40:20  -",
    ]
    table = query([story / "out", OUTAGES.format("NULL"), "-o", "csv"])
    assert list(csv.reader(table.stdout.splitlines())) == [
        ["topic", "partition", "seconds", "to_time", "nothing"],
        ["payments", "0", "1220", "2026-11-20 12:50:20", ""],
        ["payments", "0", "1700", "2026-11-09 03:40:20", ""],
    ]
    document = json.loads(query([story / "out", OUTAGES.format("array(1)"), "--limit", "1", "-o", "json"]).stdout)
    assert document == {
        "schema_version": 1,
        "columns": ["topic", "partition", "seconds", "to_time", "nothing"],
        "rows": [
            {
                "topic": "payments",
                "partition": 0,
                "seconds": 1220,
                "to_time": "2026-11-20T12:50:20.000Z",
                "nothing": [1],
            }
        ],
        "more": True,
    }


def test_a_question_to_a_log_names_its_views(story: Path, query: Query, tmp_path: Path) -> None:
    """Also from a file, and with two views, which end at the same offset."""
    file = tmp_path / "question.sql"
    file.write_text(
        "-- how often did the leader of each topic's partitions change?\n"
        "SELECT t.name, count(*) AS changes FROM PartitionChange p JOIN topic t USING (topic_id)\n"
        "WHERE p.leader IS NOT NULL GROUP BY ALL ORDER BY t.name;\n"
    )
    answer = query([story / "log", "--file", file])
    assert answer.exit_code == 0, answer.output
    assert [line.split() for line in answer.stdout.splitlines()] == [
        ["name", "changes"],
        ["orders", "8"],
        ["payments", "4"],
    ]


def test_a_question_to_a_log_of_kafka_is_answered(query: Query, tmp_path: Path) -> None:
    """The log is transcribed, as far as a majority of the controllers has it."""
    first, second, _ = (unpack("upgraded-4.2.0", node, tmp_path) for node in nodes("upgraded-4.2.0"))
    question = (
        "SELECT name, count(*) AS partitions FROM Partition JOIN topic USING (topic_id) GROUP BY name ORDER BY name"
    )
    answer = query([first, "--beside", second, question])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.split() == [
        "name",
        "partitions",
        "bills",
        "3",
        "careful",
        "2",
        "orders",
        "5",
        "short-lived",
        "3",
    ]


def test_an_answer_that_is_cut_says_so(story: Path, query: Query) -> None:
    answer = query([story / "log", "SELECT offset FROM records ORDER BY offset", "--limit", "2"])
    assert answer.stdout.split() == ["offset", "0", "1"]
    assert answer.stderr.splitlines() == ["there are more rows than 2; --limit shows more"]


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("SELECT tpic FROM outages", "name `tpic` cannot be resolved. Did you mean one of the following? [`topic`"),
        ("SELECT tpic FROM outages", "(line 1, column 8)"),
        ("SELECT 1 FROM nothing", "The table or view `nothing` cannot be found"),
        (
            "SELECT topic FROM outages\nORDER topic BY",
            "Syntax error at or near 'topic' (line 2, column 7)",
        ),
        ("SELECT 1 / partition FROM outages", "Division by zero"),
        ("INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT 1", "this is a command, and only questions are answered"),
        ("WITH one AS (SELECT 1) INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT * FROM one", "this is a command"),
        ("DROP VIEW outages", "this is a command, and only questions are answered; nothing was changed"),
        ("", "Syntax error at or near end of input"),
        ("SELECT date_format(from_time, 'YYYY') FROM outages", "Spark >= 3.0: Fail to recognize 'YYYY' pattern"),
    ],
)
def test_what_is_no_question_is_refused_in_one_line(
    spark: "SparkSession", views: None, capfd: pytest.CaptureFixture[str], tmp_path: Path, question: str, reason: str
) -> None:
    """A command of Spark SQL would run at once. Spark's own account of a wrong question would fill the screen."""
    with pytest.raises(QuestionRefused, match=re.escape(reason)) as refused:
        ask(spark, question.format(out=tmp_path / "written"), 10, as_text=True)
    assert len(str(refused.value).splitlines()) == 1
    assert "Traceback" not in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert ask(spark, "SELECT count(*) FROM outages", 10, as_text=True).rows == [("2",)]


def test_a_wrong_question_is_wrong_usage(story: Path, query: Query) -> None:
    answer = query([story / "out", "DROP VIEW outages"])
    assert answer.exit_code == 2
    assert answer.stderr == (
        "Error: this is a command, and only questions are answered; nothing was changed. "
        "Without a question the command lists the views and their columns\n"
    )


@pytest.mark.parametrize("question", ["", " \n;\n"])
def test_an_empty_question_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, question: str
) -> None:
    """A shell makes one of a variable that is not set."""
    monkeypatch.setattr(running, "session", None)  # a start would be a TypeError
    answer = CliRunner().invoke(main, ["query", str(tmp_path), question])
    assert answer.exit_code == 2
    assert answer.stderr == (
        "Error: the question is empty, and nothing was asked. Without a question the command lists the views and their columns\n"
    )


def test_a_question_may_have_a_comment_behind_its_end(spark: "SparkSession") -> None:
    """A file of questions often has one. A semicolon in a text is no end."""
    for question in ("SELECT '; --x' AS a; -- why\n", "SELECT '; --x' AS a;\n/* why */ ;\n"):
        assert ask(spark, question, 10, as_text=True).rows == [("; --x",)]
    with pytest.raises(QuestionRefused, match="this is a command"):
        ask(spark, "DROP VIEW IF EXISTS nothing; -- why", 10, as_text=True)


def test_without_a_question_the_views_are_listed(story: Path, query: Query) -> None:
    of_history = json.loads(query([story / "out", "-o", "json"]).stdout)["views"]
    assert of_history["availability"] == ["broker_id", "date", "available_ms", "known_ms", "percent"]
    of_csv = list(csv.reader(query([story / "log", "-o", "csv"]).stdout.splitlines()))
    assert of_csv[0] == ["view", "column"]
    assert ["Topic", "topic_id"] in of_csv
    of_log = query([story / "log"])
    (line,) = (line for line in of_log.stdout.splitlines() if line.startswith("Topic "))
    assert line.split(maxsplit=1) == ["Topic", "node, offset, epoch, timestamp, name, topic_id"]


def test_the_files_of_a_run_that_died_are_no_answer(story: Path, query: Query, tmp_path: Path) -> None:
    """A run dies after it has moved its files, and before its baseline counts them. They were in the answer until the next run.

    In the example one of two tables has no rows that count.
    """
    out = tmp_path / "out"
    shutil.copytree(story / "out", out)
    moved = next((out / "changes").rglob("run-1-*.parquet"))
    shutil.copy(moved, moved.with_name("run-2-00000.parquet"))
    for counted in (out / "isr_changes").rglob("run-1-*.parquet"):
        counted.rename(counted.with_name("run-2-00000.parquet"))
    question = "SELECT count(*) AS n, count(day) AS days, max(offset) AS at FROM {}"
    assert query([out, question.format("changes")]).stdout == query([story / "out", question.format("changes")]).stdout
    assert query([out, question.format("isr_changes")]).stdout.split() == ["n", "days", "at", "0", "0", "-"]


def test_two_columns_of_one_name_are_a_table_and_no_document(story: Path, query: Query) -> None:
    """A JSON object would keep one of them."""
    assert query([story / "out", "SELECT 1 AS a, 2 AS a"]).stdout.split() == ["a", "a", "1", "2"]
    answer = query([story / "out", "SELECT 1 AS a, 2 AS a", "-o", "json"])
    assert answer.exit_code == 2
    assert "two columns have the name a; give one of them another name with AS" in answer.stderr


def test_a_log_of_which_nothing_is_proven_is_refused(query: Query, tmp_path: Path) -> None:
    """The hint names the options of the command."""
    node = Node(tmp_path / "node", 7).live(3)
    for snapshot in node.path.rglob("*.checkpoint"):
        snapshot.unlink()
    answer = query([node.path, "SELECT offset FROM records"])
    assert answer.exit_code == 1
    assert "is proven to be committed" in answer.stderr
    assert "with --beside, or accept the risk with --uncommitted" in answer.stderr
    assert query([node.path, "SELECT 1 AS x FROM records LIMIT 1", "--uncommitted"]).stdout.split() == ["x", "1"]


def test_a_place_without_a_log_is_refused(query: Query, tmp_path: Path) -> None:
    for question in ([], ["SELECT 1"]):
        answer = query([tmp_path, *question])
        assert answer.exit_code == 1, answer.output
        assert str(tmp_path) in answer.stderr
        assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "told"), [(b"\xff", "is no text in UTF-8"), (b"-" * ((1 << 20) + 1), "has more than 1,048,576 bytes")]
)
def test_a_file_that_is_no_question_is_refused(query: Query, tmp_path: Path, content: bytes, told: str) -> None:
    """A wrong file, such as an archive, ended in a traceback."""
    file = tmp_path / "question.sql"
    file.write_bytes(content)
    answer = query([tmp_path, "--file", file])
    assert answer.exit_code == 2
    assert answer.stderr.startswith(f"Error: {file} {told}, and nothing was asked; ")


def test_a_value_cannot_end_a_line_or_steer_a_terminal() -> None:
    rows = [("first\nsecond", None), ("\x1b[31mred", "ü")]
    assert list(table_lines(["name", "x"], rows)) == [r"name           x", r"first\nsecond  -", r"\x1b[31mred    ü"]
