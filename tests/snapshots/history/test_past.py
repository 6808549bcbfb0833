"""A read at N is the replay of [0, N), cut to whole batches, whatever snapshots, archive and log still hold."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metadata_log.disk.files import Directory
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.records import SkippedBatch, Topic
from metadata_log.image.metadata_image import EMPTY_IMAGE
from metadata_log.store.archive import ARCHIVE_NAME
from metadata_log.store.archived.merging import merge
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, segment_names
from snapshots.format import snapshot_name
from snapshots.history.log_files import LogFiles, Spot
from snapshots.history.past import Past, finished
from snapshots.history.wanted import HistoryDamaged, OutOfReach, Shown, Wanted
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.history.nodes import PastNode, twin
from tests.snapshots.nodes import flip

LAW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def a_node(path: Path, seed: int, turns: int = 25, directory: Directory | None = None) -> PastNode:
    node = PastNode(path, seed, directory=directory)
    node.elect(1)
    node.run(3)
    node.write_out()
    node.remember()
    node.live_on(random.Random(seed), turns)
    return node


@pytest.mark.slow
@LAW
@given(seed=st.integers(0, 1 << 30))
def test_a_read_at_any_offset_or_time_is_the_replay_of_all_records_below(seed: int) -> None:
    """With transactions, skips, trims, a shortened archive, and images that were shown before."""
    dice = random.Random(seed)
    node = a_node(Path("/node"), seed, directory=MemoryDirectory("/node"))
    past, end = Past(node.metadata), node.journal.shape.end
    reach = finished(past.reach(end))
    assert past.durable_end() == reach.end == end
    known: list[Shown] = []
    for _ in range(12):
        if dice.random() < 0.7:
            wanted = Wanted(offset=dice.randint(reach.lowest, end))
        else:
            wanted = Wanted(time_ms=dice.randint(reach.lowest_time_ms, node.wall_ms + 5))
        shown = past.shown(wanted, end, dice.sample(known, dice.randint(0, len(known))))
        expected = twin(node.batches, wanted)
        assert (shown.image.provenance, shown.image.digest) == (expected.provenance, expected.digest), wanted
        shown.image.check_invariants()
        known.append(shown)


@pytest.mark.parametrize("seed", [11, 14, 19, 22, 24])
def test_a_read_of_merged_segments_is_the_read_of_the_segments(seed: int) -> None:
    """Whatever the archive has; and a reader that listed the segments before they were merged goes on."""
    node = a_node(Path("/node"), seed, directory=MemoryDirectory("/node"))
    archive, end = node.metadata.subdirectory(ARCHIVE_NAME), node.journal.shape.end
    listed = LogFiles(node.metadata)
    reach = finished(Past(node.metadata).reach(end))
    offsets = sorted(random.Random(seed).sample(range(reach.lowest, end + 1), 6))
    before = [Past(node.metadata).shown(Wanted(offset=each), end) for each in offsets]
    names = segment_names(archive)
    merge(archive, target_bytes=12 << 10)
    assert names and not segment_names(archive)
    assert finished(Past(node.metadata).reach(end)) == reach
    after = [Past(node.metadata).shown(Wanted(offset=each), end) for each in offsets]
    assert [each.image.digest for each in after] == [each.image.digest for each in before]
    assert listed.bases == LogFiles(node.metadata).bases
    for base in listed.bases:
        assert listed.chain_at(Spot(base, SEGMENT_HEADER_BYTES, base)) is not None


def test_an_offset_inside_a_batch_shows_the_image_before_the_batch(tmp_path: Path) -> None:
    node = a_node(tmp_path, 1, turns=0)
    before = node.journal.shape.end
    node.log_records(Topic("a", b"a" * 16), Topic("b", b"b" * 16))
    node.journal.flush()
    past, end = Past(node.metadata), node.journal.shape.end
    assert [past.shown(Wanted(offset=before + i), end).image.offset for i in (0, 1, 2)] == [before, before, before + 2]


def test_an_offset_inside_a_transaction_shows_the_image_before_the_transaction(tmp_path: Path) -> None:
    node = a_node(tmp_path, 2, turns=0)
    before = node.journal.shape.end
    node.transaction(commit=True)
    node.journal.flush()
    past, end = Past(node.metadata), node.journal.shape.end
    inside = past.shown(Wanted(offset=end - 1), end)
    assert (inside.image.offset, inside.end, inside.is_base) == (before, end - 1, False)
    assert past.shown(Wanted(offset=end), end).image.topic_count == inside.image.topic_count + 1


def test_offset_zero_and_a_time_before_the_cluster_show_the_empty_image(tmp_path: Path) -> None:
    node = a_node(tmp_path, 3, turns=0)
    past, end = Past(node.metadata), node.journal.shape.end
    assert past.shown(Wanted(offset=0), end).image == EMPTY_IMAGE
    assert past.shown(Wanted(time_ms=1), end).image == EMPTY_IMAGE


def test_above_the_committed_end_is_refused_although_the_log_has_the_records(tmp_path: Path) -> None:
    node = a_node(tmp_path, 4, turns=0)
    node.log_records(Topic("a", b"a" * 16))
    past, end = Past(node.metadata), node.journal.shape.end
    with pytest.raises(OutOfReach) as refused:
        past.shown(Wanted(offset=end), end - 1)
    assert refused.value.reach.end == end - 1
    assert past.shown(Wanted(time_ms=node.wall_ms + 1), end - 1).end < end


def test_below_snapshots_and_archive_is_refused_with_the_lowest_offset_that_can_be_shown(tmp_path: Path) -> None:
    node = a_node(tmp_path, 5, turns=0)
    node.mark()
    node.work(200)
    second = node.mark()
    node.work(20)
    third = node.mark()
    node.work(20)
    node.write_out()
    node.remember()
    node.store.drop([node.marks[0]])
    node.journal.drop_prefix(second)
    while node.journal.drop_oldest_archived():
        pass
    past, end = Past(node.metadata), node.journal.shape.end
    with pytest.raises(OutOfReach, match=f"each offset from {second.offset} .* to {end}") as refused:
        past.shown(Wanted(offset=second.offset - 1), end)
    with pytest.raises(OutOfReach):
        past.shown(Wanted(time_ms=refused.value.reach.lowest_time_ms - 1), end)
    for offset in (second.offset, third.offset - 1, end):
        assert past.shown(Wanted(offset=offset), end).image == twin(node.batches, Wanted(offset=offset))


def test_a_damaged_snapshot_is_passed_over_for_an_older_one(tmp_path: Path) -> None:
    node = a_node(tmp_path, 6, turns=0)
    node.mark()
    node.work(30)
    second = node.mark()
    path = node.path / "@metadata" / snapshot_name(second)
    flip(path, path.stat().st_size // 2)
    past, end = Past(node.metadata), node.journal.shape.end
    node.remember()
    assert past.shown(Wanted(offset=second.offset), end).image == twin(node.batches, Wanted(offset=second.offset))


def test_a_damaged_segment_gives_an_error_and_no_half_image(tmp_path: Path) -> None:
    node = a_node(tmp_path, 7, turns=0)
    node.work(30)
    node.write_out()
    node.journal.flush()
    first = min((node.path / "@metadata").glob("*.log"))
    flip(first, 300)
    past, end = Past(node.metadata), node.journal.shape.end
    with pytest.raises((HistoryDamaged, OutOfReach)):
        past.shown(Wanted(offset=end), end)


@pytest.mark.slow
def test_any_flipped_bit_gives_the_right_image_or_a_typed_error(tmp_path: Path) -> None:
    """In the log, in the archive, in a snapshot or in a note: a wrong image is never shown."""
    node = a_node(tmp_path, 11)
    past, end = Past(LocalDirectory(node.path).subdirectory("@metadata")), node.journal.shape.end
    dice = random.Random(1)
    reach = finished(past.reach(end))
    files = sorted(each for each in (node.path / "@metadata").rglob("*") if each.is_file())
    outcomes = {"right": 0, "refused": 0}
    for _ in range(150):
        file = dice.choice(files)
        whole = file.read_bytes()
        flip(file, dice.randrange(len(whole.rstrip(b"\x00")) or 1), dice.randrange(8))
        wanted = Wanted(offset=dice.randint(reach.lowest, end))
        try:
            assert past.shown(wanted, end).image == twin(node.batches, wanted), (file, wanted)
            outcomes["right"] += 1
        except (OutOfReach, HistoryDamaged):
            outcomes["refused"] += 1
        file.write_bytes(whole)
    assert min(outcomes.values()) > 5, outcomes
    node.journal.close()


def test_files_that_are_retired_meanwhile_are_read_where_they_are_then(tmp_path: Path) -> None:
    """The node moves segments into the archive after the first steps: the reader finds them there."""
    node = a_node(tmp_path, 8, turns=0)
    node.work(200)
    mark = node.mark()
    node.remember()
    past, end = Past(node.metadata), node.journal.shape.end
    wanted = Wanted(offset=mark.offset - 5)
    steps = past.steps(wanted, end)
    for _ in range(3):
        next(steps)
    assert len(node.journal.drop_prefix(mark)) > 2
    assert finished(steps).image == twin(node.batches, wanted)


def test_files_that_are_deleted_meanwhile_give_a_clear_refusal(tmp_path: Path) -> None:
    node = a_node(tmp_path, 9, turns=0)
    node.work(200)
    mark = node.mark()
    past, end = Past(node.metadata), node.journal.shape.end
    steps = past.steps(Wanted(offset=mark.offset - 5), end)
    for _ in range(3):
        next(steps)
    node.journal.drop_prefix(mark)
    while node.journal.drop_oldest_archived():
        pass
    with pytest.raises(OutOfReach, match=f"from {mark.offset} "):
        finished(steps)


def test_an_image_that_was_shown_before_a_skip_is_not_shown_after_the_skip(tmp_path: Path) -> None:
    """A release that can apply the batch has shown its effect. The skip says that no node has the effect."""
    node = a_node(tmp_path, 10, turns=0)
    node.remember()
    at = node.journal.shape.end
    node.log_records(Topic("doubtful", b"d" * 16))
    node.journal.flush()
    past, end = Past(node.metadata), node.journal.shape.end
    before = past.shown(Wanted(offset=end), end)
    assert before.image.topic("doubtful") is not None

    batch = node.journal.read(at, 1 << 30)[0]
    node.log_records(SkippedBatch(at, batch.epoch, batch.chain, at, batch.end_offset))
    node.journal.flush()
    now = node.journal.shape.end
    assert not before.answers(Wanted(offset=end), now)
    assert past.shown(Wanted(offset=end), now, [before]).image.topic("doubtful") is None
