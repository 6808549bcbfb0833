"""A node that is asked for its chain at a disputed place: it says what is on its disk, or nothing."""

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import ReplicaKey
from quorum.core.protocol.messages import ChainRequest, ChainResponse, FetchResponse
from quorum.runtime.protocol.world import RaftRequest
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of

ASKER = ReplicaKey(3, directory_id(3))


def _asked(lone: LoneNode, offset: int, epoch: int) -> ChainResponse:
    reply_to = lone.new_reply_to()
    lone.turn(RaftRequest(ChainRequest(ASKER, offset, epoch), reply_to))
    answer = lone.answers[reply_to]
    assert isinstance(answer, ChainResponse)
    return answer


def test_any_node_is_a_witness() -> None:
    """A lone voter that leads, asked by whoever it may be."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    end, epoch = lone.node.log.shape.end_and_epoch
    assert _asked(lone, end, epoch).chain == lone.node.log.shape.chain
    assert _asked(lone, end, epoch + 1).chain is None


def test_a_witness_whose_disk_is_damaged_at_that_place_says_nothing_and_lives() -> None:
    """Its silence is not counted for or against anybody."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()

    def damaged(offset: int) -> bytes | None:
        raise CorruptLog.at("/lone/@metadata/00000000000000000000.log", 80, offset, "its checksum does not fit")

    lone.node.log.chain_at = damaged  # type: ignore[method-assign]
    answer = _asked(lone, *lone.node.log.shape.end_and_epoch)
    assert (answer.error, answer.chain, lone.stopped) == (ErrorCode.STORAGE_ERROR, None, None)


def test_batches_of_another_chain_are_refused_and_the_node_lives() -> None:
    """Each is whole by its CRC. It is the leader's trouble: this disk is all right, and is asked for nothing else."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    other = LoneNode(formatted_disk(voters_of([1])))
    other.run_until_idle()
    foreign = other.node.log.read(0, 1 << 20)
    lone.now_ms += 40
    lone.turn()
    _, fetch = lone.sent[-1]
    epoch = foreign[-1].epoch
    lone.respond(FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch, 2, fetch.number))  # type: ignore[union-attr]
    lone.now_ms += 40
    lone.turn()
    destination, fetch = lone.sent[-1]
    assert destination == 2
    lone.respond(FetchResponse(ErrorCode.NONE, epoch, 2, fetch.number, batches=foreign))  # type: ignore[union-attr]
    assert lone.stopped is None and lone.node.log.shape.end == 0
    lone.now_ms += lone.config.raft.fetch_wait_ms
    lone.turn()
    assert lone.sent[-1][0] == 2 and lone.sent[-1][1] != fetch
