"""The records of logs that are gone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import Batch
from metadata_log.format.records import Topic
from metadata_log.store.log import Log
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from tests.chaos.judge.committed import _before
from tests.chaos.judge.final_log import record


@pytest.fixture
def node(tmp_path: Path) -> Any:
    node = SimpleNamespace(name="controller-1", data_directory=tmp_path / "data")
    (node.data_directory / LOG_DIRECTORY).mkdir(parents=True)
    return node


def test_a_copy_of_a_damaged_segment_does_not_take_the_place_of_a_whole_one(node: Any, tmp_path: Path) -> None:
    """All that came behind the flipped bit had been known to the recorder, then to nobody: every answer about it looked wrong."""
    recorded, metadata = tmp_path / "recorded", tmp_path / "data" / LOG_DIRECTORY
    log = Log.open(RealDirectory(metadata), chain=b"g" * 32)
    batches: list[Batch] = []

    def write(count: int) -> None:
        for _ in range(count):
            n = len(batches)
            batches.append(log.append([Topic(f"t{n}", n.to_bytes(16, "big"))], 1, n))
        log.flush()

    write(20)
    record(node, recorded)
    write(20)
    record(node, recorded)  # continues the first copy, and takes its place
    assert len(list(recorded.rglob("*.log"))) == 1

    (segment,) = metadata.glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    record(node, recorded)
    segment.unlink()  # its disk is full, or it begins anew at a snapshot
    record(node, recorded)
    log.close()

    assert _before(batches[-1], [], recorded) == batches[:-1]


def test_what_stands_behind_a_flipped_bit_in_a_copy_is_known(node: Any, tmp_path: Path) -> None:
    """The segment was mended, and went before it was copied again: what was newest stood in the damaged copy alone."""
    recorded, metadata = tmp_path / "recorded", tmp_path / "data" / LOG_DIRECTORY
    log = Log.open(RealDirectory(metadata), chain=b"g" * 32)
    batches = [log.append([Topic(f"t{n}", n.to_bytes(16, "big"))], 1, n) for n in range(20)]
    log.flush()
    record(node, recorded)
    batches += [log.append([Topic(f"t{n}", n.to_bytes(16, "big"))], 1, n) for n in range(20, 40)]
    log.flush()
    log.close()
    (segment,) = metadata.glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    record(node, recorded)
    segment.unlink()

    assert _before(batches[-1], [], recorded) == batches[:-1]
