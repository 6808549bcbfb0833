"""A controller whose disk lets a flush hang: it says so, and lets others lead."""

from metadata_log.format.ids import ReplicaKey
from quorum.core.leader import FLUSH_PATIENCE
from quorum.core.protocol.messages import EndQuorumEpochRequest
from quorum.core.protocol.problem import ProblemCode
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of

OTHERS = [ReplicaKey(node_id, directory_id(node_id)) for node_id in (2, 3)]


def test_a_leader_whose_flush_hangs_leaves_the_lead_and_says_why() -> None:
    """The others commit all it has, and it could apply none of that."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    lone.run_until_idle()
    lone.elect()
    elected_ms, patience_ms = lone.now_ms, FLUSH_PATIENCE * lone.config.raft.check_quorum_ms
    while lone.node.core.is_leading:
        for other in OTHERS:
            lone.fetched_by(other, lone.node.log.shape.end)
        assert lone.node.core.high_watermark == lone.node.log.shape.end and lone.node.state.applied == 0
        assert not lone.problems
        lone.now_ms += 50
        lone.turn()
    assert patience_ms <= lone.now_ms - elected_ms <= patience_ms + 50
    assert any(isinstance(request, EndQuorumEpochRequest) for _, request in lone.sent)
    assert [*lone.problems] == [ProblemCode.FLUSH_HANGS] and ProblemCode.FLUSH_HANGS.blocks_ready

    lone.run_until_idle()
    assert not lone.problems
