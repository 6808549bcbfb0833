"""`quorum-offline dump` of a log of Kafka: what it prints, how it ends, and what it needs."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import google_crc32c
import pytest
from click.testing import CliRunner, Result

from snapshots.offline import __main__ as cli
from snapshots.offline.commands import shared
from snapshots.offline.kafka.batches import HEADER_BYTES
from tests.snapshots.kafka.given import METADATA, unpack

SEGMENT = f"{0:020}.log"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return unpack("elr-4.1.1", "node-1", tmp_path)


def dump(*words: object) -> Result:
    return CliRunner().invoke(cli.main, ["dump", *map(str, words)])


def change(node: Path, at: int, data: bytes) -> None:
    with (node / METADATA / SEGMENT).open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_records_as_text_and_as_json(node: Path) -> None:
    """A log directory is known as Kafka's without an option. Both forms have the same records."""
    text, as_json = dump(node), dump(node, "-o", "json")
    assert (text.exit_code, as_json.exit_code, text.stderr) == (0, 0, "")
    lines, records = text.stdout.splitlines(), [json.loads(line) for line in as_json.stdout.splitlines()]
    assert len(lines) == len(records) > 200
    assert lines[4] == '4  1  FeatureLevelRecord v0  {"name": "metadata.version", "featureLevel": 27}'
    assert records[4] | {"timestamp_ms": 0, "position": 0} == {
        "file": SEGMENT,
        "position": 0,
        "offset": 4,
        "epoch": 1,
        "timestamp_ms": 0,
        "type": "FeatureLevelRecord",
        "version": 0,
        "data": {"name": "metadata.version", "featureLevel": 27},
        "error": None,
    }
    assert [record["offset"] for record in records] == list(range(len(records)))


def test_batches_and_ranges(node: Path) -> None:
    lines = dump(node / METADATA, "--batches", "--from-offset", "5", "--to-offset", "12").stdout.splitlines()
    assert [line.split("  ")[1].split("@")[0] for line in lines] == ["[3,11)", "[11,12)"]
    (batch,) = map(json.loads, dump(node, "--batches", "-o", "json", "--limit", "1").stdout.splitlines())
    assert (batch["base_offset"], batch["control"], batch["producer_id"], batch["error"]) == (0, True, -1, None)
    records = dump(node, "--from-offset", "5", "--to-offset", "8").stdout.splitlines()
    assert [line.split()[0] for line in records] == ["5", "6", "7"]
    assert len(dump(node, "--limit", "3").stdout.splitlines()) == 3


def test_one_snapshot(node: Path) -> None:
    """A file is named instead of the directory."""
    name = min(path.name for path in (node / METADATA).glob("*.checkpoint") if not path.name.startswith("0" * 20))
    result = dump(node / METADATA / name)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert ("SnapshotHeaderRecord" in lines[0], "SnapshotFooterRecord" in lines[-1]) == (True, True)


@pytest.mark.parametrize("words", [[], ["-o", "json"], ["--batches"], ["--batches", "-o", "json"]])
def test_damage_is_shown_and_ends_with_10(node: Path, words: list[str]) -> None:
    """The lines before and behind the damage are there, and the part without damage ends with 0."""
    sound = dump(node, *words).stdout.splitlines()
    place = [json.loads(line) for line in dump(node, "--batches", "-o", "json").stdout.splitlines()][3]
    change(node, place["position"] + 70, b"\xff")
    result = dump(node, *words)
    assert (result.exit_code, result.stderr) == (10, "quorum-offline: 1 damaged place; see the lines that say so\n")
    lines = result.stdout.splitlines()
    (bad,) = [line for line in lines if line not in sound]
    assert str(place["position"]) in bad and "the checksum of the batch is wrong" in bad
    assert lines[0] == sound[0] and lines[-1] == sound[-1]
    assert dump(node, "--limit", "1", *words).exit_code == 0


