"""Two processes under one key: tests for `quorum.core.protocol.processes`."""

from metadata_log.format.errors import ErrorCode
from quorum.core.protocol.effects import (
    Effect,
    ElectionState,
    ReadsConfirmed,
    Reply,
    ReplyWithBatches,
    SaveElectionState,
    StopNode,
)
from quorum.core.protocol.inputs import ConfirmReads
from quorum.core.protocol.messages import FetchRequest, FetchResponse
from quorum.core.protocol.processes import RETURNS_MAX
from tests.core.solo import Solo, key, none_of, only


def leading() -> tuple[Solo, FetchRequest]:
    """A leader, and a fetch of node 2 to be parked."""
    solo = Solo()
    solo.elect()
    end, epoch = solo.log.end, solo.core.epoch
    return solo, FetchRequest(key(2), epoch, 1, end, epoch, solo.log.chain, 0, 0, 100)


def error_in(effects: list[Effect]) -> ErrorCode:
    found = [e.response for e in effects if isinstance(e, Reply | ReplyWithBatches)]
    assert len(found) == 1
    return found[0].error


def test_a_restart_takes_over_at_once_and_as_often_as_it_likes() -> None:
    """Each process is new, and none returns."""
    solo, fetch = leading()
    for incarnation in range(1, 30):
        assert error_in(solo.request(fetch._replace(incarnation=incarnation, number=incarnation))) is ErrorCode.NONE


def test_late_and_repeated_fetches_of_a_process_that_is_gone_stop_nobody() -> None:
    """One or two fetches may still have been in flight, and a network may repeat them for ever."""
    solo, fetch = leading()
    for number in range(1, 50):
        assert error_in(solo.request(fetch._replace(incarnation=8, number=number))) is ErrorCode.NONE
        late = fetch._replace(incarnation=7, number=min(number, 2))
        assert error_in(solo.request(late)) is ErrorCode.NONE


def test_two_processes_that_both_live_are_both_refused() -> None:
    """The disk was cloned: neither process deserves more trust."""
    solo, fetch = leading()
    errors = {7: ErrorCode.NONE, 8: ErrorCode.NONE}
    for number in range(1, RETURNS_MAX + 2):
        for incarnation in errors:
            errors[incarnation] = error_in(solo.request(fetch._replace(incarnation=incarnation, number=number)))
    assert set(errors.values()) == {ErrorCode.INVALID_VOTER_KEY}
    assert solo.core.is_leading
    assert error_in(solo.request(fetch._replace(incarnation=9, number=1))) is ErrorCode.NONE, (
        "a third one, started by a person"
    )


def test_what_either_of_two_processes_holds_is_not_counted() -> None:
    """Until the decision, one process acknowledges, and the other may vote without having the records."""
    solo, fetch = leading()
    low = solo.log.end
    for number, incarnation in enumerate((7, 8, 7)):
        solo.request(fetch._replace(incarnation=incarnation, number=number))
    solo.append()
    ahead = fetch._replace(fetch_offset=low + 1, chain=solo.log.chain)
    for number in (9, 10):
        answered = solo.request(ahead._replace(incarnation=8, number=number, max_wait_ms=0))
        assert error_in(answered) is ErrorCode.NONE, "it is answered all the same"
        assert solo.core.high_watermark in (None, low)
    solo.wait(solo.config.fetch_timeout_ms)
    solo.request(ahead._replace(incarnation=8, number=11))
    assert solo.core.high_watermark == low + 1, "the other one was a late message, and has not come again"


def test_a_fetch_in_doubt_confirms_no_read() -> None:
    """The fetching process may be the copy, while the original has voted for another leader."""
    solo, fetch = leading()
    for number, incarnation in enumerate((7, 8, 7)):
        solo.request(fetch._replace(incarnation=incarnation, number=number))
    solo.step(ConfirmReads(1))
    fetch = fetch._replace(incarnation=7)
    answer = only(Reply, solo.request(fetch._replace(number=8))).response
    assert isinstance(answer, FetchResponse)
    echo = fetch._replace(read_token=answer.read_token)
    assert none_of(ReadsConfirmed, solo.request(echo._replace(number=9)))
    solo.wait(solo.config.fetch_timeout_ms)
    assert only(ReadsConfirmed, solo.request(echo._replace(number=10))).token == 1


def test_a_node_that_hears_of_its_double_stops() -> None:
    """The message tells the operator what to do. The node has written nothing."""
    solo = Solo(epochs=(1,), election=ElectionState(3, None, None))
    fetch = solo.follow()
    assert fetch.incarnation
    effects = solo.respond(2, fetch, FetchResponse(ErrorCode.INVALID_VOTER_KEY, 3, 2, fetch.number))
    assert "was copied" in only(StopNode, effects).reason and none_of(SaveElectionState, effects)
