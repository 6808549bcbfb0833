"""Unexpected errors while a change of the quorum waits: they cost the client its request, and not the leader its process."""

from types import ModuleType
from typing import NoReturn

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Voters
from quorum.core import leader
from quorum.core.membership import change_rules, membership
from quorum.core.membership import transfer as core_transfer
from quorum.core.protocol.effects import AppendControl, HighWatermarkAdvanced, RefuseFailed
from quorum.core.protocol.messages import QuorumChangeRequest
from tests.core.membership.test_membership_sentences import add, remove, transfer, with_observer
from tests.core.membership.voter_changes import answer, answers
from tests.core.situations import working_leader
from tests.core.solo import none_of, only


def trip(*_: object, **__: object) -> NoReturn:
    raise KeyError("nobody thought of that")


def test_a_transfer_that_fails_while_it_waits_costs_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transfer waits for voter 2. The fetch of voter 3 commits a record as ever; only the transfer is refused."""
    solo = working_leader()
    solo.append()
    asked = solo.request(transfer(2))
    assert not answers(asked), "voter 2 has to catch up first"
    with monkeypatch.context() as patch:
        patch.setattr(core_transfer, "_can_win", trip)
        effects = solo.fetch(3)

    failed = only(RefuseFailed, effects)
    assert isinstance(failed.error, KeyError) and failed.request == transfer(2)
    assert only(HighWatermarkAdvanced, effects).high_watermark == solo.log.end
    assert solo.core.is_leading, "nothing was done"

    assert answer(solo.fetch(2) + solo.request(transfer(2))).error is ErrorCode.NONE
    assert not solo.core.is_leading, "the next transfer is carried out"


@pytest.mark.parametrize(
    ("where", "what", "request_"),
    [
        (membership, "_obstacle", add()),
        (change_rules, "not_enough_live", remove(3)),
        (change_rules, "changed", remove(3)),
    ],
)
def test_a_change_of_the_voters_that_fails_before_the_append_costs_one_request(
    monkeypatch: pytest.MonkeyPatch, where: ModuleType, what: str, request_: QuorumChangeRequest
) -> None:
    """The leader appends the new set as its last action, so an error before writes nothing."""
    solo = with_observer()
    with monkeypatch.context() as patch:
        patch.setattr(where, what, trip)
        effects = solo.request(request_)
    assert only(RefuseFailed, effects).request == request_
    assert none_of(AppendControl, effects) and solo.core.is_leading
    assert isinstance(only(AppendControl, solo.request(request_)).record, Voters), "no change is pending"


def test_an_error_in_a_resignation_stops_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that has half resigned cannot lead on."""
    solo = working_leader()
    monkeypatch.setattr(leader, "successors", trip)
    with pytest.raises(KeyError, match="thought"):
        solo.request(transfer(2))


def test_an_error_while_a_written_change_waits_for_its_commit_stops_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The set is in effect, so nobody may say that nothing was done."""
    solo = with_observer()
    only(AppendControl, solo.request(add()))
    monkeypatch.setattr(membership, "_watch_commit", trip)
    with pytest.raises(KeyError, match="thought"):
        solo.fetch(2)
