"""Unexpected errors beside a decision, before anything was appended: in the memory of requests, in snapshot marks, and in the
judgement of requests about the quorum.
"""

import logging
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import SnapshotMark
from quorum.controller.protocol.decision import Decision
from quorum.core.membership import change_rules
from quorum.core.membership import transfer as core_transfer
from quorum.core.protocol.messages import QuorumChangeResponse, TransferLeadershipRequest
from quorum.runtime.active import decisions
from quorum.runtime.protocol.requests import Refused, SnapshotMarked
from quorum.runtime.protocol.world import RaftRequest, ReplyTo, SnapshotWanted
from tests.quorum.runtime.active.test_failed_decisions import Poisoned
from tests.quorum.runtime.active.test_request_ids import answer, identity, send, set_to
from tests.quorum.runtime.lone_node import LoneNode


def trip(*_: object, **__: object) -> NoReturn:
    raise KeyError("nobody thought of that")


def check_refused_and_nothing_done(lone: Poisoned, ask: Callable[[], ReplyTo]) -> Refused:
    """The client is refused, the accident is counted and shown, and the node leads on with the same log."""
    before, count = lone.node.log.shape.end, lone.node.active.accidents.count
    refused = lone.refused(ask())
    assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "KeyError" in refused.message and "nothing was done" in refused.message
    assert (lone.node.active.on, lone.stopped, lone.node.log.shape.end) == (True, None, before)
    assert lone.node.active.accidents.count == count + 1
    assert lone.problem
    lone.node.check_invariants()
    return refused


@pytest.mark.parametrize("what", ["earlier_outcome", "outcome_of"])
def test_an_error_around_the_memory_of_requests_costs_one_request(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The same request is decided as new afterwards: the refused attempt left no trace."""
    lone = Poisoned(lambda _: False, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(decisions, what, trip)
        check_refused_and_nothing_done(lone, lambda: send(lone, set_to("1"), identity()))
    assert not isinstance(answer(lone, send(lone, set_to("1"), identity())), Refused)


def test_an_error_while_an_answer_is_recalled_costs_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says that nothing was done *now*: the first attempt had its effect, and its answer can be recalled later."""
    lone = Poisoned(lambda _: False, monkeypatch)
    first = answer(lone, send(lone, set_to("1"), identity()))
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "recalled", trip)
        refused = check_refused_and_nothing_done(lone, lambda: send(lone, set_to("1"), identity()))
    assert "nothing was done now" in refused.message
    assert answer(lone, send(lone, set_to("1"), identity())) == first


@pytest.mark.parametrize("what", ["answer", "story"])
def test_an_error_in_the_answer_costs_one_request(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Reply and story are made before the append, so an error in either one writes nothing."""
    lone = Poisoned(lambda _: False, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Decision, what, trip)
        check_refused_and_nothing_done(lone, lambda: send(lone, set_to("1"), identity()))
    assert not isinstance(answer(lone, send(lone, set_to("1"), identity())), Refused)


def ask_for_snapshot(lone: LoneNode) -> ReplyTo:
    reply_to = lone.new_reply_to()
    lone.turn(SnapshotWanted("asked for", reply_to, lone.now_ms + 1_000))
    return reply_to


def test_an_error_in_a_snapshot_mark_costs_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """No mark counts as pending after the refusal: the next request for a snapshot is served."""
    lone = Poisoned(lambda _: False, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(lone.node.log, "seal", trip)
        check_refused_and_nothing_done(lone, lambda: ask_for_snapshot(lone))
    assert isinstance(answer(lone, ask_for_snapshot(lone)), SnapshotMarked)


def test_an_error_in_a_mark_that_the_controller_wants_makes_the_leader_resign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is there to be refused."""
    lone = Poisoned(lambda _: False, monkeypatch)
    send(lone, set_to("1"), None)
    with monkeypatch.context() as patch:
        patch.setattr(lone.node.log, "seal", trip)
        patch.setattr(lone.node.snapshotter, "mark_due", lambda *_: SnapshotMark("it is time"))
        lone.run_until_idle()
    assert (lone.node.core.is_leading, lone.stopped) == (False, None)
    lone.lead_again()


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (change_rules, "refusal_now"),
        (change_rules, "does_not_fit"),
        (change_rules, "_refusal_of_transfer"),
        (core_transfer, "go_on"),
    ],
)
def test_an_error_in_a_request_about_the_quorum_costs_one_request(
    monkeypatch: pytest.MonkeyPatch, where: ModuleType, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The core only reads before it acts; the next request finds the same leader, and no change pending."""
    lone = Poisoned(lambda _: False, monkeypatch)
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(where, what, trip)
        refused = transfer(lone)
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "KeyError" in refused.message and "nothing was done" in refused.message
    assert "in trip" in caplog.text, "the traceback says where"
    assert (lone.node.active.on, lone.stopped, lone.node.active.accidents.count) == (True, None, 1)
    assert "TransferLeadershipRequest: KeyError" in lone.problem
    lone.node.check_invariants()
    assert transfer(lone).error is ErrorCode.NONE


def test_an_error_while_the_core_acts_on_a_request_stops_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core may be half changed, as after the append of a decision. Here the core has ended the transfer, and answers."""
    lone = Poisoned(lambda _: False, monkeypatch)
    monkeypatch.setattr(core_transfer, "QuorumChangeResponse", trip)
    with pytest.raises(KeyError, match="thought"):  # whoever drives the node stops it (`NodeLoop._turn`)
        transfer(lone)


def transfer(lone: LoneNode) -> QuorumChangeResponse:
    """An operator asks for the leader that leads already."""
    reply_to = lone.new_reply_to()
    lone.turn(RaftRequest(TransferLeadershipRequest(1, timeout_ms=1_000), reply_to))
    answered = answer(lone, reply_to)
    assert isinstance(answered, QuorumChangeResponse)
    return answered
