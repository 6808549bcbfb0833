"""Any node answers from what it has applied; never from before what its client has seen."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, ReplicaKey
from quorum.core.protocol.messages import BeginQuorumEpochRequest, FetchRequest, FetchResponse
from quorum.runtime.local_reads import HELD_MAX
from quorum.runtime.protocol.requests import ReadView, Refused
from quorum.runtime.protocol.world import LocalRead, RaftRequest, ReplyTo
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of


def ask(lone: LoneNode, at_least: Offset) -> ReplyTo:
    reply_to = lone.new_reply_to()
    lone.turn(LocalRead(at_least, reply_to, lone.now_ms + 200))
    return reply_to


def test_a_node_without_a_leader_says_what_it_has_applied() -> None:
    """One of three, and the other two are away."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    lone.run_until_idle()
    view = lone.answers[ask(lone, 0)]
    assert isinstance(view, ReadView)
    assert view.local is not None
    assert (view.local.node_id, view.local.leader_heard_age_ms) == (1, None)
    assert view.as_of_offset == lone.node.state.applied == view.image.offset


def test_a_leader_says_when_it_heard_a_majority() -> None:
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    view = lone.answers[ask(lone, 0)]
    assert isinstance(view, ReadView)
    assert view.local is not None
    assert view.local.leader_heard_age_ms == 0


def test_a_read_of_what_is_not_applied_yet_waits_for_it() -> None:
    """The client has seen a commit that this node's disk has still to confirm."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    reply_to = ask(lone, 1)
    assert reply_to not in lone.answers

    lone.run_until_idle()

    view = lone.answers[reply_to]
    assert isinstance(view, ReadView)
    assert view.as_of_offset >= 1


def test_a_read_that_waits_in_vain_is_refused_at_its_deadline() -> None:
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    reply_to = ask(lone, 1_000)
    due_ms = lone.node.next_deadline_ms()
    assert due_ms is not None and due_ms <= lone.now_ms + 200

    lone.now_ms += 200
    lone.turn()

    refused = lone.answers[reply_to]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.NOT_READY


def test_so_few_reads_are_held_that_their_answers_delay_no_follower() -> None:
    """Each answer takes the event loop a third of a millisecond. 4,500 held reads with one deadline cost the leadership."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    held = [ask(lone, 1_000) for _ in range(HELD_MAX)]

    too_many = lone.answers[ask(lone, 1_000)]

    assert isinstance(too_many, Refused)
    assert too_many.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED and "ask another controller" in too_many.message
    assert isinstance(lone.answers[ask(lone, 0)], ReadView), "a read that need not wait is answered"
    assert not lone.answers.keys() & set(held), "the held reads wait on"

    lone.now_ms += 200
    lone.turn()

    assert lone.answers.keys() >= set(held)
    assert ask(lone, 1_000) not in lone.answers, "the expired reads have made room"


def test_what_a_majority_says_is_wrong_is_told_to_nobody() -> None:
    """The image here differs from a majority's: it is no state that was ever committed."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])))
    me, leader = (ReplicaKey(node_id, directory_id(node_id)) for node_id in (1, 2))
    lone.turn(RaftRequest(BeginQuorumEpochRequest(leader, me, 3), lone.new_reply_to()))
    lone.run_until_idle()
    assert isinstance(lone.answers[ask(lone, 0)], ReadView)

    _, fetch = lone.sent[-1]
    assert isinstance(fetch, FetchRequest)
    lone.respond(FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, high_watermark=0, image_differs=True))

    refused = lone.answers[ask(lone, 0)]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.NOT_READY and "differs from that of a majority" in refused.message
