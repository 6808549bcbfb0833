"""What a leader reads of its log for another controller."""

from metadata_log.format.fetch_size import PartialBatch, joined
from quorum.core.protocol.messages import FetchRequest, FetchResponse
from quorum.runtime.protocol.world import RaftRequest
from tests.quorum.runtime.lone_controller import key, leader


def test_a_follower_gets_a_batch_in_parts_that_is_larger_than_it_asks_for() -> None:
    """Byte by byte the same batch; whoever takes whole batches only gets it whole, however little it asked for."""
    lone = leader()
    lone.run_until_idle()
    (batch, *_), chain = lone.node.log.read(0, 1), lone.node.log.chain_at(0)
    assert chain is not None

    def asked(number: int, part_position: int | None) -> FetchResponse:
        request = FetchRequest(key(2), lone.node.core.epoch, number, 0, 0, chain, 0, 0, 40)
        reply_to = lone.new_reply_to()
        lone.turn(RaftRequest(request._replace(part_position=part_position), reply_to))
        answer = lone.answers[reply_to]
        assert isinstance(answer, FetchResponse)
        return answer

    held: PartialBatch | None = None
    number = 0
    while held is None or not held.is_whole:
        number += 1
        answer = asked(number, 0 if held is None else len(held.data))
        assert answer.batches == () and answer.part is not None and len(answer.part.data) <= 40
        held = joined(held, 0, answer.part)
        assert held is not None
    assert number > 1 and held.decode() == batch
    whole = asked(number + 1, None)
    assert whole.batches[0] == batch and whole.part is None
