"""What was recorded of logs that are gone, and the one history out of all logs that are left."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metadata_log.batch import Batch
from metadata_log.files import RealDirectory
from metadata_log.image import EMPTY_IMAGE
from metadata_log.log import Log
from metadata_log.records import Record, RemoveTopic, Topic
from metadata_log.replay import Replay
from quorum.runtime.opening import LOG_DIRECTORY
from tests.chaos.final_log import NOTHING_KNOWN, FinalLog, _before, _changes, merged, record


@pytest.fixture
def node(tmp_path: Path) -> Any:
    node = SimpleNamespace(name="controller-1", data_directory=tmp_path / "data")
    (node.data_directory / LOG_DIRECTORY).mkdir(parents=True)
    return node


def written(node: Any, records: list[Record]) -> list[Batch]:
    """Each in a batch of its own, in a log that is closed again."""
    log = Log.open(RealDirectory(node.data_directory / LOG_DIRECTORY), chain=b"g" * 32)
    batches = [log.append([each], 1, number) for number, each in enumerate(records)]
    log.flush()
    log.close()
    return batches


def topics(count: int) -> list[Record]:
    return [Topic(f"t{n}", n.to_bytes(16, "big")) for n in range(1, count + 1)]


def digest_of(batches: list[Batch]) -> bytes:
    replay = Replay()
    replay.apply(batches)
    return replay.image.digest_bytes


def left(name: str, batches: list[Batch], digest: bytes) -> FinalLog:
    return FinalLog(name, batches, digest, [change for batch in batches for change in _changes(batch)])


def test_logs_that_all_begin_at_a_snapshot_are_replayed_from_what_was_recorded(node: Any, tmp_path: Path) -> None:
    """Each image came from the one wrong snapshot: their digests agreed, and the replay from 0 was compared nowhere."""
    batches = written(node, topics(20))
    record(node, tmp_path / "recorded")
    right, wrong = digest_of(batches), EMPTY_IMAGE.digest_bytes

    joined = merged([left("a", batches[12:], right), left("b", batches[8:], right)], tmp_path / "recorded")
    assert (joined.known_from, joined.problems) == (0, [])
    assert [each.end_offset for each in joined.changes] == [each.end_offset for each in batches]

    joined = merged([left("a", batches[12:], wrong), left("b", batches[8:], wrong)], tmp_path / "recorded")
    assert joined.problems == ["b has an image that is not the replay of its history from 0"]


def test_a_history_that_no_replay_takes(node: Any, tmp_path: Path) -> None:
    """It is a text beside the others, not the end of the judge."""
    batches = written(node, [*topics(5), RemoveTopic("nobody", bytes(16)), *topics(8)[5:]])
    record(node, tmp_path / "recorded")
    joined = merged([left("a", batches[7:], bytes(32))], tmp_path / "recorded")
    (problem,) = joined.problems
    assert problem.startswith("a has a history that cannot be replayed from 0")


def test_what_nobody_has_any_more(node: Any, tmp_path: Path) -> None:
    """The history begins where the oldest log does, or what was recorded before it."""
    batches = written(node, topics(20))
    digest = digest_of(batches)
    joined = merged([left("a", batches[12:], digest), left("b", batches[8:], digest)], tmp_path / "recorded")
    assert joined.known_from == batches[8].base_offset
    assert [each.end_offset for each in joined.changes] == [each.end_offset for each in batches[8:]]
    assert joined.problems == [f"nobody has the log from its beginning, the oldest is b with {joined.known_from}"]
    assert merged([], tmp_path / "recorded") == NOTHING_KNOWN


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

    assert _before(batches[-1], recorded) == batches[:-1]


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

    assert _before(batches[-1], recorded) == batches[:-1]
