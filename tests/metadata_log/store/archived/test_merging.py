"""Archived segments in larger files: read as before, never lost, and damage is found."""

import copy
import json
import zlib
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import google_crc32c
import pytest
from click.testing import CliRunner

from metadata_log.disk.files import Directory, RealDirectory
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Topic
from metadata_log.store.archive import ARCHIVE_NAME, Archive
from metadata_log.store.archived import merged_file, merging
from metadata_log.store.archived.merged_file import BLOCK_BYTES, Index, MergedFile, Range, merged_name, range_of
from metadata_log.store.archived.merging import CannotMerge, merge
from metadata_log.store.archived.view import ArchiveView, archived_batches
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import base_offset_of, segment_names
from snapshots.offline.__main__ import main
from tests.sim.world.disk import MemoryDirectory, PowerCut

CONFIG = LogConfig(segment_bytes=4 << 10, tail_bytes=1 << 10)


def a_log(directory: Directory, batches: int = 60) -> Log:
    """A log whose batches are in the archive, all but the last ones."""
    log = Log.open(directory, config=CONFIG)
    for number in range(batches):
        log.append([Topic(f"topic-{number:05}-{at}", bytes([at]) * 16) for at in range(8)], 1, 1_000 * number)
    log.flush()
    log.drop_prefix(OffsetAndEpoch(log.end - 8, 1))
    return log


def an_archive(path: str = "/node", batches: int = 60) -> MemoryDirectory:
    directory = MemoryDirectory(path)
    a_log(directory, batches).close()
    return directory.subdirectory(ARCHIVE_NAME)


def contents(archive: Directory) -> dict[str, bytes]:
    """Each segment in the view, with its bytes."""
    view, found = ArchiveView(archive), {}
    for name in segment_names(view):
        with closing(view.open(name)) as file:
            found[name] = file.read_at(0, file.size())
    return found


