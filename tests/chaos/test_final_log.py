"""What was recorded of logs that are gone, with a run that damages files under the recorder's hands."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from metadata_log.batch import Batch
from metadata_log.files import RealDirectory
from metadata_log.log import Log
from metadata_log.records import Topic
from quorum.runtime.opening import LOG_DIRECTORY
from tests.chaos.final_log import _before, record


def test_a_copy_of_a_damaged_segment_does_not_take_the_place_of_a_whole_one(tmp_path: Path) -> None:
    """All that came behind the flipped bit had been known to the recorder, then to nobody: every answer about it looked wrong."""
    node: Any = SimpleNamespace(name="controller-1", data_directory=tmp_path / "data")
    recorded, metadata = tmp_path / "recorded", tmp_path / "data" / LOG_DIRECTORY
    metadata.mkdir(parents=True)
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

    assert _before(batches[-1], recorded) == batches[:-1]
