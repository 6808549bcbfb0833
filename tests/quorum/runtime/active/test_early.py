"""What reaches a leader before it is active: held, told "not ready", and never forgotten."""

from metadata_log.format.errors import ErrorCode
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import VoteRequest, VoteResponse
from quorum.runtime.disk import election_file
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.requests import FetchResult, MetadataFetch, MetadataFetched, Refused
from quorum.runtime.protocol.world import BrokerFetch, Read
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of

EPOCH = 7


def _just_elected() -> LoneNode:
    """Node 1 leads epoch 7 by node 2's vote; nobody has fetched yet, so nothing of that epoch is committed."""
    disk = formatted_disk(voters_of([1, 2, 3]))
    election_file.save(disk, ElectionState(EPOCH - 1, None, None))
    lone = LoneNode(disk)
    lone.run_until_idle()
    lone.now_ms += lone.config.raft.election_timeout_max_ms
    lone.turn()
    for pre_vote in (True, False):
        asked = [(to, one) for to, one in lone.sent if isinstance(one, VoteRequest) and one.pre_vote is pre_vote]
        to, request = next(each for each in asked if each[0] == 2)
        lone.turn(answered(to, request, VoteResponse(ErrorCode.NONE, request.epoch, None, True)))
    assert (lone.node.core.is_leading, lone.node.core.epoch, lone.node.active.on) == (True, EPOCH, False)
    return lone


def test_a_request_that_came_early_is_answered_by_its_deadline() -> None:
    """A new leader may take long until it is active: it may load a large image first. Callers are not kept that long."""
    lone = _just_elected()
    patient, hasty = lone.new_reply_to(), lone.new_reply_to()
    lone.turn(Read(patient, lone.now_ms + 900), Read(hasty, lone.now_ms + 200))
    due_ms = lone.node.next_deadline_ms()
    assert due_ms is not None
    assert due_ms <= lone.now_ms + 200

    lone.now_ms += 200
    lone.turn()

    answer = lone.answers[hasty]
    assert isinstance(answer, Refused)
    assert answer.code is ErrorCode.NOT_READY
    assert patient not in lone.answers
    due_ms = lone.node.next_deadline_ms()
    assert due_ms is None or due_ms > lone.now_ms, "no busy loop"


def test_not_ready_is_said_in_the_epoch_that_is_led() -> None:
    """A broker takes an older epoch than the last it heard of for the word of a leader that is none any more, and turns away."""
    lone = _just_elected()
    reply_to = lone.new_reply_to()
    fetch = MetadataFetch(7, 5, bytes(15) + b"\x01", 0, 0, b"", False, False, (), 500, 1 << 20)
    lone.turn(BrokerFetch(fetch, reply_to))

    answer = lone.answers[reply_to]
    assert isinstance(answer, MetadataFetched)
    assert (answer.result, answer.controller_epoch) == (FetchResult.NOT_READY, EPOCH)
