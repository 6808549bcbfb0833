"""The output for people: the report, the command line and its exit codes."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from snapshots.offline import __main__ as cli
from snapshots.offline import session
from snapshots.offline.audit.run import audit
from snapshots.offline.audit.summary import lines_of, summary
from snapshots.offline.commands import running, shared
from snapshots.offline.report.page import report_html
from tests.snapshots.nodes import Node, copies, flip, segments
from tests.snapshots.report.page import read_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_report_stands_alone_and_says_where(spark: "SparkSession", tmp_path: Path) -> None:
    """The page is well formed, fetches nothing and runs nothing; it has the verdict and the place of the damage."""
    node = Node(tmp_path / "node", 51).live(25)
    paths = copies(node, tmp_path)
    flip(segments(paths[1])[0], 900)
    result = audit(spark, [str(path) for path in paths])
    page = read_page(report_html(result))
    assert "Findings" in page.text
    assert "damaged-batch" in page.text
    assert segments(paths[1])[0].name in page.text
    assert "agree on every byte." not in page.text
    assert "All nodes end with the same chain: they agree on the history." in page.text
    assert {"nav", "table"} <= page.seen
    as_json = json.loads(json.dumps(summary(result)))
    assert as_json["verdict"] == "findings"
    assert [n["node"] for n in as_json["nodes"]] == ["controller 1", "controller 2", "controller 3"]
    assert any("damaged-batch: controller 2" in line for line in lines_of(result))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_commands_exit_codes(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 clean, 10 findings, 1 failed; stdout has only JSON."""

    @contextmanager
    def session(*_: object) -> Iterator[object]:
        yield spark, lambda _: None

    monkeypatch.setattr(running, "session", session)
    node = Node(tmp_path / "node", 52).live(10)
    one, other = copies(node, tmp_path, (1, 2))
    run = CliRunner().invoke
    report = tmp_path / "report.html"
    clean = run(cli.main, ["audit", str(one), str(other), "--fail-on", "error", "--report", str(report), "-o", "json"])
    assert clean.exit_code == 0, clean.output
    assert json.loads(clean.stdout)["errors"] == 0
    read_page(report.read_text())
    compacted = run(cli.main, ["compact", str(one), "--out", str(tmp_path / "out"), "-o", "json"])
    assert compacted.exit_code == 0, compacted.output
    assert json.loads(compacted.stdout)["same_as_source"] is True
    flip(segments(other)[0], 300)
    assert run(cli.main, ["audit", str(one), str(other)]).exit_code == shared.EXIT_FINDINGS
    refused = run(cli.main, ["compact", str(other), "--out", str(tmp_path / "out")])
    assert refused.exit_code == shared.EXIT_FAILED
    assert "audit the log first" in refused.output


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_record_from_the_future_ends_a_compaction_in_one_line_and_is_a_finding(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later release has written a record of a type that this release does not know.

    The compaction names the offset and the release to use instead, without the traceback of Spark's task. The audit lists it.
    """

    @contextmanager
    def session(*_: object) -> Iterator[object]:
        with running.failing_in_one_line():
            yield spark, lambda _: None

    monkeypatch.setattr(running, "session", session)
    node = Node(tmp_path / "node", 53).live(5)
    offset = node.log_unknown_record()
    words = ["--out", str(tmp_path / "out"), "--offset", str(offset + 1), "--uncommitted"]
    result = CliRunner().invoke(cli.main, ["compact", str(node.path), *words])
    assert result.exit_code == shared.EXIT_FAILED, result.output
    (line,) = result.stderr.splitlines()
    assert f"the record at offset {offset} is of type 50" in line
    assert {path.name for path in (tmp_path / "out").glob("*")} <= {".lock"}
    table = tmp_path / "findings.csv"
    found = CliRunner().invoke(cli.main, ["audit", str(node.path), "--findings", str(table)])
    assert found.exit_code == shared.EXIT_FINDINGS, found.output
    assert f"unknown-record: controller 1, {segments(node.path)[-1].name}, byte " in found.output
    assert f"> {offset}  Unknown(50)  " in found.output
    rows = [row for row in csv.DictReader(table.read_text().splitlines()) if row["rule"] == "unknown-record"]
    assert [(row["severity"], row["node"], row["offset"]) for row in rows] == [("error", "controller 1", str(offset))]


@pytest.mark.parametrize("words", [[], ["-o", "json"], ["--batches"]])
def test_a_dump_shows_a_record_from_the_future(tmp_path: Path, words: list[str]) -> None:
    """A dump shows the number of an unknown type and goes on."""
    node = Node(tmp_path / "node", 53).live(5)
    node.log_unknown_record()
    result = CliRunner().invoke(cli.main, ["dump", str(node.path), *words])
    assert (result.exit_code, result.stderr) == (0, "")
    assert ("Unknown(50)" in result.stdout) is ("--batches" not in words)


@pytest.mark.parametrize("job", [["dump"], ["audit"], ["compact", "--out", "out"], ["history", "--out", "out"]])
def test_without_the_extra_packages_there_is_one_line(tmp_path: Path, job: list[str]) -> None:
    """The extra `[spark]` is optional. Without it a job says what to install, and shows no traceback."""
    Node(tmp_path / "node", 54).live(3)
    program = (
        "import sys; sys.modules['pyarrow'] = sys.modules['pyspark'] = None; "
        f"sys.argv = ['quorum-offline', *{job!r}, {str(tmp_path / 'node')!r}]; "
        "from snapshots.offline.__main__ import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == shared.EXIT_FAILED, ran
    (line,) = ran.stderr.splitlines()
    assert "pip install '.[spark]'" in line
    assert ("`quorumctl log dump` works without it" in line) is (job == ["dump"])


def test_quorumctl_needs_none_of_the_extra_packages() -> None:
    """Neither at its start, nor for the door that Spark looks for."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'pyspark', 'pandas'])); import pyspark_metaquorum; "
        "assert not hasattr(pyspark_metaquorum, 'DefaultSource'); "
        "sys.argv = ['quorumctl', '--help']; from quorum.cli.main import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran


@pytest.mark.parametrize(
    ("job", "package", "code", "reason"),
    [
        ("dump", "pyarrow", r"raise ImportError('\n\nREAD THIS:\nlibodd.so: cannot open')", "READ THIS: libodd.so: cannot open"),
        ("dump", "pyarrow", "import pyarrow.lib", "file too short"),
        ("audit", "pyspark", "from pyspark import odd", "cannot import name 'odd' from"),
    ],
)  # fmt: skip
def test_a_package_that_cannot_be_loaded_costs_one_line(
    tmp_path: Path, job: str, package: str, code: str, reason: str
) -> None:
    """For example, the package was built for another Python. The line names the package and the reason."""
    Node(tmp_path / "node", 54).live(3)
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(code)
    (tmp_path / package / f"lib{EXTENSION_SUFFIXES[0]}").write_bytes(b"junk")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        f"sys.argv = ['quorum-offline', {job!r}, {str(tmp_path / 'node')!r}]; "
        "from snapshots.offline.__main__ import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == shared.EXIT_FAILED, ran
    (line,) = ran.stderr.splitlines()
    assert f"the package {package} cannot be loaded: " in line
    assert reason in line
    assert "pip install --force-reinstall '.[spark]'" in line


@pytest.mark.parametrize("words", [[], ["-o", "json"], ["--batches"]])
def test_a_dump_of_damage_ends_with_10(tmp_path: Path, words: list[str]) -> None:
    """As `quorumctl log dump` does, so that a script sees the damage. A part of the log without damage ends with 0."""
    node = Node(tmp_path / "node", 53).live(5)
    batches = CliRunner().invoke(cli.main, ["dump", str(node.path), "--batches", "-o", "json"]).stdout.splitlines()
    flip(segments(node.path)[0], json.loads(batches[2])["position"] + 70)
    result = CliRunner().invoke(cli.main, ["dump", str(node.path), *words])
    assert (result.exit_code, result.stderr) == (10, "quorum-offline: 1 damaged place; see the lines that say so\n")
    sound = CliRunner().invoke(cli.main, ["dump", str(node.path), "--limit", "1", *words])
    assert (sound.exit_code, sound.stderr, len(sound.stdout.splitlines())) == (0, "", 1)


def test_a_dump_of_nothing_fails_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.main, ["dump", str(tmp_path)])
    assert result.exit_code == shared.EXIT_FAILED
    assert result.output == (
        f"Error: {tmp_path} does not exist, or is empty; name the data directory of a node, with @metadata/ in it\n"
    )