@pytest.mark.parametrize("words", [[], ["--batches"]])
def test_a_torn_tail_is_shown_and_is_no_damage(node: Path, words: list[str]) -> None:
    segment = node / METADATA / SEGMENT
    segment.write_bytes(segment.read_bytes()[:-3])
    result = dump(node, *words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "TORN TAIL" in result.stdout.splitlines()[-1]
    assert json.loads(dump(node, *words, "-o", "json").stdout.splitlines()[-1])["torn"] is True


def reseal(batch: bytearray) -> bytes:
    batch[17:21] = struct.pack(">I", google_crc32c.value(bytes(batch[21:])))
    return bytes(batch)


def test_a_record_of_a_later_kafka_is_reported(node: Path) -> None:
    """The type becomes 90, with a right checksum. The record is shown with its bytes; that is no damage."""
    batches = [json.loads(line) for line in dump(node, "--batches", "-o", "json").stdout.splitlines()]
    place = next(batch for batch in batches if not batch["control"] and batch["end_offset"] - batch["base_offset"] == 1)
    data = bytearray((node / METADATA / SEGMENT).read_bytes()[place["position"] :][: place["bytes"]])
    value_at = data.index(b"\x01", HEADER_BYTES + 6)  # behind the lengths and deltas: the frame version of the value
    data[value_at + 1] = 90
    change(node, place["position"], reseal(data))
    result = dump(node)
    assert result.exit_code == 0
    assert "1 record of a later Kafka" in result.stderr
    (line,) = [line for line in result.stdout.splitlines() if "Unknown(90 v" in line]
    assert '{"_value": "AVo' in line
    (record,) = [json.loads(line) for line in dump(node, "-o", "json").stdout.splitlines() if '"Unknown(90' in line]
    assert record["offset"] == place["base_offset"]


def test_a_damaged_record_under_a_right_checksum_is_damage(node: Path) -> None:
    place = [json.loads(line) for line in dump(node, "--batches", "-o", "json").stdout.splitlines()][1]
    data = bytearray((node / METADATA / SEGMENT).read_bytes()[place["position"] :][: place["bytes"]])
    data[-1] = 0x7F  # the number of headers of the last record
    change(node, place["position"], reseal(data))
    result = dump(node)
    assert result.exit_code == 10
    (line,) = [line for line in result.stdout.splitlines() if "DAMAGE" in line]
    assert line.startswith(f"{place['end_offset'] - 1}  DAMAGE  {SEGMENT}:{place['position']}  ")


def test_the_format_can_be_said(node: Path, tmp_path: Path) -> None:
    """A file whose first batch is damaged is not known as Kafka's: the message names the option."""
    assert dump(node, "--format", "kafka", "--limit", "1").exit_code == 0
    own = dump(node, "--format", "own")
    assert (own.exit_code, "has a log of Apache Kafka, not of metaquorum" in own.stderr) == (shared.EXIT_FAILED, True)
    change(node, 16, b"\x07")
    segment = node / METADATA / SEGMENT
    unsure = dump(segment)
    assert (unsure.exit_code, "--format kafka" in unsure.stderr) == (2, True)
    assert dump(segment, "--format", "kafka").exit_code == 10
    assert dump(node).exit_code == 10
    nothing = dump(tmp_path, "--format", "kafka")
    assert (nothing.exit_code, "neither a log directory of Kafka" in nothing.stderr) == (shared.EXIT_FAILED, True)


def test_an_option_for_our_own_log_is_refused(node: Path) -> None:
    result = dump(node, "--all")
    assert (result.exit_code, "Kafka notes no durable end" in result.stderr) == (2, True)


@pytest.mark.slow
def test_neither_spark_nor_arrow_nor_grpc_is_needed(node: Path) -> None:
    """The same program without the extra packages. (A dump of metaquorum's own log needs pyarrow.)"""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'pyspark', 'pandas', 'grpc'])); "
        f"sys.argv = ['quorum-offline', 'dump', {str(node)!r}, '--limit', '1']; "
        "from snapshots.offline.__main__ import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("0  1  LeaderChangeMessage")
