"""Voter sets that are appended while the controller decides: neither gets in the way of the other."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import METADATA_VERSION_MAX, Endpoint, FeatureRange, Voter
from quorum.controller.protocol.commands import RegisterControllerCommand, RegisterControllerReply
from quorum.core.protocol.messages import QuorumChangeResponse, UpdateVoterRequest
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import ReadView, SnapshotMarked
from quorum.runtime.protocol.world import RaftRequest, Read, SnapshotWanted, Submission
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

HERE = Endpoint("CONTROLLER", "here", 9_091)
THERE = Endpoint("CONTROLLER", "there", 9_091)


def register(lone: LoneNode, node_id: int) -> Submission:
    command = RegisterControllerCommand(
        node_id, bytes([node_id] * 16), (HERE,), (FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),)
    )
    return Submission(command, lone.new_reply_to(), lone.now_ms + 1_000)


def working(disk: MemoryDirectory, config: NodeConfig | None = None) -> LoneNode:
    lone = LoneNode(disk, config)
    lone.run_until_idle()
    return lone


def test_a_voter_set_between_two_decisions() -> None:
    """The proposed image must reach the log's end, whoever appended; and a fresh replay must come to the same image."""
    disk = formatted_disk(voters_of([1]))
    lone = working(disk)
    update = UpdateVoterRequest(Voter(1, directory_id(1), (THERE,)), lone.node.core.epoch, timeout_ms=1_000)
    before, asked, after = register(lone, 2), lone.new_reply_to(), register(lone, 3)
    lone.turn(before, RaftRequest(update, asked), after)
    lone.node.check_invariants()
    assert lone.answers == {}
    lone.run_until_idle()
    lone.node.check_invariants()

    assert isinstance(lone.answers[before.reply_to], RegisterControllerReply)
    assert isinstance(lone.answers[after.reply_to], RegisterControllerReply)
    changed = lone.answers[asked]
    assert isinstance(changed, QuorumChangeResponse)
    assert (changed.error, changed.message) == (ErrorCode.NONE, "committed")
    assert lone.node.core.voters.voters[0].endpoints == (THERE,)
    assert lone.node.addresses.leader_hint(lone.now_ms).endpoint == THERE
    assert lone.node.state.applied == lone.node.log.shape.end

    again = working(disk)
    assert again.node.core.voters.voters[0].endpoints == (THERE,)
    assert again.node.state.committed.digest == lone.node.state.committed.digest
    assert sorted(again.node.state.committed.controllers) == [1, 2, 3]


def test_a_voter_set_at_the_end_of_the_log_keeps_nobody_waiting() -> None:
    """A read waits until all that was pending is applied, and a voter set is nothing that one could wait for in vain."""
    lone = working(formatted_disk(voters_of([1])))
    update = UpdateVoterRequest(Voter(1, directory_id(1), (THERE,)), lone.node.core.epoch, timeout_ms=1_000)
    lone.turn(RaftRequest(update, lone.new_reply_to()))
    read = Read(lone.new_reply_to(), lone.now_ms + 1_000)
    lone.turn(read)
    assert read.reply_to not in lone.answers
    lone.run_until_idle()

    view = lone.answers[read.reply_to]
    assert isinstance(view, ReadView)
    assert view.as_of_offset == lone.node.log.shape.end


def test_a_snapshot_embeds_the_voters_as_of_its_end() -> None:
    """A node that starts from it must count by the same set as one that read the log."""
    lone = working(formatted_disk(voters_of([1])))
    update = UpdateVoterRequest(Voter(1, directory_id(1), (THERE,)), lone.node.core.epoch, timeout_ms=1_000)
    mark = SnapshotWanted("a test", lone.new_reply_to(), lone.now_ms + 1_000)
    later = update.voter._replace(endpoints=(HERE,))
    lone.turn(RaftRequest(update, lone.new_reply_to()), mark)
    lone.run_until_idle()
    lone.turn(RaftRequest(UpdateVoterRequest(later, lone.node.core.epoch, 1_000), lone.new_reply_to()))
    lone.run_until_idle()

    marked = lone.answers[mark.reply_to]
    assert isinstance(marked, SnapshotMarked)
    newest = lone.node.snapshotter.store.newest_valid()
    assert newest is not None and newest.end.offset == marked.offset
    (voter,) = lone.node.snapshotter.store.read_meta(newest.end).voters.voters
    assert voter.endpoints == (THERE,)
    assert lone.node.core.voters.voters[0].endpoints == (HERE,)


def test_a_controller_that_has_moved_says_so_itself() -> None:
    disk = formatted_disk(voters_of([1]))
    lone = working(disk, NodeConfig(endpoints=(THERE,)))
    assert lone.node.core.voters.voters[0].endpoints == (THERE,)
    end = lone.node.log.shape.end

    again = working(disk, NodeConfig(endpoints=(THERE,)))
    assert again.node.log.shape.end == end + 1, "the record that opens the epoch, and no other"
    assert again.node.me == ReplicaKey(1, directory_id(1))
