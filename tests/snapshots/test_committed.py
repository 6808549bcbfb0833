"""How far the files of some nodes prove that records are committed. No Spark."""

from pathlib import Path

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.election_state import FILE_NAME, ElectionState, pack
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.records import LeaderChange, NoOp, Record, SnapshotMark, Voter, Voters
from metadata_log.store.log import Log
from snapshots.format import snapshot_name
from snapshots.offline.committed import committed_end, committed_ends
from snapshots.offline.inputs import find_logs
from snapshots.offline.reading.ends import ends_of
from snapshots.reader import read_meta
from snapshots.writer import write_records
from tests.snapshots.nodes import CLUSTER_ID, NODES, VOTERS, Node, copies


class Three:
    """Controllers 1, 2 and 3 with a snapshot at `marked`, and a log of epoch 4 up to `end`, all the same."""

    def __init__(self, root: Path) -> None:
        node = Node(root / "node", 5)
        node.elect(1)
        node.run(20)
        mark = node.mark()
        self.marked, self.marked_epoch = mark
        node.epoch = max(node.epoch + 1, 4) - 1
        node.log_records(LeaderChange(1, NODES, NODES[:2]))
        self.epoch = node.epoch
        node.journal.flush()
        self.end = node.journal.shape.end
        node.journal.close()
        self.wall_ms = node.wall_ms
        self.paths = copies(node, root)

    def append(self, place: int, *records: Record, epoch: Epoch | None = None) -> Offset:
        """Append one batch to the log of a controller, and flush it. Return the end."""
        log = Log.open(RealDirectory(self.paths[place] / "@metadata"))
        log.append(records, self.epoch if epoch is None else epoch, self.wall_ms + 1)
        log.flush()
        end = log.shape.end
        log.close()
        return end

    def diverge(self) -> Offset:
        """Let controller 1 have a tail of its own, the longest one, and 2 and 3 another one of the next epoch. Return its end."""
        for _ in range(6):
            self.append(0, NoOp())
        ends = {self.append(place, LeaderChange(2, NODES, NODES[1:]), epoch=self.epoch + 1) for place in (1, 2)}
        for _ in range(3):
            ends = {self.append(place, NoOp(), epoch=self.epoch + 1) for place in (1, 2)}
        return min(ends)

    def heard(self, place: int, epoch: Epoch) -> None:
        """Let a controller have voted in an epoch."""
        directory = RealDirectory(self.paths[place])
        directory.write_atomic(FILE_NAME, pack(ElectionState(epoch, None, None)))

    def committed(self, *places: int) -> Offset:
        return committed_end(find_logs([str(self.paths[each]) for each in places or (0, 1, 2)])).end


@pytest.fixture
def three(tmp_path: Path) -> Three:
    return Three(tmp_path)


def test_a_majority_of_the_voters_holds_the_records(three: Three) -> None:
    """The leader's own tail does not count, and neither does a follower that lags."""
    assert three.append(0, NoOp()) == three.append(1, NoOp())
    end = three.append(0, NoOp())
    assert three.committed() == three.committed(0, 1) == end - 1
    assert three.committed(0, 2) == three.committed(1, 2) == three.end
    found = committed_end(find_logs(map(str, three.paths)))
    assert found.proof == "2 of 3 voters hold these records"


def test_one_log_of_three_proves_what_its_snapshot_does(three: Three) -> None:
    """A controller writes a snapshot only at an end that it knows to be committed."""
    assert three.committed(0) == three.marked
    assert "has written a snapshot" in committed_end(find_logs([str(three.paths[0])])).proof


def test_a_record_of_a_newer_epoch_on_one_voter_takes_the_proof_away(three: Three) -> None:
    """Raft 5.4.2, figure 8: a majority holds records of epoch 4, and the leader of epoch 5 dies with its first record. A leader
    that has none of these records may still be elected."""
    three.append(0, LeaderChange(1, NODES, NODES[:2]), epoch=three.epoch + 1)
    assert three.committed() == three.marked
    end = three.append(1, LeaderChange(1, NODES, NODES[:2]), epoch=three.epoch + 1)
    assert three.committed() == end


def test_a_vote_in_a_newer_epoch_counts_if_a_log_is_missing(three: Three) -> None:
    """Controllers 1 and 2 hold the records of epoch 4, and controller 2 has voted in epoch 6: controller 3 may have led since."""
    three.heard(1, three.epoch + 2)
    assert three.committed(0, 1) == three.marked
    assert three.committed() == three.end
    three.heard(1, three.epoch)
    assert three.committed(0, 1) == three.end


def test_the_voter_set_is_the_one_in_the_log(three: Three) -> None:
    """Controllers 4 and 5 join: two of three were a majority, two of five are none."""
    voters = Voters((*VOTERS.voters, *(Voter(each, bytes([each]) * 16, VOTERS.voters[0].endpoints) for each in (4, 5))))
    for place in (0, 1):
        three.append(place, voters)
    assert three.committed() == three.end
    assert three.append(2, voters) == three.committed()


def test_a_copy_of_the_same_controller_is_no_second_voter(three: Three) -> None:
    """The second directory is a copy of the first: one voter holds the records, not two."""
    write_identity(RealDirectory(three.paths[1]), Identity(CLUSTER_ID, 1, b"\x01" * 16, 1, "controller"))
    assert three.committed(0, 1) == three.marked


