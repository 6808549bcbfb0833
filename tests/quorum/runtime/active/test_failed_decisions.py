"""A mistake of this program in a decision, before anything was appended: what it costs, whom, and who hears of it."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, OffsetAndEpoch
from metadata_log.format.records import METADATA_VERSION_MAX, Endpoint, FeatureRange, NoOp, RemoveTopic, Topic
from metadata_log.image.metadata_image import MetadataImage
from metaquorum import AdminError
from quorum.controller.protocol.commands import (
    BrokerContact,
    Command,
    FenceBroker,
    FenceBrokerReply,
    RegisterBrokerCommand,
    RegisterBrokerReply,
)
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.core.protocol.problem import texts
from quorum.runtime.active.decisions import LOG_INTERVAL_MS, SHOWN_MS, SHUNNED_MS
from quorum.runtime.loop import NodeLoop
from quorum.runtime.protocol.requests import MetadataFetch, Refused
from quorum.runtime.protocol.world import BrokerFetch, ReplyTo, Submission
from quorum.runtime.status import node_status
from tests.quorum.runtime.active.test_request_ids import answer, identity, send, set_to
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of
from tests.quorum.runtime.quorum_of_three import quorum_of_three

POISON = CreateTopics((NewTopic("poison", 1, 1),))


class Poisoned(LoneNode):
    """A lone leader whose controller trips over what `trips` says. `due` trips while `due_trips`."""

    def __init__(self, trips: Callable[[Command], bool], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(formatted_disk(voters_of([1])))
        self.run_until_idle()
        controller = self.node.active.controller
        decide = controller.decide

        def tripping(image: Any, command: Command, now_ms: int, wall_ms: int) -> Decision:
            if trips(command):
                raise KeyError("nobody thought of that")
            return decide(image, command, now_ms, wall_ms)

        monkeypatch.setattr(controller, "decide", tripping)

    def refused(self, reply_to: ReplyTo) -> Refused:
        refused = answer(self, reply_to)
        assert isinstance(refused, Refused)
        return refused

    @property
    def problem(self) -> str:
        return texts(node_status(self.node, self.now_ms).problems)

    def register(self, broker_id: NodeId) -> ReplyTo:
        endpoints, features = (
            (Endpoint("PLAINTEXT", "127.0.0.1", 9_092),),
            (FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),),
        )
        incarnation, log_dir = bytes([broker_id]) * 16, bytes([broker_id + 100]) * 16
        return send(self, RegisterBrokerCommand(broker_id, incarnation, endpoints, features, None, (log_dir,)), None)

    def fetch(self, broker_id: NodeId, broker_epoch: int) -> ReplyTo:
        """That broker fetches from the log's beginning."""
        reply_to = self.new_reply_to()
        incarnation, start = bytes([broker_id]) * 16, self.node.log.shape.start
        chain = self.node.log.chain_at(start.offset)
        assert chain is not None
        place = OffsetAndEpoch(start.offset, start.epoch)
        fetch = MetadataFetch(
            broker_id, broker_epoch, incarnation, place.offset, place.epoch, chain, False, False, (), 0, 1 << 20
        )
        self.turn(BrokerFetch(fetch, reply_to))
        return reply_to

    def lead_again(self) -> None:
        """Nobody else is there to succeed it."""
        self.elect()
        self.run_until_idle()
        assert self.node.active.on


def is_poison(command: Command) -> bool:
    return command == POISON


def test_a_poisonous_request_is_refused_and_costs_nobody_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written; the client is told that it was done by nobody; the next request finds the same leader."""
    lone = Poisoned(is_poison, monkeypatch)
    before = lone.node.log.shape.end

    refused = lone.refused(send(lone, POISON, identity()))

    assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "KeyError" in refused.message and "nothing was done" in refused.message
    assert (lone.node.active.on, lone.stopped, lone.node.log.shape.end) == (True, None, before)
    assert not isinstance(answer(lone, send(lone, set_to("1"), identity(2))), Refused)


def test_it_is_answered_at_once_and_not_with_what_a_resignation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client repeats what is refused with NOT_CONTROLLER. So the poison would go from leader to leader."""
    lone = Poisoned(lambda command: isinstance(command, FenceBroker), monkeypatch)
    reply_to = send(lone, FenceBroker(7), identity())
    refused = lone.answers[reply_to]
    assert isinstance(refused, Refused) and refused.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not lone.node.core.is_leading, "what fences may be half begun"


