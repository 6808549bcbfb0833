"""What a controller does not open, although every byte of it is intact; and what it opens under another id."""

import json
import zlib
from contextlib import closing
from random import Random

import pytest

from metadata_log.disk.ballast import BALLAST_NAME
from metadata_log.disk.failures import FlushFailed
from metadata_log.disk.files import Directory
from metadata_log.disk.identity import Identity, read_identity
from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey, uuid_text
from metadata_log.format.records import NoOp, Voters
from metadata_log.store.archive import ARCHIVE_NAME
from metadata_log.store.log import Log
from metadata_log.store.log_notes import FLUSHED_NAME, LOST_NAME, START_NAME, read_start, write_start
from metadata_log.store.segment import segment_name, segment_names
from quorum.core.protocol.disk_trust import FULL, DiskTrust, Lost
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import FetchRequest, FetchResponse, VoteRequest, VoteResponse
from quorum.core.protocol.problem import ProblemCode
from quorum.runtime.disk import election_file
from quorum.runtime.disk.open_directory import Opened, open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.world import RaftRequest, SnapshotWanted
from snapshots.format import BOOTSTRAP_END, snapshot_name
from snapshots.store import genesis
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

OURS = voters_of([1])


def _used_disk() -> Directory:
    """The disk of a cluster that has elected and committed something."""
    disk = formatted_disk(OURS)
    LoneNode(disk).run_until_idle()
    return disk


def _identity(cluster_id: str = CLUSTER_ID, genesis_chain: bytes = b"") -> Identity:
    return Identity(cluster_id, 1, directory_id(1), 1, "controller", genesis_chain=genesis_chain)


def test_its_own_directory_opens() -> None:
    """The counter-example to the other stories."""
    opened = open_directory(_used_disk(), _identity(genesis_chain=genesis(CLUSTER_ID, OURS)), NodeConfig())
    assert opened.log.shape.end > 0


def test_a_log_of_another_cluster() -> None:
    """`@metadata` restored from the wrong backup, bootstrap checkpoint and all, under the right meta.properties."""
    with pytest.raises(CorruptLog, match="/lone/@metadata: the log is of another cluster"):
        open_directory(_used_disk(), _identity(uuid_text(b"another cluster!")), NodeConfig())


def test_a_bootstrap_checkpoint_of_another_cluster() -> None:
    """The same ids, other voters: also where the log itself no longer reaches back to its first record."""
    identity = _identity(genesis_chain=genesis(CLUSTER_ID, voters_of([1, 2, 3])))
    with pytest.raises(CorruptLog, match="the bootstrap checkpoint is of another cluster"):
        open_directory(_used_disk(), identity, NodeConfig())


def test_a_lost_checkpoint_of_a_node_that_has_voted() -> None:
    """Formatting it anew would let it vote a second time in an epoch: the advice must not be that."""
    disk = _used_disk()
    metadata = disk.subdirectory("@metadata")
    metadata.remove(snapshot_name(BOOTSTRAP_END))
    with pytest.raises(CorruptLog, match="do not format it"):
        open_directory(disk, _identity(), NodeConfig())


# --- a vote that was forgotten ---------------------------------------------------------------------------------------

THREE = voters_of([1, 2, 3])
NEW_ID = b"another directory"[:16]


def _voter_that_has_voted() -> MemoryDirectory:
    """Node 1 of three: a record of epoch 4 in its log, and a vote for node 2 in epoch 5."""
    disk = formatted_disk(THREE)
    opened = open_directory(disk, _identity(), NodeConfig())
    opened.log.append([NoOp()], 4, 1)
    opened.log.flush()
    opened.log.close()
    election_file.save(disk, ElectionState(5, ReplicaKey(2, directory_id(2)), None))
    return disk


def _reopened(disk: MemoryDirectory) -> Opened:
    return open_directory(disk, _identity(), NodeConfig(), new_directory_id=lambda: NEW_ID)


def _assert_another(disk: MemoryDirectory, opened: Opened) -> None:
    """It is an observer, durably, and its log is as it was."""
    assert opened.identity == _identity()._replace(directory_id=NEW_ID) == read_identity(disk)
    assert opened.election == ElectionState(4, None, None) == election_file.load(disk)
    assert opened.log.shape.end == 1
    assert not opened.voters.latest.contains(ReplicaKey(1, NEW_ID))


def test_a_lost_vote_makes_the_directory_another_one() -> None:
    """Asked again it could vote a second time in epoch 5: under its old id it never speaks again."""
    disk = _voter_that_has_voted()
    disk.remove(election_file.FILE_NAME)
    _assert_another(disk, _reopened(disk))