def flipped(archive: MemoryDirectory, name: str, position: int) -> MemoryDirectory:
    archive = copy.deepcopy(archive)
    archive.flip_bit(name, position)
    return archive


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_bytes", [100, 1_000, 4 << 10, BLOCK_BYTES])
def test_merged_segments_read_as_before(monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    """Byte for byte at any position, whatever the blocks are."""
    monkeypatch.setattr(merged_file, "BLOCK_BYTES", block_bytes)
    archive = an_archive()
    before, batches = contents(archive), list(archived_batches(archive))
    result = merge(archive)
    assert not segment_names(archive) and not result.skipped
    assert sum(each.segments for each in result.written) == len(before) > 3
    assert sum(each.raw_bytes for each in result.written) == sum(map(len, before.values()))
    assert contents(archive) == before and list(archived_batches(archive)) == batches
    dice, view = Random(1), ArchiveView(archive)
    for name, data in before.items():
        with closing(view.open(name)) as file:
            assert file.size() == len(data)
            for _ in range(50):
                position, length = dice.randint(0, len(data) + 10), dice.randint(0, 3_000)
                assert file.read_at(position, length) == data[position : position + length]


def test_a_reader_that_had_listed_the_segments_finds_them_again() -> None:
    """They are merged between its list and its open."""
    archive = an_archive()
    view, before = ArchiveView(archive), contents(archive)
    names = segment_names(view)
    merge(archive)
    for name in names:
        with closing(view.open(name)) as file:
            assert file.read_at(0, file.size()) == before[name]
    with pytest.raises(FileNotFoundError):
        view.open("00000000000000000003.log")


def test_a_part_of_the_offsets() -> None:
    """The batches that touch the range, from segments and merged files."""
    archive = an_archive()
    batches = list(archived_batches(archive))
    merge(archive, keep=2)
    assert segment_names(archive)
    for since, until in ((0, 8), (5, 100), (137, 138), (200, 10_000), (10_000, 20_000)):
        wanted = [each for each in batches if each.end_offset > since and each.base_offset < until]
        assert list(archived_batches(archive, since, until)) == wanted


# --- merging ---------------------------------------------------------------------------------------------------------


def test_files_have_about_the_target_and_the_newest_segments_stay() -> None:
    archive = an_archive(batches=150)
    before = contents(archive)
    result = merge(archive, keep=3, target_bytes=12 << 10)
    assert segment_names(archive) == sorted(before)[-3:]
    assert len(result.written) > 2 and all(each.raw_bytes <= 12 << 10 for each in result.written)
    ranges = [range_of(each.name) for each in result.written]
    assert all(low and high and low.end == high.base for low, high in pairwise(ranges))
    assert contents(archive) == before
    assert merge(archive, keep=3) == merging.Result()


def test_the_node_archives_more_meanwhile_and_the_next_run_takes_it() -> None:
    directory = MemoryDirectory("/node")
    log = a_log(directory)
    archive = directory.subdirectory(ARCHIVE_NAME)
    merge(archive)
    for number in range(30):
        log.append([Topic(f"later-{number:05}-{at}", bytes([at]) * 16) for at in range(8)], 1, 100_000)
    log.flush()
    log.drop_prefix(OffsetAndEpoch(log.end - 8, 1))
    log.close()
    before = contents(archive)
    assert len(merge(archive).written) == 1 and contents(archive) == before
    ends = [range_of(name) for name in archive.names()]
    assert len(ends) == 2 and ends[0] and ends[1] and ends[0].end == ends[1].base


def test_damage_ends_a_file_and_stays_for_the_audit() -> None:
    """What is before and behind it is merged; nothing of the damaged segment is changed."""
    archive = an_archive()
    names = segment_names(archive)
    archive.flip_bit(names[2], 700)
    before = contents(archive)
    result = merge(archive)
    assert [name for name, _ in result.skipped] == [names[2]] and "damage at byte" in result.skipped[0][1]
    assert segment_names(archive) == [names[2]] and len(result.written) == 2
    assert contents(archive) == before


def test_a_segment_of_another_history_is_not_merged_behind_this_one() -> None:
    archive = an_archive()
    names = segment_names(archive)
    other = MemoryDirectory("/other")
    log = Log.open(other, config=CONFIG, chain=b"x" * 32)
    for number in range(60):
        log.append([Topic(f"topic-{number:05}-{at}", bytes([at]) * 16) for at in range(8)], 1, 1_000 * number)
    log.close()
    archive.write_atomic(names[1], other.read(names[1], 1 << 20))
    result = merge(archive)
    assert [name for name, _ in result.skipped] == [names[1]]
    assert "does not continue the segment before" in result.skipped[0][1]


@pytest.mark.slow
def test_the_power_goes_at_any_change_of_the_disk() -> None:
    """No batch is lost, and the next run ends as if undisturbed."""
    before = an_archive(batches=25)
    wanted, batches = contents(before), list(archived_batches(before))
    undisturbed = copy.deepcopy(before)
    first = undisturbed.operations
    merge(undisturbed, target_bytes=8 << 10)
    changes = undisturbed.operations - first
    for number in range(1, changes + 1):
        for seed in range(3):
            now = copy.deepcopy(before)
            now.cut_power_after(number)
            with pytest.raises(PowerCut):
                merge(now, target_bytes=8 << 10)
            now = now.kill() if seed == 0 else now.crash(Random(number * 3 + seed))
            assert contents(now) == wanted and list(archived_batches(now)) == batches, number
            merge(now, target_bytes=8 << 10)
            assert contents(now) == wanted and not segment_names(now), number
            assert not any(name.endswith(".part") for name in now.names())


def test_no_room_is_said_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose disk is full refuses writes."""
    archive = an_archive()
    before = archive.names()
    monkeypatch.setattr(MemoryDirectory, "free_bytes", lambda _: merging.RESERVE_BYTES)
    with pytest.raises(CannotMerge, match="bytes are free"):
        merge(archive)
    assert archive.names() == before


def test_a_disk_that_writes_other_bytes_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part is read again before a segment goes."""
    archive = an_archive()
    before = contents(archive)
    monkeypatch.setattr(merging, "compressed", lambda raw: zlib.compress(raw[:-1] + b"\xff"))
    with pytest.raises(CorruptLog):
        merge(archive)
    assert contents(archive) == before and not any(map(range_of, archive.names()))


def test_a_segment_in_both_forms_with_other_bytes_stays() -> None:
    archive = an_archive()
    names = segment_names(archive)
    data = archive.read(names[1], 1 << 20)
    merge(archive)
    archive.write_atomic(names[1], data[:-1])
    result = merge(archive)
    assert [name for name, _ in result.skipped] == [names[1]] and "with other bytes" in result.skipped[0][1]
    assert segment_names(archive) == [names[1]] and not result.written


# --- the node's limits -----------------------------------------------------------------------------------------------


def test_limits_count_merged_files_and_delete_the_oldest_first() -> None:
    archive = an_archive(batches=150)
    merge(archive, keep=2, target_bytes=12 << 10)
    limited = Archive(archive)
    # `Archive` looks into the directory `archive` of a log's directory.
    parent = MemoryDirectory("/parent")
    for name in archive.names():
        parent.subdirectory(ARCHIVE_NAME).write_atomic(name, archive.read(name, 1 << 20))
    limited = Archive(parent)
    names = limited.names()
    assert len(names) > 4 and [base_offset_of(each) is None for each in names[-3:]] == [True, False, False]
    total = sum(parent.subdirectory(ARCHIVE_NAME).size(name) for name in names)
    assert limited.trim(total - 1, 0) == names[:1]
    assert limited.trim(total, 70_000), "their records are older"
    assert limited.drop_oldest() and len(limited.names()) < len(names) - 2


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_bit_of_a_merged_file_is_covered() -> None:
    """A flipped bit is an error that names the file, or a file that is not listed: never other records."""
    archive = an_archive(batches=20)
    wanted = contents(archive)
    (written,) = merge(archive).written
    for position in range(0, archive.size(written.name), 3):
        with pytest.raises(LogFormatError, match=written.name):
            list(archived_batches(flipped(archive, written.name, position)))
        view = ArchiveView(damaged := flipped(archive, written.name, position))
        if view.exists(min(wanted)):
            with pytest.raises(CorruptLog, match=written.name):
                contents(damaged)
        else:
            assert view.damaged.keys() == {written.name}


def index_of(**changes: Any) -> Index:
    return Index(Range(0, 8), [0], [100], [(20, 1)])._replace(**changes)


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        (index_of(range=Range(0, 9)), "other offsets than the file's name"),
        (index_of(bases=[1]), "do not begin at the file's base offset"),
        (index_of(bases=[0, 0], sizes=[50, 50]), "not in order"),
        (index_of(bases=[0, 8], sizes=[50, 50]), "go beyond its end"),
        (index_of(sizes=[0]), "no bytes, or too many"),
        (index_of(sizes=[1 << 62]), "no bytes, or too many"),
        (index_of(sizes=[BLOCK_BYTES + 1]), "number of blocks"),
        (index_of(blocks=[(0, 1)]), "a block has no bytes"),
        (index_of(blocks=[(1 << 31, 1)]), "a block has no bytes, or too many"),
        (index_of(blocks=[(21, 1)]), "do not fill the file"),
        (index_of(bases=[], sizes=[], blocks=[]), "do not begin"),
    ],
)
def test_an_index_with_a_good_checksum_is_believed_only_if_it_fits(index: Index, problem: str) -> None:
    directory, name = MemoryDirectory("/a"), merged_name(Range(0, 8))
    directory.write_atomic(name, bytes(20) + index.pack())
    with pytest.raises(CorruptLog, match=problem):
        MergedFile(directory, name)


