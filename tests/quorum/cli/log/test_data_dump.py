"""`log dump` of the log of a replica: batches with their producers, and the records of clients."""

import json
from pathlib import Path

import pytest

from broker_agent.replica.log_directory import LogDirectory, ReplicaPlace
from metadata_log.disk.files import RealDirectory
from metadata_log.format.data_batch import NO_STAMP, DataRecord, ProducerStamp, pack_records
from tests.quorum.cli.log.test_log_dump import rows, run

PLACE = ReplicaPlace(bytes(range(16)), 3)


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """The directory of a replica with two batches."""
    log = LogDirectory(RealDirectory(tmp_path)).open(PLACE, wall_ms=0)
    first = [
        DataRecord(1_000, b"k", "größe".encode(), (("trace", b"\x00\x01"),)),
        DataRecord(2_000, None, b"\xff\xfe"),
    ]
    log.append(pack_records(first), ProducerStamp(7, 1, 0), 5, 0)
    log.append(pack_records([DataRecord(1_500, b"", None)]), NO_STAMP, 6, 0)
    log.close()
    return tmp_path / PLACE.name


def test_records_of_clients_are_shown(replica: Path) -> None:
    first, second = rows(replica, "--print-data")

    assert (first["base_offset"], first["end_offset"], first["epoch"], first["chain_is_valid"]) == (0, 2, 5, True)
    assert first["producer"] == {"producer_id": 7, "epoch": 1, "base_sequence": 0} and second["producer"] is None
    assert first["records"] == [
        {
            "offset": 0,
            "type": "Data",
            "data": {"timestamp_ms": 1_000, "key": "k", "value": "größe", "headers": {"trace": {"hex": "0001"}}},
        },
        {"offset": 1, "type": "Data", "data": {"timestamp_ms": 2_000, "key": None, "value": {"hex": "fffe"}}},
    ]
    assert second["records"] == [
        {"offset": 2, "type": "Data", "data": {"timestamp_ms": 1_500, "key": "", "value": None}}
    ]


def test_the_table_of_records_and_a_damaged_batch(replica: Path) -> None:
    table = run(replica, "--print-data").stdout.splitlines()
    assert [line.split("\t")[0] for line in table] == ["OFFSET", "0", "1", "2"]
    segment = next(replica.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)

    assert [row["kind"] for row in rows(replica)] == ["damage", "batch"]
    assert run(replica).exit_code == 10
    assert json.loads(run(replica, "-o", "json").stdout)["rows"][1]["base_offset"] == 2