def test_an_unreadable_vote_is_a_lost_one() -> None:
    """Torn or rotten: what it said is not known."""
    for damaged in (b"", b"{}", b"not json", b'{"crc32": 1, "state": {"epoch": 9}}'):
        disk = _voter_that_has_voted()
        disk.write_atomic(election_file.FILE_NAME, damaged)
        _assert_another(disk, _reopened(disk))
    disk = _voter_that_has_voted()
    disk.flip_bit(election_file.FILE_NAME, 60)
    _assert_another(disk, _reopened(disk))


def test_a_vote_in_the_first_election_of_all_is_a_vote() -> None:
    """The log is still empty, so it cannot tell that this directory was ever in use; the first state was written before it."""
    disk = formatted_disk(THREE)
    opened = _reopened(disk)
    assert opened.election == election_file.FIRST_STATE and opened.identity == _identity()
    opened.log.close()
    disk.remove(election_file.FILE_NAME)
    opened = _reopened(disk)
    assert opened.identity.directory_id == NEW_ID and opened.log.shape.end == 0


@pytest.mark.parametrize("room", ["plenty", "ballast", "archive"])
def test_a_vote_that_only_the_page_cache_has_is_written_again_before_it_is_spoken_of(room: str) -> None:
    """
    1. Node 1 votes in epoch 6. The flush of the directory fails, the process stops: the disk has the vote of epoch 5.
    2. The next process reads the vote of epoch 6 in the page cache; a flush succeeds now, and proves nothing. Asked again
       by the same candidate, it would save nothing, and say yes.
    3. The power goes. What is found must be what 2 has read: else another one gets a vote in epoch 6.
    """
    vote = ElectionState(6, ReplicaKey(3, directory_id(3)), None)
    for seed in range(5):
        disk = _voter_that_has_voted()
        disk.fail_next_flush("/lone")
        with pytest.raises(FlushFailed):
            election_file.save(disk, vote)
        disk = disk.kill()
        if room == "archive":
            disk.remove(BALLAST_NAME)
            archive = disk.subdirectory("@metadata").subdirectory(ARCHIVE_NAME)
            archive.write_atomic(segment_name(0), bytes(9_000))
        if room != "plenty":
            disk.limit_space(disk.used_bytes)
        assert _reopened(disk).election == vote
        assert election_file.load(disk.crash(Random(seed))) == vote


def test_a_log_whose_beginning_only_the_page_cache_has_does_not_begin_again() -> None:
    """
    1. A log begins. The very last flush, with which the beginning is over, fails: the disk has it still under way.
    2. The next process finds it done, and appends; what it has flushed is acknowledged.
    3. The power goes. The disk must not say that the log was just beginning, and that no segment counts.
    """
    disk = formatted_disk(THREE)
    _reopened(disk).log.close()
    metadata = disk.subdirectory("@metadata")
    begun = read_start(metadata)
    assert begun is not None
    write_start(metadata, begun._replace(resetting=True))
    metadata.fail_next_flush("/lone/@metadata")
    with pytest.raises(FlushFailed):
        write_start(metadata, begun)

    log = _reopened(disk.kill()).log
    log.append([NoOp()], 4, 1)
    log.flush()
    assert _reopened(disk.crash(Random(1))).log.shape.end == 1


def test_what_is_left_beside_a_log_that_is_gone_tells_that_there_was_one() -> None:
    """Vote and segments are gone. Taken for a new directory it would vote again, as soon as any record at all is here."""
    disk = _voter_that_has_voted()
    metadata = disk.subdirectory("@metadata")
    assert metadata.exists(FLUSHED_NAME)
    disk.remove(election_file.FILE_NAME)
    for name in segment_names(metadata):
        metadata.remove(name)
    opened = _reopened(disk)
    assert opened.identity.directory_id == NEW_ID and read_identity(disk) == opened.identity
    assert opened.log.shape.end == 0 and opened.disk_trust == FULL


@pytest.mark.parametrize("name", [FLUSHED_NAME, START_NAME, LOST_NAME, snapshot_name(OffsetAndEpoch(7, 4))])
def test_any_of_what_a_log_leaves_tells_that_there_was_one(name: str) -> None:
    """A tool that only looks says so; it gives no ids, so nothing is changed. (What the file says is not read for that.)"""
    disk = formatted_disk(THREE)
    disk.subdirectory("@metadata").write_atomic(name, b"")
    with pytest.raises(CorruptLog):
        open_directory(disk, _identity(), NodeConfig())
    assert not disk.exists(election_file.FILE_NAME)


