"""The nemesis damages files in the way that it says: otherwise a chaos run would show nothing."""

import random
from pathlib import Path
from typing import cast

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Topic, Voters
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of, segment_names
from quorum.core.protocol.effects import ElectionState
from quorum.runtime.disk import election_file
from snapshots.format import SnapshotMeta
from snapshots.store import SnapshotStore
from snapshots.writer import write_records
from tests.chaos import damage
from tests.chaos.cluster import ChaosCluster
from tests.chaos.nemesis import Nemesis, lose_end
from tests.sim.world.disk import MemoryDirectory

CONFIG = LogConfig(segment_bytes=1_500, tail_bytes=400)
SEEDS = 100


def written() -> tuple[MemoryDirectory, Log]:
    """A log of several segments, all of it durable."""
    directory = MemoryDirectory()
    log = Log.open(directory, config=CONFIG)
    for number in range(30):
        log.append([Topic(f"topic-{number}", bytes(16))], 1 + number // 10, 1_000 + number)
    log.flush()
    return directory, log


def test_rot_hits_what_was_durable() -> None:
    """The log notices it at the next opening, is whole in spite of it (then it was the note that rotted, or a header that
    can be made anew), or says that its end is lost. And it never believes bytes that were not written."""
    met = {"inside": 0, "end": 0, "none": 0}
    for seed in range(SEEDS):
        directory, log = written()
        batches = list(log.read(0, 1 << 20))
        assert damage.rot_log(directory, random.Random(seed))
        again = Log.open(directory, config=CONFIG, accept_loss=True)
        if again.lost is not None:
            met["end"] += 1
            assert again.shape.end < log.shape.end
        elif again.damage:
            met["inside"] += 1
            assert again.shape.end == log.shape.end
        else:
            met["none"] += 1
            assert list(again.read(0, 1 << 20)) == batches
    assert met["inside"] > SEEDS // 2, met
    assert met["end"] and met["none"], met


def test_a_lost_end_is_below_what_was_durable() -> None:
    directory, log = written()
    assert damage.cut_end(directory, random.Random(1))
    again = Log.open(directory, config=CONFIG, accept_loss=True)
    assert again.lost is not None
    assert again.lost.end == log.shape.end > again.shape.end


def test_a_torn_tail_is_above_what_was_durable() -> None:
    """After any torn end the next opening has all flushed records, and knows of no loss."""
    for seed in range(SEEDS):
        directory, log = written()
        flushed = log.shape.end
        log.append([Topic("unflushed", bytes(16))], 4, 2_000)
        assert damage.tear(directory, random.Random(seed))
        again = Log.open(directory, config=CONFIG)
        assert again.lost is None
        assert not again.damage
        assert again.shape.end in (flushed, flushed + 1)


def test_a_tail_behind_rot_is_not_torn() -> None:
    """A batch below the log's start has rotted, and nobody repairs it, because nobody needs it. The fault took the place for a
    write that the kill had cut short, and destroyed all that was flushed behind it.
    """
    for seed in range(SEEDS):
        directory, log = written()
        (*_, name) = segment_names(directory)
        directory.flip_bit(name, SEGMENT_HEADER_BYTES + 20, 3)
        before = directory.read(name, 1 << 20)
        assert log.shape.flushed_end > (base_offset_of(name) or 0)
        assert not damage.tear(directory, random.Random(seed))
        assert directory.read(name, 1 << 20) == before


def snapshot_at(directory: MemoryDirectory, offset: int) -> None:
    write_records(directory, SnapshotMeta(OffsetAndEpoch(offset, 1), 1_000, bytes(32), Voters(()), 1), [])


def test_the_snapshot_that_a_log_stands_on_is_left_alone() -> None:
    """Nothing else could be put in its place: that is another fault, and the node says so and starts no more."""
    directory, log = written()
    assert not damage.rot_snapshot(directory, random.Random(1))
    snapshot_at(directory, 10)
    assert damage.rot_snapshot(directory, random.Random(1)), "the log has all that is in it"
    assert SnapshotStore(directory).newest_valid() is None

    directory, log = written()
    snapshot_at(directory, 10)
    log.note_snapshot(OffsetAndEpoch(10, 1))
    log.drop_prefix(OffsetAndEpoch(10, 1))
    assert not damage.rot_snapshot(directory, random.Random(1))
    snapshot_at(directory, 20)
    assert damage.rot_snapshot(directory, random.Random(1))
    assert SnapshotStore(directory).newest_valid() is not None


@pytest.mark.slow
def test_a_vote_is_forgotten_whatever_has_become_of_it(tmp_path: Path) -> None:
    """No bit of the file may flip and leave a vote that would be believed."""
    directory = RealDirectory(tmp_path)
    for seed in range(SEEDS):
        election_file.save(directory, ElectionState(epoch=7, voted_for=None, leader_id=2))
        assert damage.forget_vote(directory, random.Random(seed))
        try:
            assert election_file.load(directory) is None
        except election_file.ForgottenVote:
            continue


async def test_a_fault_that_found_no_victim_forbids_no_later_one() -> None:
    """1. A fault asks for the leader, to damage it, and the question fails.
    2. Nothing was damaged, so the next fault may damage a controller.
    """

    async def no_answer() -> int | None:
        raise TimeoutError

    nemesis = Nemesis(cast(ChaosCluster, None), no_answer)
    with pytest.raises(TimeoutError):
        await lose_end(nemesis, random.Random(1), 0.0)
    assert nemesis.broken is None