@pytest.mark.parametrize("words", ["audit", "compact --out out", "history --out out", "report --out out"])
def test_a_wrong_path_fails_before_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str) -> None:
    """Four paths that people name: of a file, of the directories above, and of nothing. No file is written."""
    monkeypatch.setattr(session, "start_session", None)  # a start would be a TypeError
    node = Node(tmp_path / "dev" / "controller-1" / "data", 54).live(1)
    where = tmp_path / "here"
    where.mkdir()
    monkeypatch.chdir(where)
    for path, next_step in (
        (segments(node.path)[0], "is a file; name the data directory of a node"),
        (tmp_path / "dev", f"{node.path} is a data directory: name it"),
        (tmp_path / "dev" / "controller-1", f"{node.path} is a data directory: name it"),
        (tmp_path / "nothing", "does not exist, or is empty; name the data directory of a node"),
    ):
        result = CliRunner().invoke(cli.main, [*words.split(), str(path)])
        assert (result.exit_code, len(result.stderr.splitlines())) == (shared.EXIT_FAILED, 1), result
        assert next_step in result.stderr
    assert list(where.iterdir()) == []


def test_a_log_of_kafka_is_named_where_it_is_and_refused_where_it_has_no_use(tmp_path: Path) -> None:
    (tmp_path / "node-1" / "__cluster_metadata-0").mkdir(parents=True)
    for path, told in (
        (tmp_path, f"{tmp_path}/node-1 has a log of Apache Kafka: name it"),
        (tmp_path / "node-1", "has a log of Apache Kafka, not of metaquorum, and nothing was done; audit, history, "),
    ):
        result = CliRunner().invoke(cli.main, ["compact", "--out", str(tmp_path / "out"), str(path)])
        assert (result.exit_code, len(result.stderr.splitlines())) == (shared.EXIT_FAILED, 1), result
        assert told in result.stderr


