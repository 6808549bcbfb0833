"""A majority is lost for good, and what is left is damaged: what a snapshot proves is kept, what cannot start does not go on."""

import errno
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metadata_log.disk.files import RealDirectory, RealFile
from metadata_log.disk.identity import read_identity
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.records import NoOp, SnapshotMark, Voters
from metadata_log.store.damage import LostTail
from metadata_log.store.log import Log
from metadata_log.store.log_notes import FlushedNote
from metadata_log.store.segment import segment_name
from quorum.recovery import carry_out
from quorum.runtime.disk import recovery_plan
from quorum.runtime.disk.format_directory import voters_record
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.format import snapshot_name
from snapshots.store import SnapshotStore
from tests.quorum.cli.recover.test_recover import (
    CONTROLLERS,
    Written,
    batches,
    broker,
    contents,
    controller,
    recover,
    recovered,
    reopened,
)
from tests.quorum.cli.recover.test_recover_killed import Killed

MARKED: Written = [
    *[(1, NoOp())] * 3,
    (1, voters_record(CONTROLLERS)),
    (1, NoOp()),
    (1, SnapshotMark("")),
    *[(1, NoOp())] * 4,
]
SNAPSHOT = OffsetAndEpoch(6, 1)
"""What the mark asks for."""


def with_snapshot(path: Path, written: Written = MARKED, *, node_id: int = 1) -> Path:
    """A controller's directory with these records and the snapshot at 6."""
    controller(path, written, node_id=node_id)
    checkpoint = broker(path.parent / f"broker of {path.name}", path) / LOG_DIRECTORY / snapshot_name(SNAPSHOT)
    (path / LOG_DIRECTORY / checkpoint.name).write_bytes(checkpoint.read_bytes())
    return path


def damage(path: Path, *offsets: Offset, history: Sequence[Batch] = ()) -> Path:
    """One bit of each of these records, in a file that begins at 0, is another one."""
    segment = path / LOG_DIRECTORY / segment_name(0)
    data = bytearray(segment.read_bytes())
    for batch in history or batches(path):
        if batch.base_offset in offsets:
            data[data.index(batch.data) + 81] ^= 1
    segment.write_bytes(data)
    return path


def note(path: Path, end: Offset | None, history: Sequence[Batch]) -> None:
    """The note of what was durable is an older one, as after a power cut, or gone."""
    (path / LOG_DIRECTORY / "flushed").unlink()
    if end is not None:
        (chain,) = (each.chain for each in history if each.end_offset == end)
        flushed = FlushedNote(RealDirectory(path / LOG_DIRECTORY))
        flushed.write(end, chain)
        flushed.close()


def begun_at_snapshot(path: Path, *, node_id: int = 1) -> Path:
    """The same history, of which the log has what is above 6 only, as on one that was far behind."""
    with_snapshot(path, node_id=node_id)
    above = batches(path)[6:]
    store = SnapshotStore(RealDirectory(path / LOG_DIRECTORY))
    log = Log.open(store.directory)
    meta = store.read_meta(SNAPSHOT)
    log.reset_to(SNAPSHOT, meta.chain, meta.timestamp_ms)
    log.append_batches(above)
    log.flush()
    log.close()
    return path


def rot(file: Path) -> bytes:
    """As in a copy of what can be read: zeros where nothing could be. Returns what was there."""
    whole = file.read_bytes()
    file.write_bytes(bytes(len(whole)))
    return whole


# --- a log that begins at a snapshot which is no more ----------------------------------------------------------------


def test_one_that_could_not_start_gives_what_it_has_and_does_not_go_on(tmp_path: Path) -> None:
    """Its log is the better one and intact, and begins where only its snapshot could say what there was before."""
    rotten = begun_at_snapshot(tmp_path / "1")
    rot(rotten / LOG_DIRECTORY / snapshot_name(SNAPSHOT))
    whole = controller(tmp_path / "2", MARKED[:9], node_id=2)
    document = recovered("--directory", rotten, "--directory", whole)
    assert (document["survivor"]["node_id"], document["kept_end_offset"], document["losses"]) == (2, 10, [])
    assert document["taken_over_from_offset"] == 9
    assert "no whole snapshot there reaches that far" in document["candidates"][0]["damage"]