def test_it_is_counted_logged_with_its_traceback_and_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A problem of the node for ten minutes, and a number for ever; of a flood one traceback a second."""
    lone = Poisoned(is_poison, monkeypatch)
    assert lone.problem == ""
    with caplog.at_level(logging.ERROR):
        lone.refused(send(lone, POISON, None))
        first = lone.problem
        for _ in range(4):
            lone.refused(send(lone, POISON, None))
        lone.now_ms += LOG_INTERVAL_MS
        lone.refused(send(lone, POISON, None))
    told = [record for record in caplog.records if record.exc_info]
    assert len(told) == 2
    assert "poison" in told[0].getMessage() and told[0].exc_info is not None
    assert "tripping" in caplog.text, "the traceback says where"

    assert "CreateTopics: KeyError" in first
    assert lone.problem == first, "another text would be another line of the log for every failure"
    lone.now_ms += SHOWN_MS
    assert lone.problem == ""
    assert node_status(lone.node, lone.now_ms).failed_decisions == 6


@pytest.mark.parametrize(
    "records",
    [
        (RemoveTopic("nobody", bytes(range(16))),),
        (Topic("t", cast(Any, 7)),),
        (Topic("t", bytes(16)), NoOp(), object()),
    ],
    ids=["the image does not take them", "no bytes can be made of them", "no record at all"],
)
def test_records_that_nobody_could_write_are_refused_before_they_are_written(
    monkeypatch: pytest.MonkeyPatch, records: tuple[Any, ...]
) -> None:
    """Deciding ends where the batch is sealed: neither image nor log has moved."""
    lone = Poisoned(lambda _: False, monkeypatch)
    before = lone.node.log.shape.end
    monkeypatch.setattr(lone.node.active.controller, "decide", lambda *_: Decision(records, FenceBrokerReply()))
    assert lone.refused(send(lone, POISON, None)).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (lone.node.active.on, lone.stopped, lone.node.log.shape.end) == (True, None, before)


def test_after_the_append_the_process_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has the batch and the image has not: only opening the log anew makes one of them."""
    lone = Poisoned(lambda _: False, monkeypatch)

    def propose(_: object, batch: Batch) -> None:
        raise KeyError(f"after {batch.end_offset}")

    monkeypatch.setattr(lone.node.state, "propose", propose)
    with pytest.raises(KeyError, match="after"):  # whoever drives the node stops it (`NodeLoop._turn`)
        send(lone, set_to("1"), None)


def test_a_broker_whose_contact_is_poisonous_makes_each_controller_resign_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The contact may have half changed who is fenced: the soft state is built anew. The broker asks again, of the next leader
    too; so that this is not the end of all leaders, nothing more is decided for it, and the others are served.
    """
    sick: set[NodeId] = set()
    lone = Poisoned(lambda command: isinstance(command, BrokerContact) and command.broker_id in sick, monkeypatch)
    epochs = {}
    for broker_id in (7, 8):
        registered = answer(lone, lone.register(broker_id))
        assert isinstance(registered, RegisterBrokerReply)
        epochs[broker_id] = registered.broker_epoch
    sick.add(7)

    assert lone.refused(lone.fetch(7, epochs[7])).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not lone.node.core.is_leading
    lone.lead_again()
    for _ in range(3):
        refused = lone.refused(lone.fetch(7, epochs[7]))
        assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR and "broker 7" in refused.message
        assert lone.node.active.on
    assert not isinstance(answer(lone, lone.fetch(8, epochs[8])), Refused)

    lone.now_ms += SHUNNED_MS
    lone.refused(lone.fetch(7, epochs[7]))
    assert not lone.node.core.is_leading
    assert lone.node.active.accidents.count == 2


def test_a_poisonous_registration_makes_each_controller_resign_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registration may begin the broker's way out; and a broker asks again until it is registered."""
    lone = Poisoned(lambda command: isinstance(command, RegisterBrokerCommand), monkeypatch)
    assert lone.refused(lone.register(7)).code is ErrorCode.UNKNOWN_SERVER_ERROR
    lone.lead_again()
    assert lone.refused(lone.register(7)).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert lone.node.active.on