def test_a_replaced_disk_is_no_voter(three: Three) -> None:
    """Controller 2 has another directory id than the voter set names."""
    write_identity(RealDirectory(three.paths[1]), Identity(CLUSTER_ID, 2, b"\x22" * 16, 1, "controller"))
    assert three.committed(0, 1) == three.marked


def test_different_batches_at_one_offset_are_no_majority(three: Three) -> None:
    """Controllers 1 and 2 hold different records of one epoch: a history was rewritten, and the proof ends before."""
    log = Log.open(RealDirectory(three.paths[1] / "@metadata"))
    log.append([NoOp()], three.epoch, three.wall_ms + 7)
    log.flush()
    log.close()
    three.append(0, NoOp())
    assert three.committed() == three.end


def test_directories_of_two_clusters_prove_nothing_together(three: Three) -> None:
    """A wrong `--beside` would prove any offset."""
    write_identity(RealDirectory(three.paths[1]), Identity("other", 2, bytes([2]) * 16, 1, "controller"))
    with pytest.raises(LogFormatError, match=r"belong to different clusters.*--beside"):
        three.committed(0, 1)


def test_a_broker_holds_committed_records_only(three: Three) -> None:
    write_identity(RealDirectory(three.paths[1]), Identity(CLUSTER_ID, 101, b"\x65" * 16, 1, "broker"))
    end = three.append(1, NoOp())
    assert three.committed(0, 1) == end


def test_a_directory_without_an_owner_counts_for_no_voter(three: Three) -> None:
    """An `@metadata` directory alone does not say which voter it belongs to."""
    found = committed_end(find_logs([str(path / "@metadata") for path in three.paths]))
    assert found.end == three.end, "the data directories are found beside the logs"
    for path in three.paths:
        (path / "meta.properties").unlink()
    assert three.committed() == three.marked


def test_without_any_proof_nothing_is_committed(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", 6)
    node.elect(1)
    node.write_out()
    node.journal.flush()
    node.journal.close()
    found = committed_end(find_logs([str(node.path)]))
    assert found.end == 0
    assert "nothing" not in found.proof and "proves anything" in found.proof


class TestAnotherTail:
    """Controller 1 led epoch 4, appended records alone, and stopped. Controllers 2 and 3 have committed others since."""

    def test_the_proof_ends_where_the_log_leaves_the_history_of_the_majority(self, three: Three) -> None:
        end = three.diverge()
        assert three.committed(1, 0, 2) == three.committed(2, 0, 1) == end
        assert three.committed(0, 1, 2) == three.end
        found = committed_end(find_logs(map(str, three.paths)))
        same = f"controller 1 is known to have the same records as controller 2 up to {three.end} only"
        assert found.proof == f"2 of 3 voters hold these records up to {end}, and {same}"

    def test_a_shorter_log_with_another_tail(self, three: Three) -> None:
        """The tail ends below the proven end, and inside a larger batch of the others."""
        three.append(0, NoOp())
        for place in (1, 2):
            end = three.append(place, LeaderChange(2, NODES, NODES[1:]), SnapshotMark("test"), epoch=three.epoch + 1)
        assert three.committed(1, 0, 2) == end
        assert three.committed(0, 1, 2) == three.end

    def test_a_log_that_only_lags_is_proven_as_far_as_the_others(self, three: Three) -> None:
        three.append(0, NoOp())
        end = three.append(1, NoOp())
        assert three.committed(2, 0, 1) == end

    def test_a_broker_proves_nothing_about_another_tail(self, three: Three) -> None:
        end = three.diverge()
        write_identity(RealDirectory(three.paths[1]), Identity(CLUSTER_ID, 101, b"\x65" * 16, 1, "broker"))
        assert three.committed(1, 0) == end
        assert three.committed(0, 1) == three.end

    def test_a_snapshot_of_another_node_proves_nothing_about_another_tail(self, three: Three) -> None:
        """Controller 2 has written a snapshot of epoch 5 since."""
        end = three.diverge()
        other = RealDirectory(three.paths[1] / "@metadata")
        log = Log.open(other)
        meta = read_meta(other, OffsetAndEpoch(three.marked, three.marked_epoch))
        place = log.shape.end_and_epoch
        write_records(other, meta._replace(end=place, chain=log.shape.chain), ())
        log.close()
        assert three.committed(1, 0) == end
        assert three.committed(0, 1) == three.end

    @pytest.mark.parametrize("data", [None, b"nothing"])
    def test_a_snapshot_proves_nothing_about_a_log_that_does_not_lead_to_it(
        self, three: Three, data: bytes | None
    ) -> None:
        """Controller 1 was killed between the download of a snapshot and the reset of its log; or somebody put a file with the
        name of a snapshot into the directory.
        """
        three.diverge()
        other = RealDirectory(three.paths[1] / "@metadata")
        log = Log.open(other)
        place, chain = log.shape.end_and_epoch, log.shape.chain
        log.close()
        mine = RealDirectory(three.paths[0] / "@metadata")
        meta = read_meta(mine, OffsetAndEpoch(three.marked, three.marked_epoch))
        write_records(mine, meta._replace(end=place, chain=chain), ())
        if data is not None:
            (mine.path / snapshot_name(place)).write_bytes(data)
        assert three.committed(0) == three.marked

    def test_each_log_of_several_has_an_end_of_its_own(self, three: Three) -> None:
        end = three.diverge()
        logs = find_logs(map(str, three.paths))
        assert [each.end for each in committed_ends(logs)] == [three.end, end, end]
        assert [*ends_of(logs, "committed").values()] == [three.end, end, end]
