"""Snapshot marks that operators ask for."""

from metadata_log.format.batch import BATCH_BYTES_MAX
from metadata_log.format.errors import ErrorCode
from quorum.runtime.active.active_controller import MARK_REASON_CHARS_MAX
from quorum.runtime.protocol.requests import Refused, SnapshotMarked
from quorum.runtime.protocol.world import Answer, SnapshotWanted
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of


def _asked(lone: LoneNode, reason: str) -> Answer:
    reply_to = lone.new_reply_to()
    lone.turn(SnapshotWanted(reason, reply_to, lone.now_ms + 1_000))
    lone.run_until_idle()
    return lone.answers[reply_to]


def test_a_reason_that_is_no_reason_is_refused() -> None:
    """It would not fit into any batch, or would stay in the log for ever; the node goes on, and the next mark is committed."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    end = lone.node.log.shape.end
    for length in (MARK_REASON_CHARS_MAX + 1, 3 * BATCH_BYTES_MAX):
        refused = _asked(lone, "r" * length)

        assert isinstance(refused, Refused)
        assert refused.code is ErrorCode.INVALID_REQUEST
        assert str(MARK_REASON_CHARS_MAX) in refused.message
        assert (lone.stopped, lone.node.log.shape.end) == (None, end)

    assert isinstance(_asked(lone, "r" * MARK_REASON_CHARS_MAX), SnapshotMarked)