def test_where_only_such_a_one_is_left_it_says_what_to_do(tmp_path: Path) -> None:
    """Also with one that cannot be given its records, because a hole is between them. A checkpoint of any node will do."""
    rotten = begun_at_snapshot(tmp_path / "1")
    checkpoint = rotten / LOG_DIRECTORY / snapshot_name(SNAPSHOT)
    whole = rot(checkpoint)
    behind = controller(tmp_path / "2", MARKED[:3], node_id=2)
    before = contents(rotten, behind)
    for words in (("--directory", rotten), ("--directory", rotten, "--directory", behind)):
        refused = recover(*words, "--yes", "--accept-loss")
        assert refused.exit_code == 4 and "Put a whole .checkpoint of its history" in refused.stderr, refused.output
    assert contents(rotten, behind).items() >= before.items()
    checkpoint.write_bytes(whole)
    assert recovered("--directory", rotten)["kept_end_offset"] == 10


def test_one_that_could_not_start_begins_anew_at_a_snapshot_that_it_is_given(tmp_path: Path) -> None:
    """A broker is ahead of it, and has a snapshot that is newer."""
    ahead = controller(tmp_path / "gone", [*MARKED, (1, SnapshotMark("")), (1, NoOp())], node_id=2)
    store = broker(tmp_path / "b", ahead)
    rotten = begun_at_snapshot(tmp_path / "1")
    rot(rotten / LOG_DIRECTORY / snapshot_name(SNAPSHOT))
    assert recovered("--directory", rotten, "--from-broker", store)["kept_end_offset"] == 12
    opened = reopened(rotten)
    assert (opened.log.shape.start.offset, opened.log.end) == (11, 14)
    opened.log.close()


# --- a log that is damaged below its snapshot ------------------------------------------------------------------------


@pytest.mark.parametrize("noted", [10, 7, 5, 1, None])
@pytest.mark.parametrize("offset", [0, 2, 5])
def test_what_goes_on_at_the_snapshot_is_kept(tmp_path: Path, offset: Offset, noted: Offset | None) -> None:
    """The log is broken below its snapshot: what stands above is proven by it, and may have been acknowledged."""
    path = with_snapshot(tmp_path / "c")
    history = batches(path)
    damage(path, offset)
    note(path, noted, history)
    report = recover("--directory", path, "--dry-run")
    assert "Its log below 6 is damaged, and is deleted" in report.stdout and "LOST FOR CERTAIN" not in report.stdout
    document = recovered("--directory", path)
    assert (document["kept_end_offset"], document["losses"]) == (10, [])
    opened = reopened(path)
    assert (opened.log.shape.start.offset, opened.log.end, opened.log.lost) == (6, 12, None)
    assert opened.log.read(6, 1 << 20, until=10) == history[6:]
    opened.log.close()


@pytest.mark.parametrize("offset", [6, 8])
@pytest.mark.parametrize("noted", [10, 7, None])
def test_what_stands_behind_a_gap_above_the_snapshot_is_lost_and_agreed_to(
    tmp_path: Path, offset: Offset, noted: Offset | None
) -> None:
    """Nothing proves what was in between. It was durable, as far as the note says, or without one what is there.

    Two damaged places of one file are one damaged range, as at a start. If it contains the snapshot's end, only the snapshot
    is left."""
    path = with_snapshot(tmp_path / "c")
    history = batches(path)
    damage(path, 2, offset)
    note(path, noted, history)
    refused = recover("--directory", path, "--yes")
    if noted == 7 < offset:  # as torn by a power cut
        assert refused.exit_code == 0, refused.output
        return
    assert refused.exit_code == 2 and "LOST FOR CERTAIN" in refused.stdout, refused.output
    kept = 6 if noted == 10 else offset
    assert recovered("--directory", path, "--accept-loss")["kept_end_offset"] == kept