@pytest.mark.parametrize("command", ["compact", "history"])
def test_a_wrong_path_beside_fails_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setattr(session, "start_session", None)
    node = Node(tmp_path / "node", 55).live(1)
    words = [command, str(node.path), "--out", str(tmp_path / "out"), "--beside", str(tmp_path / "nothing")]
    result = CliRunner().invoke(cli.main, words)
    assert (result.exit_code, "nothing does not exist" in result.stderr) == (shared.EXIT_FAILED, True), result


def test_without_java_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from snapshots.offline import java

    monkeypatch.setattr(java, "find_java", lambda *_: None)
    result = CliRunner().invoke(cli.main, ["audit", str(tmp_path)])
    assert result.exit_code == shared.EXIT_FAILED
    assert "Java" in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize("words", ["audit --report", "audit --summary", "audit --findings", "report --out"])
def test_a_file_that_cannot_be_written_fails_before_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    """The audit of a year takes an hour; its page had no directory, and its findings were lost. A URL is the store's matter."""
    monkeypatch.setattr(session, "start_session", None)  # a start would be a TypeError
    node = Node(tmp_path / "node", 56).live(1)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    for file, next_step in (
        (
            tmp_path / "pages" / "page.html",
            f"there is no directory {tmp_path / 'pages'}; make it, or name another file",
        ),
        (node.path, f"{node.path} is a directory; name a file in it"),
        (tmp_path / "page.html", f"this user may not write {tmp_path / 'page.html'}; allow it, or name another file"),
    ):
        result = CliRunner().invoke(cli.main, [*words.split(), str(file), str(node.path)])
        assert (result.exit_code, next_step in result.stderr) == (2, True), result.stderr
    shared.refuse_unwritable("s3://pages/x.html", None)


@pytest.mark.parametrize(
    "words", ["compact --out", "history --out", "report --out page.html --history", "import kafka --out"]
)
@pytest.mark.parametrize("place", [".", "@metadata", "out", "@metadata/out"])
def test_no_result_goes_into_the_directory_of_a_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, place: str
) -> None:
    monkeypatch.setattr(session, "start_session", None)  # a start would be a TypeError
    node = Node(tmp_path / "node", 57).live(1)
    before = sorted(node.path.rglob("*"))
    result = CliRunner().invoke(cli.main, [*words.split(), str(node.path / place), str(node.path)])
    assert (result.exit_code, "is the directory of a node, where no job writes" in result.stderr) == (2, True), result
    assert sorted(node.path.rglob("*")) == before


def test_a_user_without_a_name_gets_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A container may run under any number, and Spark's libraries end with a traceback if nobody has it."""
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    result = CliRunner().invoke(cli.main, ["audit", str(tmp_path)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (shared.EXIT_FAILED, 1), result
    assert "the user with the id 4000000001 has no name" in result.stderr
    assert "useradd --uid 4000000001" in result.stderr


def test_a_java_that_ends_at_its_start_gets_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pyspark.errors import PySparkRuntimeError

    def end(*_: object, **__: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(session, "start_session", end)
    node = Node(tmp_path / "node", 59).live(1)
    result = CliRunner().invoke(cli.main, ["audit", str(node.path)])
    assert result.exit_code == shared.EXIT_FAILED
    assert result.stderr.splitlines()[-1].startswith(
        "Error: Java ended before Spark had started; the lines above say why"
    )


def test_a_path_that_the_disk_refuses_costs_one_line() -> None:
    """A directory without the right to look into it is such a path, too."""
    result = CliRunner().invoke(cli.main, ["audit", "x" * 300])
    assert (result.exit_code, len(result.stderr.splitlines())) == (shared.EXIT_FAILED, 1), result
    assert "File name too long; the job stopped there" in result.stderr


def test_a_full_disk_behind_stdout_costs_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "snapshots.offline", "bundle", "--out", str(tmp_path)]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert ran.returncode == shared.EXIT_FAILED
    assert ran.stderr == "Error: the output cannot be written: No space left on device; the job stopped there\n"


@pytest.mark.parametrize(
    "lines",
    [
        "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
        "PermissionError: [Errno 13] No space left on device",
        "metadata_log.disk.failures.FlushFailed: /out/x: fdatasync failed (No space left on device)",
        "metadata_log.format.errors.LogFormatError: No space left on device",
    ],
)
def test_an_error_of_the_disk_in_a_task_is_one_line(lines: str) -> None:
    """A full disk, met by a task of Spark, ended a job with two tracebacks."""
    with pytest.raises(shared.Failed) as failed, running.failing_in_one_line():
        raise PySparkException(f"An exception was thrown from the Python worker:\nTraceback\n  File x\n{lines}\n")
    assert "No space left on device" in str(failed.value) and "\n" not in str(failed.value)
    with pytest.raises(PySparkException), running.failing_in_one_line():
        raise PySparkException("Traceback\nValueError: a mistake in the job keeps its traceback\n")