@pytest.mark.parametrize("what", ["decide", "due"])
def test_a_mistake_in_what_time_brings_makes_the_leader_resign(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Nobody is there to be refused, and what is due is due again: another controller is to try, with new soft state."""
    lone = Poisoned(lambda _: False, monkeypatch)
    controller = lone.node.active.controller

    def trip(*_: object) -> None:
        raise AssertionError("a law is broken")

    if what == "decide":
        monkeypatch.setattr(controller, "due", lambda *_: FenceBroker(7))
    monkeypatch.setattr(controller, what, trip)
    monkeypatch.setattr(controller, "next_deadline_ms", lambda: lone.now_ms)
    lone.node.next_deadline_ms()
    lone.turn()
    assert not lone.node.core.is_leading and lone.stopped is None
    monkeypatch.undo()
    assert ("FenceBroker: " if what == "decide" else "the look for what is due: ") in lone.problem
    lone.lead_again()


def test_a_mistake_in_the_middle_of_a_long_decision_never_ends_as_nothing_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first slice is in the log, and the walk has gone on: the caller hears that nobody knows, and the leader resigns."""
    lone = Poisoned(lambda _: False, monkeypatch)
    steps = iter([Decision((NoOp(),), FenceBrokerReply(), then=FenceBroker(7))])

    def decide(*_: object) -> Decision:
        for step in steps:
            return step
        raise IndexError("the second slice")

    monkeypatch.setattr(lone.node.active.controller, "decide", decide)
    reply_to = lone.new_reply_to()
    lone.turn(Submission(FenceBroker(7), reply_to, lone.now_ms + 1_000))
    lone.turn()
    assert lone.refused(reply_to).code is ErrorCode.REQUEST_TIMED_OUT
    assert not lone.node.core.is_leading


def test_who_waits_behind_a_mistake_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of the same turn, decided before it and not yet committed, or after it: none is left without an answer."""
    lone = Poisoned(lambda command: isinstance(command, FenceBroker), monkeypatch)
    before, bad, after = (lone.new_reply_to() for _ in range(3))
    deadline_ms = lone.now_ms + 1_000
    lone.turn(
        Submission(set_to("1"), before, deadline_ms),
        Submission(FenceBroker(7), bad, deadline_ms),
        Submission(set_to("2"), after, deadline_ms),
    )
    codes = [lone.refused(reply_to).code for reply_to in (before, bad, after)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER]


@pytest.mark.slow
async def test_one_request_stops_no_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client, real gRPC and three controllers: the poison is tasted once, by the leader alone, and all three go on."""
    tasted: list[int] = []

    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        for node_id, loop in quorum.loops.items():
            monkeypatch.setattr(loop.node.active.controller, "decide", _poisoned(loop, partial(tasted.append, node_id)))
        leader = next(loop for loop in quorum.loops.values() if loop.status().is_active)
        epoch = leader.status().epoch
        with pytest.raises(AdminError) as caught:
            await client.create_topic("poison", 1, 1)
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert tasted == [leader.status().node_id]
        await client.alter_configs([])
        assert (leader.status().is_active, leader.status().epoch) == (True, epoch)
        assert all(loop.node.stopped is None for loop in quorum.loops.values())


def _poisoned(loop: NodeLoop, note: Callable[[], None]) -> Callable[..., Decision]:
    decide = loop.node.active.controller.decide

    def tripping(image: MetadataImage, command: Command, now_ms: int, wall_ms: int) -> Decision:
        if is_poison(command):
            note()
            raise KeyError("nobody thought of that")
        return decide(image, command, now_ms, wall_ms)

    return tripping