def test_the_vote_of_a_later_release_is_not_forgotten() -> None:
    """A downgrade is refused: whoever goes back up again still has it."""
    disk = _voter_that_has_voted()
    body = {"version": 2}
    crc = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    disk.write_atomic(election_file.FILE_NAME, json.dumps({"crc32": crc, "state": body}).encode())
    with pytest.raises(CorruptLog, match="format version 2"):
        _reopened(disk)


def test_a_lone_voter_that_has_forgotten_its_vote_is_refused() -> None:
    """As an observer of itself it would wait for ever for somebody to admit it."""
    disk = formatted_disk(OURS)
    LoneNode(disk).run_until_idle()
    disk.remove(election_file.FILE_NAME)
    with pytest.raises(CorruptLog, match="has forgotten its vote"):
        _reopened(disk)


def test_a_tool_that_only_looks_gives_no_ids() -> None:
    """Without a source of ids nothing is changed."""
    disk = _voter_that_has_voted()
    disk.remove(election_file.FILE_NAME)
    with pytest.raises(CorruptLog, match="is missing although this directory was in use"):
        open_directory(disk, _identity(), NodeConfig())
    assert read_identity(disk) is None, "the test's disk has none, and none was written"


def test_a_node_that_has_forgotten_its_vote_is_not_asked_for_it() -> None:
    """Who asks means the voter that it was; and it does not run."""
    disk = _voter_that_has_voted()
    disk.remove(election_file.FILE_NAME)
    lone = LoneNode(disk, new_directory_id=lambda: NEW_ID)
    former = ReplicaKey(1, directory_id(1))
    reply_to = lone.new_reply_to()
    lone.turn(RaftRequest(VoteRequest(ReplicaKey(3, directory_id(3)), former, 5, 4, 1, pre_vote=False), reply_to))
    answer = lone.answers[reply_to]
    assert isinstance(answer, VoteResponse) and answer.error is ErrorCode.INVALID_VOTER_KEY
    for _ in range(50):
        lone.now_ms += 100
        lone.turn()
    assert not any(isinstance(request, VoteRequest) for _, request in lone.sent)
    assert lone.node.me == ReplicaKey(1, NEW_ID)


# --- a durable end that was lost -------------------------------------------------------------------------------------


def _voter_with_a_rotten_end(bootstrap: Voters = THREE, voters: Voters | None = None) -> MemoryDirectory:
    """Node 1 of three had three records durably, and can read but two of them. The first may say who votes."""
    disk = formatted_disk(bootstrap)
    opened = open_directory(disk, _identity(), NodeConfig())
    batches = [opened.log.append([voters or NoOp()], 4, 1)]
    batches += [opened.log.append([NoOp()], 4, 1) for _ in range(2)]
    opened.log.flush()
    opened.log.close()
    election_file.save(disk, ElectionState(5, None, 2))
    metadata = disk.subdirectory("@metadata")
    name = segment_names(metadata)[-1]
    metadata.flip_bit(name, metadata.read(name, 1 << 30).index(batches[-1].data) + 40)
    return disk


def test_a_node_that_has_lost_its_durable_end_does_not_count_until_it_is_there_again() -> None:
    """At every start until then. It fetches as nobody, so what it acknowledges is nobody's word."""
    disk = _voter_with_a_rotten_end()
    for _ in range(2):
        opened = _reopened(disk)
        assert (opened.log.shape.end, opened.disk_trust) == (2, DiskTrust(lost=Lost(3, 5)))
        opened.log.close()
    lone = LoneNode(disk, new_directory_id=lambda: NEW_ID)
    _, fetch = lone.sent[-1]
    assert isinstance(fetch, FetchRequest) and fetch.fetch_offset == 2
    assert fetch.replica.node_id == 1 and fetch.replica != lone.node.me
    assert [*lone.problems] == [ProblemCode.LOG_END_LOST] and ProblemCode.LOG_END_LOST.blocks_ready
    assert "below offset 3 " in lone.problems[ProblemCode.LOG_END_LOST]
    assert lone.node.disk.status().damage_found == 1, "a counter tells of a loss that ends before anybody looks"
    assert "reached offset 3" in lone.node.disk.status().last_damage

    elsewhere = open_directory(formatted_disk(THREE), _identity(), NodeConfig()).log
    for epoch in (4, 4, 5):
        elsewhere.append([NoOp()], epoch, 1)
    batches = elsewhere.read(2, 1 << 20)
    lone.respond(FetchResponse(ErrorCode.NONE, 5, 2, fetch.number, high_watermark=2, batches=batches))
    lone.run_until_idle()
    _, fetch = lone.sent[-1]
    assert isinstance(fetch, FetchRequest)
    lone.respond(FetchResponse(ErrorCode.NONE, 5, 2, fetch.number, high_watermark=3))
    _, fetch = lone.sent[-1]
    assert isinstance(fetch, FetchRequest) and fetch.replica == lone.node.me
    assert lone.problems == {} and _reopened(disk).disk_trust == FULL