def test_a_block_that_grows_is_not_expanded_further_than_the_index_says() -> None:
    """A stream of a few bytes can expand to gigabytes."""
    bomb = zlib.compress(bytes(50 << 20))
    assert len(bomb) < merged_file.STORED_BYTES_MAX
    index = index_of(blocks=[(len(bomb), google_crc32c.value(bomb))])
    directory, name = MemoryDirectory("/a"), merged_name(Range(0, 8))
    directory.write_atomic(name, bomb + index.pack())
    with closing(MergedFile(directory, name).open(0)) as file, pytest.raises(CorruptLog, match="does not have the 100"):
        file.read_at(0, 100)


def test_a_newer_version_is_not_damage() -> None:
    directory, name = MemoryDirectory("/a"), merged_name(Range(0, 8))
    data = bytearray(bytes(20) + index_of().pack())
    data[-39] = 2
    data[-4:] = google_crc32c.value(bytes(data[20:-4])).to_bytes(4, "big")
    directory.write_atomic(name, bytes(data))
    with pytest.raises(LogFormatError, match="version 2; this release reads 1"):
        MergedFile(directory, name)


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_merges_and_says_what_stays(tmp_path: Path) -> None:
    metadata = tmp_path / "data" / "@metadata"
    metadata.mkdir(parents=True)
    a_log(RealDirectory(metadata)).close()
    archive = RealDirectory(metadata / ARCHIVE_NAME)
    before: dict[str, bytes] = contents(archive)
    batches: list[Batch] = list(archived_batches(archive))
    ran = CliRunner().invoke(main, ["archive", "merge", str(tmp_path / "data"), "--keep", "1", "-o", "json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["written"][0]["segments"] == len(before) - 1 and document["skipped"] == []
    assert contents(archive) == before and list(archived_batches(archive)) == batches
    ran = CliRunner().invoke(main, ["archive", "merge", str(metadata), "--keep", "1"])
    assert ran.exit_code == 0 and "nothing to merge" in ran.stdout
    ran = CliRunner().invoke(main, ["archive", "merge", str(tmp_path)])
    assert ran.exit_code == 2 and "is no directory of a node: it has no @metadata" in ran.stderr
    (tmp_path / "new" / "@metadata").mkdir(parents=True)
    ran = CliRunner().invoke(main, ["archive", "merge", str(tmp_path / "new")])
    assert ran.exit_code == 2 and "has no archive directory: the node has archived nothing yet" in ran.stderr
