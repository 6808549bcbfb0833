"""`log dump` shows what is in the files, and does not stop at what is broken in them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from metadata_log.disk.files import RealDirectory
from metadata_log.format import batch as batches
from metadata_log.format.codec import encode_record
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import LeaderChange, Topic, UserScramCredential
from metadata_log.store.archived.merging import merge
from metadata_log.store.log import Log
from quorum.cli.main import cli
from tests.quorum.cli.shapes import shape


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["log", "dump", *[str(argument) for argument in arguments]])


def rows(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run(*arguments, "-o", "jsonl").stdout.splitlines()]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A log of four batches, ten records in all."""
    directory = RealDirectory(tmp_path / "@metadata")
    log = Log.open(directory, start=OffsetAndEpoch(0, 0), chain=bytes(32))
    log.append([LeaderChange(1, (1,), (1,))], epoch=1, wall_ms=1_000)
    for number in range(3):
        topics = [Topic(f"t{number}-{i}", bytes([number, i]) * 8) for i in range(3)]
        log.append(topics, epoch=1, wall_ms=2_000 + number)
    log.close()
    return next((tmp_path / "@metadata").glob("*.log"))


def test_every_batch_is_a_row(segment: Path) -> None:
    """Offsets, epoch, chain; from a file, its directory or the node's directory alike."""
    found = rows(segment)
    assert [(row["base_offset"], row["end_offset"]) for row in found] == [(0, 1), (1, 4), (4, 7), (7, 10)]
    assert all(row["chain_is_valid"] for row in found)
    assert found == rows(segment.parent) == rows(segment.parent.parent)


def test_a_merged_file_has_the_rows_of_its_segments(segment: Path) -> None:
    """Under the names of the segments; a damaged block is a row that names the merged file."""
    before = rows(segment)
    archive = segment.parent / "archive"
    archive.mkdir()
    segment.rename(archive / segment.name)
    (written,) = merge(RealDirectory(archive)).written
    assert rows(archive) == rows(archive / written.name) == before
    content = bytearray((archive / written.name).read_bytes())
    content[30] ^= 1
    (archive / written.name).write_bytes(content)
    damaged = run(archive, "-o", "jsonl")
    (row,) = [json.loads(line) for line in damaged.stdout.splitlines()]
    assert (damaged.exit_code, row["kind"], row["file"]) == (10, "damage", written.name)
    (archive / written.name).write_bytes(content[:-1])
    (row,) = rows(archive)
    assert (row["kind"], row["file"]) == ("damage", written.name)


def test_the_documents_shape_is_fixed(segment: Path) -> None:
    """Also with records: each with its offset, type and data."""
    document = json.loads(run(segment, "--print-data", "-o", "json").stdout)
    assert document["schema_version"] == 2
    assert shape(document["rows"][1]) == {
        "kind": "str", "file": "str", "position": "int", "base_offset": "int", "end_offset": "int", "epoch": "int",
        "record_count": "int", "is_control": "bool", "first_timestamp_ms": "int", "last_timestamp_ms": "int", "bytes": "int",
        "chain": "str", "chain_is_valid": "bool",
        "records": [{"offset": "int", "type": "str", "version": "int", "data": {"name": "str", "topic_id": "str"}}],
    }  # fmt: skip


def test_a_range_of_offsets(segment: Path) -> None:
    """Batches that lie partly inside are shown whole; a table of records has those inside alone."""
    assert [row["base_offset"] for row in rows(segment, "--from-offset", 5, "--to-offset", 7)] == [4]
    table = run(segment, "--print-data", "--from-offset", 5, "--to-offset", 7).stdout.splitlines()
    assert [line.split("\t")[0] for line in table] == ["OFFSET", "5", "6"]


def test_a_damaged_batch_is_shown_and_passed_over(segment: Path) -> None:
    """What comes behind it is still shown, its chain unchecked; the exit code says that something is wrong."""
    second = rows(segment)[1]["position"]
    assert isinstance(second, int)
    data = bytearray(segment.read_bytes())
    data[second + 90] ^= 1
    segment.write_bytes(data)
    found = rows(segment)
    assert [row["kind"] for row in found] == ["batch", "damage", "batch", "batch"]
    assert found[1]["position"] == second
    assert [row.get("chain_is_valid") for row in found[2:]] == [None, True]
    result = run(segment, "--print-data")
    assert result.exit_code == 10
    assert "DAMAGE" in result.stdout


def test_a_cut_file_and_a_foreign_one(segment: Path, tmp_path: Path) -> None:
    """The torn end is a row; a file that is no segment at all is one damage."""
    last = rows(segment)[3]["position"]
    assert isinstance(last, int)
    segment.write_bytes(segment.read_bytes()[: last + 100])
    assert [row["kind"] for row in rows(segment)] == ["batch", "batch", "batch", "damage"]
    foreign = tmp_path / "x.log"
    foreign.write_bytes(b"not a log at all" * 100)
    assert {row["kind"] for row in rows(foreign)} == {"damage"}


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    """A directory without any of our files."""
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "neither segments nor snapshots" in result.stderr


def test_each_record_has_its_time(segment: Path) -> None:
    """The question "when was broker 7 fenced?" is answered by the log: a record has the time of its batch."""
    header, first, second, *_ = run(segment, "--print-data").stdout.splitlines()
    assert header.split("\t") == ["OFFSET", "EPOCH", "TIME", "TYPE", "DATA"]
    assert first.split("\t")[2] == "1970-01-01T00:00:01.000+00:00"
    assert second.split("\t")[2] == "1970-01-01T00:00:02.000+00:00"


def test_a_batch_that_cannot_be_decoded_is_shown_as_far_as_possible(tmp_path: Path) -> None:
    """Its CRC is right, so the writer had a bug. The bytes of records that cannot be decoded are shown in hexadecimal."""
    good, bad = encode_record(Topic("a", bytes(16))), encode_record(Topic("b", bytes(16))).replace(b"\xa1b", b"\xc3")
    secret = encode_record(UserScramCredential("alice", 1, b"salt", b"s" * 32, b"t" * 32, 4096)).replace(
        b"\xa5alice", b"\xc3"
    )
    log = Log.open(RealDirectory(tmp_path / "@metadata"), start=OffsetAndEpoch(0, 0), chain=bytes(32))
    batch = batches.encode(
        good + bad + secret + good, base_offset=0, epoch=1, record_count=4, first_timestamp_ms=1, last_timestamp_ms=1,
        is_control=False, previous_chain=bytes(32),
    )  # fmt: skip
    log.append_batches([batch])
    log.close()
    (row,) = rows(tmp_path, "--print-data")
    assert "record 1 of the batch" in str(row["reason"])
    records = row["records"]
    assert isinstance(records, list)
    assert [each["type"] for each in records] == ["Topic", "Undecodable", "Undecodable", "Topic"]
    assert [each["offset"] for each in records] == [0, 1, 2, 3]
    assert (records[1]["data"]["hex"], records[2]["data"]["hex"]) == (bad.hex(), "redacted")
    table = run(tmp_path, "--print-data")
    assert table.exit_code == 10
    assert bad.hex() in table.stdout and "s" * 32 not in table.stdout


@pytest.mark.parametrize("named", [".", "__cluster_metadata-0"])
def test_a_log_of_kafka_is_another_commands_matter(tmp_path: Path, named: str) -> None:
    """Its files looked like damage: `batch format version 0`."""
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "bootstrap.checkpoint").write_bytes(bytes(200))
    result = run(tmp_path / named)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"`quorum-offline dump {tmp_path / named}` shows it" in result.stderr