def test_a_lone_voter_that_has_lost_its_durable_end_does_not_start() -> None:
    """Nobody could give it back what it has promised."""
    disk = formatted_disk(OURS)
    LoneNode(disk).run_until_idle()
    metadata = disk.subdirectory("@metadata")
    name = segment_names(metadata)[-1]
    log = open_directory(disk, _identity(), NodeConfig()).log
    last = log.read(0, 1 << 20)[-1]
    log.close()
    metadata.flip_bit(name, metadata.read(name, 1 << 30).index(last.data) + 40)
    with pytest.raises(CorruptLog, match="had been durable"):
        _reopened(disk)


def test_who_is_alone_is_said_by_the_newest_voter_set_that_is_left() -> None:
    """Not by that of the first day. One that has been joined by others gets back from them what it has lost."""
    grown = _voter_with_a_rotten_end(bootstrap=OURS, voters=THREE)
    for _ in range(2):
        opened = _reopened(grown)
        assert opened.disk_trust == DiskTrust(lost=Lost(3, 5)) and opened.voters.latest.ids == (1, 2, 3)
        opened.log.close()
    shrunk = _voter_with_a_rotten_end(bootstrap=THREE, voters=OURS)
    for _ in range(2):
        with pytest.raises(CorruptLog, match="had been durable"):
            _reopened(shrunk)


def test_a_forgotten_vote_takes_a_lost_end_with_it() -> None:
    """Under its new id the node has promised nothing."""
    disk = _voter_with_a_rotten_end()
    disk.remove(election_file.FILE_NAME)
    opened = _reopened(disk)
    assert opened.identity.directory_id == NEW_ID and opened.disk_trust == FULL and opened.log.lost is None


def _lone_node_with_a_snapshot() -> tuple[LoneNode, OffsetAndEpoch]:
    lone = LoneNode(formatted_disk(OURS))
    lone.run_until_idle()
    lone.turn(SnapshotWanted("for the test", lone.new_reply_to(), lone.now_ms + 1_000))
    lone.run_until_idle()
    snapshot = lone.node.log.shape.snapshot
    assert snapshot is not None
    return lone, snapshot


def _with_a_snapshot(epoch_of_the_other: int) -> MemoryDirectory:
    """A node that has written a snapshot, and whose log was replaced by one of another history that is as long."""
    lone, snapshot = _lone_node_with_a_snapshot()
    lone.node.log.close()
    metadata = lone.disk.subdirectory("@metadata")
    for name in metadata.names():
        if not name.endswith(".checkpoint"):
            metadata.remove(name)
    other = Log.open(metadata, chain=genesis(CLUSTER_ID, OURS))
    for _ in range(snapshot.offset + 3):
        other.append([NoOp()], snapshot.epoch + epoch_of_the_other, 1)
    other.flush()
    return lone.disk


def test_a_snapshot_and_a_log_that_do_not_belong_together() -> None:
    """Each is whole, and the same epoch cannot have written both: somebody has mixed files up. Both are named."""
    disk = _with_a_snapshot(epoch_of_the_other=0)
    with pytest.raises(CorruptLog, match=r"log \[0@0, .* and the snapshot .*checkpoint are of different histories"):
        open_directory(disk, _identity(), NodeConfig())


def test_a_snapshot_that_has_replaced_the_log_counts() -> None:
    """It came from the leader, and the process was killed before the log, of another epoch there, was done away with."""
    opened = open_directory(_with_a_snapshot(epoch_of_the_other=1), _identity(), NodeConfig())
    shape = opened.log.shape
    assert opened.load is not None
    assert (shape.start, shape.end) == (opened.load.end, opened.load.end.offset)


def test_a_damaged_snapshot_is_passed_over_and_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    """The log reaches back to its beginning, so the node starts; and whoever reads its log learns of the disk."""
    lone, snapshot = _lone_node_with_a_snapshot()
    again = lone.disk.kill()
    open_directory(again, _identity(), NodeConfig()).log.close()
    assert not caplog.messages
    with closing(again.subdirectory("@metadata").open(snapshot_name(snapshot))) as file:
        file.write_at(90, bytes([file.read_at(90, 1)[0] ^ 1]))
    opened = open_directory(again, _identity(), NodeConfig())
    assert opened.load is None
    assert caplog.messages == [
        f"/lone/@metadata/{snapshot_name(snapshot)} is damaged: this node starts from an older snapshot, or from the log"
    ]