@pytest.mark.parametrize("noted", [10, None])
def test_killed_before_the_plan_is_there_it_is_short_of_what_it_had(
    tmp_path: Path, noted: Offset | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records behind the damage are dropped, and 10 had been durable: before the plan is there, the log still has its end,
    or a start knows that the end is lost. What is dropped is kept aside, and the same command completes the rest."""
    path = with_snapshot(tmp_path / "c")
    history = batches(path)
    damage(path, 2, 8)
    note(path, noted, history)

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(recovery_plan, "save", kill)
        recover("--directory", path, "--yes", "--accept-loss")
    started = RealDirectory(shutil.copytree(path, tmp_path / "started"))
    identity = read_identity(started)
    assert identity is not None
    opened = open_directory(started, identity, NodeConfig(), lambda: bytes(16))
    opened.log.close()
    lost = opened.disk_trust.lost
    assert (opened.log.end, len(opened.log.damage), lost and lost.end) == ((10, 1, None) if noted else (8, 1, 10))

    assert recover("--directory", path, "--yes").exit_code == 2
    assert recovered("--directory", path, "--accept-loss")["kept_end_offset"] == (6 if noted else 8)
    opened = reopened(path)
    opened.log.close()
    assert opened.disk_trust.lost is None
    (aside,) = (path / LOG_DIRECTORY).glob("*.damaged")
    assert history[9].data in aside.read_bytes()


@pytest.mark.parametrize("noted", [10, 5])
def test_what_is_intact_behind_damage_counts_as_lost_whatever_the_note_says(tmp_path: Path, noted: Offset) -> None:
    """There is no snapshot that would lead over it. A start would keep it, and wait for the others to fill the gap."""
    path = controller(tmp_path / "c", MARKED)
    history = batches(path)
    damage(path, 2)
    note(path, noted, history)
    report = json.loads(recover("--directory", path, "--dry-run", "-o", "json").stdout)
    assert [each["durable_end_offset"] for each in report["losses"]] == [10]
    assert recover("--directory", path, "--yes").exit_code == 2
    assert recovered("--directory", path, "--accept-loss")["kept_end_offset"] == 2


@pytest.mark.parametrize("count", [0, 5, 8])
def test_a_whole_one_goes_on_and_is_given_what_goes_on_at_the_others_snapshot(tmp_path: Path, count: int) -> None:
    """What it has not, the snapshot has: where its log ends below that, it begins anew there."""
    damaged = damage(with_snapshot(tmp_path / "1"), 2)
    whole = controller(tmp_path / "2", MARKED[:count], node_id=2)
    document = recovered("--directory", damaged, "--directory", whole)
    assert (document["survivor"]["node_id"], document["kept_end_offset"], document["losses"]) == (2, 10, [])
    opened = reopened(whole)
    assert (opened.log.shape.start.offset, opened.log.end) == (0 if count == 8 else 6, 12)
    opened.log.close()


def test_one_that_begins_in_the_others_gap_begins_anew_at_its_snapshot(tmp_path: Path) -> None:
    """They have no place in common that either could prove, and that contradicts nothing."""
    ahead = controller(tmp_path / "1", [*MARKED, (1, SnapshotMark("")), (1, NoOp())])
    (checkpoint,) = (broker(tmp_path / "b", ahead) / LOG_DIRECTORY).glob("*.checkpoint")
    (ahead / LOG_DIRECTORY / checkpoint.name).write_bytes(checkpoint.read_bytes())
    damage(ahead, 0, 9)
    behind = begun_at_snapshot(tmp_path / "2", node_id=2)
    document = recovered("--directory", ahead, "--directory", behind)
    assert (document["survivor"]["node_id"], document["kept_end_offset"]) == (2, 12)


def test_damage_below_the_beginning_of_a_log_is_nobodys_loss(tmp_path: Path) -> None:
    """It stands in the file in which the log begins, at its snapshot."""
    path = with_snapshot(tmp_path / "c")
    history = batches(path)
    log = Log.open(RealDirectory(path / LOG_DIRECTORY))
    log.drop_prefix(SNAPSHOT)
    log.close()
    damage(path, 0, history=history)
    document = recovered("--directory", path)
    assert (document["kept_end_offset"], document["losses"]) == (10, [])


def test_voters_that_the_snapshot_knows_are_newer_than_those_before_the_damage(tmp_path: Path) -> None:
    """The address is the one that the last record said, which is damaged; an older one stands before it."""
    voters = voters_record(CONTROLLERS)
    moved = voters._replace(
        voters=tuple(
            each._replace(endpoints=tuple(endpoint._replace(port=endpoint.port + 100) for endpoint in each.endpoints))
            for each in voters.voters
        )
    )
    path = with_snapshot(
        tmp_path / "c", [(1, voters), *[(1, NoOp())] * 3, (1, moved), (1, SnapshotMark("")), (1, NoOp())]
    )
    damage(path, 4)
    assert recovered("--directory", path)["survivor"]["endpoint"] == "127.0.0.1:9101"


def test_a_log_that_its_snapshot_has_replaced_goes(tmp_path: Path) -> None:
    """Killed between a download and the log's reset: a start would let the log go, and with it that the survivor votes alone."""
    later: Written = [*MARKED[:3], *[(2, record) for _, record in MARKED[3:6]]]
    leader = controller(tmp_path / "gone", later, node_id=2)
    checkpoint = broker(tmp_path / "b", leader) / LOG_DIRECTORY / snapshot_name(OffsetAndEpoch(6, 2))
    path = controller(tmp_path / "c", [*MARKED[:3], *[(1, NoOp())] * 9])
    (path / LOG_DIRECTORY / checkpoint.name).write_bytes(checkpoint.read_bytes())
    assert recovered("--directory", path)["kept_end_offset"] == 6
    opened = reopened(path)
    assert (opened.log.shape.start.offset, opened.log.end) == (6, 8)
    opened.log.close()


# --- a log that ends below its snapshot ------------------------------------------------------------------------------


def without_end(path: Path, end: Offset, tail: str = "cut") -> Path:
    """The disk has lost the records from `end` on, or the whole file (`gone`). The snapshot is left."""
    segment = path / LOG_DIRECTORY / segment_name(0)
    data = segment.read_bytes()
    at = data.index(batches(path)[end].data)
    left = {"cut": b"", "zeros": bytes(len(data) - at), "garbage": b"Z" * (len(data) - at)}
    if tail == "gone":
        segment.unlink()
    else:
        segment.write_bytes(data[:at] + left[tail])
    return path


def with_lost_end(path: Path, end: Offset, noted: Offset, tail: str) -> Path:
    """A directory with a snapshot below 6. The disk has lost the records from `end` on; the `flushed` note says `noted`."""
    history = batches(with_snapshot(path))
    note(without_end(path, end, tail), noted, history)
    return path


@pytest.mark.parametrize("tail", ["cut", "zeros", "garbage", "gone"])
@pytest.mark.parametrize("end, noted", [(5, 6), (3, 6), (3, 4), (0, 6), (0, 2)])
def test_a_log_that_has_lost_its_end_below_its_snapshot_begins_there(
    tmp_path: Path, end: Offset, noted: Offset, tail: str
) -> None:
    """The snapshot holds the state of all durable records, so the recovery loses none and asks for no loss."""
    path = with_lost_end(tmp_path / "c", end, noted, tail)
    report = recover("--directory", path, "--dry-run").stdout
    assert "Its log below 6 is damaged, and is deleted" in report and "LOST FOR CERTAIN" not in report
    document = recovered("--directory", path)
    assert (document["kept_end_offset"], document["losses"]) == (6, [])
    opened = reopened(path)
    assert (opened.log.shape.start.offset, opened.log.end, opened.log.lost) == (6, 8, None)
    assert opened.load is not None and opened.load.end == SNAPSHOT
    opened.log.close()


@pytest.mark.parametrize("tail", ["cut", "zeros", "garbage", "gone"])
@pytest.mark.parametrize("end, noted", [(3, 10), (3, 7), (0, 7), (8, 10)])
def test_a_durable_record_beyond_the_snapshot_is_given_up_only_if_it_is_said(
    tmp_path: Path, end: Offset, noted: Offset, tail: str
) -> None:
    """The snapshot does not hold the records from 6 on, and another node may count on these records."""
    path = with_lost_end(tmp_path / "c", end, noted, tail)
    before = contents(path)
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 2 and "LOST FOR CERTAIN" in refused.stdout, refused.output
    assert contents(path) == before
    kept = 6 if tail == "gone" else max(end, 6)
    assert recovered("--directory", path, "--accept-loss")["kept_end_offset"] == kept


@pytest.mark.parametrize("noted", [10, None])
def test_intact_records_beyond_the_snapshot_that_nothing_proves_are_a_loss(
    tmp_path: Path, noted: Offset | None
) -> None:
    """Records 3 to 7 are damaged, 8 and 9 are intact: the snapshot covers records 3 to 5 only."""
    path = with_snapshot(tmp_path / "c")
    history = batches(path)
    note(damage(path, 3, 4, 5, 6, 7), noted, history)
    before = contents(path)
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 2 and "LOST FOR CERTAIN: from 6 to 10" in refused.stdout, refused.output
    assert contents(path) == before
    assert recovered("--directory", path, "--accept-loss")["kept_end_offset"] == 6


def test_without_log_and_note_the_snapshot_alone_is_not_enough(tmp_path: Path) -> None:
    """Nothing says whether durable records followed the snapshot. A start refuses this directory too."""
    path = with_snapshot(tmp_path / "c")
    note(without_end(path, 0, "gone"), None, ())
    refused = recover("--directory", path, "--yes", "--accept-loss")
    assert refused.exit_code == 4 and "there is no log" in refused.stderr, refused.output
    with pytest.raises(CorruptLog, match="there is no log"):
        reopened(path)


@pytest.mark.parametrize("tail", ["cut", "garbage", "gone"])
def test_a_lone_voter_that_does_not_start_without_its_end_begins_at_its_snapshot(tmp_path: Path, tail: str) -> None:
    """The start asks for an operator, and the operator's command must not answer that the node can start."""
    alone = Voters(voters_record(CONTROLLERS).voters[:1])
    path = with_snapshot(tmp_path / "c", [*MARKED[:3], (1, alone), *MARKED[4:]])
    history = batches(path)
    note(without_end(path, 3, tail), 6, history)
    with pytest.raises(LostTail):
        reopened(path)
    document = recovered("--directory", path)
    assert (document["kept_end_offset"], document["losses"]) == (6, [])
    again = recover("--directory", path, "--yes")
    assert again.exit_code == 4 and "is the only voter already" in again.stderr


# --- a disk that fails while it gives --------------------------------------------------------------------------------


def test_a_source_whose_disk_fails_while_it_gives_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read when this was planned. A copy of what can be read now completes it, if that is enough."""
    ahead = controller(tmp_path / "gone", MARKED, node_id=2)
    store, behind = broker(tmp_path / "b", ahead), controller(tmp_path / "c", MARKED[:4])
    read_at = RealFile.read_at
    take_over = carry_out._take_over

    def unreadable(self: RealFile, position: int, length: int) -> bytes:
        if store in self._path.parents:
            raise OSError(errno.EIO, "Input/output error", str(self._path))
        return read_at(self, position, length)

    def fail_from_here(*arguments: Any) -> None:
        monkeypatch.setattr(RealFile, "read_at", unreadable)
        take_over(*arguments)

    monkeypatch.setattr(carry_out, "_take_over", fail_from_here)
    failed = recover("--directory", behind, "--from-broker", store, "--yes")
    assert failed.exit_code == 1 and "run the same command again" in failed.stderr, failed.output
    assert f"{store} gives its log up to 4 only, and gave it up to 10 before" in failed.stderr
    monkeypatch.undo()
    assert recovered("--directory", behind, "--from-broker", store)["kept_end_offset"] == 10
