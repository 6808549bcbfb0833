"""Decisions that take several batches: the caller is answered after the last one, whatever happens in between."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import NoOp
from quorum.controller.protocol.commands import FenceBroker, FollowUpReply
from quorum.controller.protocol.decision import Decision
from quorum.core.protocol.inputs import ShutDown
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import Submission
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of


def test_a_caller_whose_decision_is_cut_short_hears_that_it_may_have_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leadership ends between two batches of one decision: some are written, so nobody knows, and nobody is left waiting."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    endless = Decision((NoOp(),), FollowUpReply(), then=FenceBroker(7))
    monkeypatch.setattr(lone.node.active.controller, "decide", lambda *_: endless)
    reply_to = lone.new_reply_to()
    lone.turn(Submission(FenceBroker(7), reply_to, lone.now_ms + 1_000))
    assert reply_to not in lone.answers

    lone.turn(ShutDown())

    answer = lone.answers[reply_to]
    assert isinstance(answer, Refused)
    assert answer.code is ErrorCode.REQUEST_TIMED_OUT
