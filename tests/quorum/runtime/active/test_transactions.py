"""A request of several batches is one transaction: nothing else is decided meanwhile, and all of it is done, or nothing."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import (
    BROKER_RESOURCE,
    SUPPORTED,
    AbortTransaction,
    BeginTransaction,
    Config,
    EndTransaction,
    LeaderChange,
    Partition,
    RequestOutcome,
    SnapshotMark,
    Topic,
)
from metadata_log.image.replay import Replay
from metadata_log.store.log_config import LogConfig
from quorum.controller.controller import Controller
from quorum.controller.protocol.commands import Command, RegisterBrokerReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreateTopics,
    CreateTopicsReply,
    NewPartitions,
    NewTopic,
)
from quorum.core.protocol.inputs import ShutDown
from quorum.core.protocol.messages import RegisterControllerRequest, RegisterControllerResponse
from quorum.runtime.active import active_controller
from quorum.runtime.node import Node
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched, ReadView, Refused, SnapshotMarked
from quorum.runtime.protocol.world import (
    Answer,
    BrokerFetch,
    Event,
    RaftRequest,
    Read,
    ReplyTo,
    SnapshotWanted,
    Submission,
)
from tests.quorum.controller.cluster import incarnation, registration
from tests.quorum.runtime.active.brokers import register, uuid
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of
from tests.quorum.runtime.quorum_of_three import quorum_of_three, until
from tests.sim.world.disk import MemoryDirectory

CONFIG = NodeConfig(
    controller=ControllerConfig(
        transaction_slice_records=4, one_batch_records_max=4, transaction_timeout_ms=500, session_timeout_ms=9_000
    ),
    log=LogConfig(segment_bytes=2_048, tail_bytes=700),
)
LARGE = CreateTopics((NewTopic("large", 40, 1),))
"""Eleven slices: the topic with its first four partitions, nine times four partitions, and the end."""


def started(disk: MemoryDirectory | None = None, config: NodeConfig = CONFIG) -> LoneNode:
    """An active controller of one voter, with broker 7 online."""
    lone = LoneNode(disk or formatted_disk(voters_of([1])), config)
    lone.run_until_idle()
    while lone.node.has_more_to_do:
        lone.turn()
        lone.run_until_idle()
    if disk is None:
        epoch = register(lone, 7)
        send(lone, BrokerFetch(fetch_of(lone, 7, epoch), lone.new_reply_to()))
        lone.run_until_idle()
        assert not lone.node.state.committed.brokers[7].fenced
    return lone


def fetch_of(lone: LoneNode, broker_id: int, broker_epoch: int, incarnation: bytes | None = None) -> MetadataFetch:
    shape, chain = lone.node.log.shape, lone.node.log.chain_at(lone.node.state.applied)
    assert chain is not None
    where = lone.node.state.applied
    epoch = shape.epoch_below(where)
    assert epoch is not None
    return MetadataFetch(
        broker_id, broker_epoch, incarnation or uuid(broker_id), where, epoch, chain, False, False, (), 0, 1 << 20
    )


def send(lone: LoneNode, event: Event) -> None:
    """One turn, without the jobs that it starts: the next slice needs another turn."""
    lone.turn(event)


def submit(lone: LoneNode, command: Command, identity: RequestIdentity | None = None) -> ReplyTo:
    reply_to = lone.new_reply_to()
    send(lone, Submission(command, reply_to, lone.now_ms + 60_000, identity))
    return reply_to


def settle(lone: LoneNode) -> None:
    """Turns and jobs until nothing is left."""
    lone.run_until_idle()
    while lone.node.has_more_to_do:
        lone.turn()
        lone.run_until_idle()


def is_active(lone: LoneNode) -> bool:
    return lone.node.active.on


def identity(number: int = 1) -> RequestIdentity:
    return RequestIdentity(number.to_bytes(16, "big"), bytes([7]) * 32, "anonymous", 0)


def a_config(value: str) -> Command:
    operation = ConfigOperation(ConfigOperationKind.SET, "log.retention.ms", value)
    return AlterConfigs((ConfigAlteration(BROKER_RESOURCE, "", (operation,)),))


def written(node: Node, since: int) -> list[type]:
    """The types of the records from `since` on, each run of equal types once."""
    types: list[type] = []
    for batch in node.log.read(since, 1 << 20):
        for record in decode_batch(batch):
            if not types or types[-1] is not type(record):
                types.append(type(record))
    return types


def refused_with(answer: Answer) -> tuple[ErrorCode, str]:
    assert isinstance(answer, Refused), answer
    return answer.code, answer.message


def replayed(node: Node) -> Replay:
    """What a follower or broker makes of the whole log."""
    replay = Replay()
    replay.apply(node.log.read(0, 1 << 24))
    return replay


def test_a_large_request_is_one_transaction() -> None:
    """Begin, the slices, the outcome of the request, and End; the answer comes once all of it is committed and applied."""
    lone = started()
    begin = lone.node.log.end
    reply_to = submit(lone, LARGE, identity())
    slices = 1
    while lone.node.state.transaction is not None:
        assert reply_to not in lone.answers
        lone.turn()
        slices += 1
    assert slices == 11
    assert reply_to not in lone.answers, "End is appended, and not committed"
    settle(lone)
    answer = lone.answers[reply_to]
    assert isinstance(answer, CreateTopicsReply)
    assert answer.offset == lone.node.log.end - 1, "whoever has End has all of its batch, and so all of the transaction"
    assert written(lone.node, begin) == [BeginTransaction, Topic, Partition, RequestOutcome, EndTransaction]
    assert lone.node.state.committed.partition_count == 40
    assert replayed(lone.node).image == lone.node.state.committed
    assert lone.node.tallies.transactions.values == {("begun",): 1, ("ended",): 1, ("aborted",): 0}
    again = submit(lone, LARGE, identity())
    settle(lone)
    assert lone.answers[again] == answer, "the same answer, with the same offset"


def test_nothing_of_it_is_seen_before_its_end() -> None:
    """The slices are committed and applied; reads, local digests and the image show the state before the transaction."""
    lone = started()
    before = lone.node.state.committed
    submit(lone, LARGE)
    lone.finish(lone.flushes()[0])
    assert lone.node.state.transaction is not None
    assert lone.node.state.applied > before.offset
    assert lone.node.state.committed is before
    reply_to = lone.new_reply_to()
    send(lone, Read(reply_to, lone.now_ms + 1_000))
    while reply_to not in lone.answers:
        lone.finish(lone.flushes()[0])
    view = lone.answers[reply_to]
    assert isinstance(view, ReadView)
    if lone.node.state.transaction is not None:
        assert view.image.topic("large") is None
    settle(lone)
    assert lone.node.state.committed.topic("large") is not None


def test_every_other_decision_waits_until_it_is_over() -> None:
    """Another client's request, a mark and a registration stand after the end; none of them is lost, or between the slices."""
    lone = started()
    begin = lone.node.log.end
    large = submit(lone, LARGE)
    other = submit(lone, a_config("1"))
    marked = lone.new_reply_to()
    send(lone, SnapshotWanted("asked", marked, lone.now_ms + 60_000))
    settle(lone)
    assert isinstance(lone.answers[large], CreateTopicsReply)
    assert isinstance(lone.answers[other], AlterConfigsReply)
    assert isinstance(lone.answers[marked], SnapshotMarked)
    assert written(lone.node, begin) == [BeginTransaction, Topic, Partition, EndTransaction, Config, SnapshotMark]


def test_a_large_request_waits_for_the_commits_of_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers that are far behind hear of no leader in time. So the leader rests until its records are applied, takes no turns
    for nothing meanwhile, and begins no other request."""
    monkeypatch.setattr(active_controller, "AHEAD_RECORDS_MAX", 10)
    lone = started()
    before = lone.node.log.end
    asked = submit(lone, LARGE)
    while lone.node.has_more_to_do:
        lone.turn()  # the jobs wait, and so does the flush without which nothing is committed
    assert 10 < lone.node.log.end - before <= 10 + 5 and lone.node.state.transaction is not None
    other, end = submit(lone, a_config("5")), lone.node.log.end
    lone.turn()
    assert lone.node.log.end == end and not lone.node.has_more_to_do
    settle(lone)
    assert isinstance(lone.answers[asked], CreateTopicsReply) and isinstance(lone.answers[other], AlterConfigsReply)
    assert lone.node.state.committed.partition_count == 40


def test_a_waiting_request_is_looked_up_after_the_transaction() -> None:
    """A waiting repetition of the large request gets the first answer. The outcome of the large request may replace the one by
    which a waiting request was known, and then this request is refused."""
    config = CONFIG._replace(controller=CONFIG.controller._replace(request_outcomes_max=1))
    lone = started(config=config)
    old = submit(lone, a_config("1"), identity(1))
    settle(lone)
    assert isinstance(lone.answers[old], AlterConfigsReply)
    asked = identity(2)._replace(client_high_watermark=lone.node.log.end)
    large = submit(lone, LARGE, asked)
    repeated = submit(lone, LARGE, asked)
    expired = submit(lone, a_config("1"), identity(1))
    assert repeated not in lone.answers and expired not in lone.answers
    settle(lone)
    assert isinstance(lone.answers[large], CreateTopicsReply)
    assert lone.answers[repeated] == lone.answers[large]
    assert refused_with(lone.answers[expired])[0] is ErrorCode.REQUEST_ID_EXPIRED


def test_a_waiting_request_keeps_its_deadline() -> None:
    """It was not begun, so its client hears that nothing was done."""
    lone = started()
    submit(lone, LARGE)
    reply_to = lone.new_reply_to()
    send(lone, Submission(a_config("1"), reply_to, lone.now_ms + 5))
    lone.now_ms += 6
    lone.turn()
    assert refused_with(lone.answers[reply_to])[0] is ErrorCode.NOT_READY
    assert lone.node.state.transaction is not None


def test_a_broker_is_heard_meanwhile_and_not_decided_on() -> None:
    """Its fetch refreshes its session and is answered; a process that is not registered is still refused (M2)."""
    lone = started()
    epoch = lone.node.state.committed.brokers[7].broker_epoch
    submit(lone, LARGE)
    lone.now_ms += 400
    good, stranger = lone.new_reply_to(), lone.new_reply_to()
    send(lone, BrokerFetch(replace(fetch_of(lone, 7, epoch), wants_fence=True), good))
    send(lone, BrokerFetch(fetch_of(lone, 7, epoch, incarnation=bytes(16)), stranger))
    assert isinstance(lone.answers[good], MetadataFetched)
    assert refused_with(lone.answers[stranger])[0] is ErrorCode.STALE_BROKER_EPOCH
    standing = lone.node.active.controller.standing(lone.node.state.committed, 7)
    assert standing.last_contact_ms == lone.now_ms
    settle(lone)
    assert not lone.node.state.committed.brokers[7].fenced, "its wish was not decided on, and it may ask again"


def test_a_session_that_ends_meanwhile_ends_after_it() -> None:
    """The fencing is the first decision after the transaction, not one inside of it."""
    lone = started()
    begin = lone.node.log.end
    lone.now_ms += CONFIG.controller.session_timeout_ms - 1
    submit(lone, LARGE)
    more = submit(lone, CreateTopics((NewTopic("more", 40, 1),)))
    lone.now_ms += 2
    lone.turn()
    assert lone.node.state.transaction is not None
    settle(lone)
    assert lone.node.state.committed.brokers[7].fenced
    types = written(lone.node, begin)
    assert types[:4] == [BeginTransaction, Topic, Partition, EndTransaction]
    assert more in lone.answers, (
        "it waited, and was decided after the fencing: no broker was left to lead its partitions"
    )
    assert lone.node.state.committed.topic("more") is None


def test_a_client_hears_at_its_deadline_that_the_transaction_goes_on() -> None:
    """The client looks at the outcome later: the request is not given up, and is answered once."""
    lone = started()
    asked = lone.new_reply_to()
    send(lone, Submission(LARGE, asked, lone.now_ms + 50, identity()))
    lone.now_ms += 50
    lone.turn()
    told = lone.answers.pop(asked)
    assert isinstance(told, Refused) and told.code is ErrorCode.REQUEST_TIMED_OUT and "goes on" in told.message
    assert lone.node.state.transaction is not None
    settle(lone)
    assert asked not in lone.answers and lone.node.state.committed.partition_count == 40
    again = submit(lone, LARGE, identity())
    settle(lone)
    assert isinstance(lone.answers[again], CreateTopicsReply)


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    """With one record; its client hears that nothing was done, and the others' requests go on."""
    lone = started()
    begin = lone.node.log.end
    large = submit(lone, LARGE, identity())
    other = submit(lone, a_config("1"))
    lone.now_ms += CONFIG.controller.transaction_timeout_ms + 1
    settle(lone)
    code, text = refused_with(lone.answers[large])
    assert (code, "nothing was done" in text) == (ErrorCode.POLICY_VIOLATION, True)
    assert isinstance(lone.answers[other], AlterConfigsReply)
    assert written(lone.node, begin) == [BeginTransaction, Topic, Partition, AbortTransaction, Config]
    assert lone.node.state.committed.topic("large") is None
    assert replayed(lone.node).image == lone.node.state.committed
    assert lone.node.tallies.transactions.values == {("begun",): 1, ("ended",): 0, ("aborted",): 1}
    again = submit(lone, LARGE, identity())
    settle(lone)
    assert isinstance(lone.answers[again], CreateTopicsReply), "it was never done, so the same id is new"


def test_a_transaction_that_waits_for_commits_too_long_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader rests until its records are applied, and nothing is applied. It looks at the time meanwhile: otherwise the next
    commit, much later, would be the first to end the transaction.
    """
    monkeypatch.setattr(active_controller, "AHEAD_RECORDS_MAX", 10)
    lone = started()
    large = submit(lone, LARGE, identity())
    began_ms = lone.now_ms
    while lone.node.has_more_to_do:
        lone.turn()
    end, over_ms = lone.node.log.end, began_ms + CONFIG.controller.transaction_timeout_ms + 1
    while lone.now_ms < over_ms:
        deadline_ms = lone.node.next_deadline_ms()
        assert deadline_ms is not None and lone.now_ms < deadline_ms <= over_ms, "a turn comes in time"
        lone.now_ms = deadline_ms
        assert lone.node.state.transaction is not None
        lone.turn()
    assert lone.node.state.transaction is None and written(lone.node, end) == [AbortTransaction]
    assert large not in lone.answers and not lone.node.has_more_to_do
    settle(lone)
    code, text = refused_with(lone.answers[large])
    assert (code, "nothing was done" in text) == (ErrorCode.POLICY_VIOLATION, True)
    assert lone.node.state.committed.topic("large") is None


class Bug(Exception):
    """A mistake in a decision."""


@pytest.mark.parametrize(
    "error", [Bug("a bug"), ControllerError(ErrorCode.POLICY_VIOLATION, "not this; nothing was done")]
)
def test_a_transaction_whose_slice_fails_is_aborted(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug or a refusal in a later slice leaves nothing of the earlier ones, and the leader leads on."""
    lone = started()
    begin = lone.node.log.end
    large = submit(lone, LARGE, identity())
    decide = Controller.decide

    def failing(*_: object, **__: object) -> Decision:
        raise error

    monkeypatch.setattr(Controller, "decide", failing)
    lone.turn()
    monkeypatch.setattr(Controller, "decide", decide)
    settle(lone)
    code, text = refused_with(lone.answers[large])
    assert code is (ErrorCode.UNKNOWN_SERVER_ERROR if isinstance(error, Bug) else ErrorCode.POLICY_VIOLATION)
    assert "nothing was done" in text
    assert written(lone.node, begin) == [BeginTransaction, Topic, Partition, AbortTransaction]
    assert lone.node.active.on
    assert replayed(lone.node).image == lone.node.state.committed


def test_a_resigning_leader_tells_the_client_that_nothing_was_done() -> None:
    """Only this controller could have ended the transaction, and it did not: the next one aborts it."""
    lone = started()
    large = submit(lone, LARGE, identity())
    send(lone, ShutDown())
    assert refused_with(lone.answers[large])[0] is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("is_kill", [True, False])
def test_the_next_active_controller_aborts_it_before_its_first_decision(is_kill: bool) -> None:
    """After a kill and a restart the log ends inside of a transaction. The client repeats its request, which is done once."""
    lone = started()
    before = lone.node.state.committed
    submit(lone, LARGE, identity())
    lone.finish(lone.flushes()[0])
    assert lone.node.state.transaction is not None
    end = lone.node.log.shape.flushed_end

    again = started(lone.disk.kill() if is_kill else lone.disk.crash(random.Random(1)))

    types = written(again.node, end)
    assert types[types.index(LeaderChange) :][:2] == [LeaderChange, AbortTransaction]
    assert again.node.state.committed.digest == before.digest
    reply_to = submit(again, LARGE, identity())
    settle(again)
    assert isinstance(again.answers[reply_to], CreateTopicsReply)
    assert again.node.state.committed.partition_count == 40
    assert replayed(again.node).image == again.node.state.committed


def test_a_leader_that_is_deposed_inside_of_it_follows_the_log_there() -> None:
    """Its replay goes on inside of the transaction, up to the Abort of the next leader, or on to an End that is committed."""
    for end in (AbortTransaction("deposed"), EndTransaction()):
        lone = started()
        submit(lone, LARGE)
        lone.finish(lone.flushes()[0])
        state = lone.node.state
        at, applied = lone.node.log, state.applied
        assert state.transaction is not None and state.applied > state.committed.offset
        send(lone, ShutDown())
        lone.run_until_idle()
        until = at.shape.flushed_end
        while state.applied < until:
            state.apply(at, until)
        batch = at.append([end], lone.node.core.epoch, lone.wall_ms)
        state.apply(at, batch.end_offset)
        assert applied < state.applied == at.end
        assert (state.committed.topic("large") is None) is isinstance(end, AbortTransaction)
        assert replayed(lone.node).image == state.committed
        state.committed.check_invariants()


def test_a_full_disk_inside_of_it_costs_the_leadership() -> None:
    """Neither the slice nor the Abort has room: the leader resigns, and the client hears that nothing was done."""
    lone = started()
    large = submit(lone, CreateTopics((NewTopic("large", 400, 1),)), identity())
    other = submit(lone, a_config("1"))
    lone.disk.limit_space(lone.disk.used_bytes)
    settle(lone)
    assert not is_active(lone)
    for reply_to in (large, other):
        assert refused_with(lone.answers[reply_to])[0] in (ErrorCode.NOT_CONTROLLER, ErrorCode.STORAGE_ERROR)
    lone.disk.limit_space(None)
    lone.now_ms += 2_000
    while not is_active(lone):
        lone.now_ms += 1_000
        lone.turn()
        settle(lone)
    assert lone.node.state.committed.topic("large") is None
    assert replayed(lone.node).image == lone.node.state.committed


def test_a_large_validation_is_not_remembered() -> None:
    """It writes nothing at all, and no outcome of its id: the same id may be used for the request itself."""
    lone = started()
    end = lone.node.log.end
    reply_to = submit(lone, replace(LARGE, validate_only=True), identity())
    settle(lone)
    assert isinstance(lone.answers[reply_to], CreateTopicsReply)
    assert lone.node.log.end == end


def test_growth_is_a_transaction_too() -> None:
    """The topic has its old number of partitions until the end."""
    lone = started()
    first = submit(lone, CreateTopics((NewTopic("t", 1, 1),)))
    settle(lone)
    assert isinstance(lone.answers[first], CreateTopicsReply)
    begin = lone.node.log.end
    submit(lone, CreatePartitions((NewPartitions("t", 20),)))
    lone.finish(lone.flushes()[0])
    assert lone.node.state.committed.partition_count == 1
    settle(lone)
    assert written(lone.node, begin) == [BeginTransaction, Partition, EndTransaction]
    assert lone.node.state.committed.partition_count == 20


@pytest.mark.slow
async def test_three_controllers_create_what_no_batch_could_hold(tmp_path: Path) -> None:
    """Over gRPC: 15,000 partitions in one request, and a second client's request beside it; all three images agree."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client, quorum.client() as other:
        await client.list_topics()
        leader = next(each for each in quorum.loops.values() if each.status().is_active)
        registered = await leader.submit(registration(7), 10_000)
        assert isinstance(registered, RegisterBrokerReply)
        fetch = MetadataFetch(7, registered.broker_epoch, incarnation(7), 0, 0, b"", False, False, (), 0, 1 << 20)
        where = leader.node.state.applied
        chain, epoch = leader.node.log.chain_at(where), leader.node.log.shape.epoch_below(where)
        assert chain is not None and epoch is not None
        await leader.metadata_fetch(replace(fetch, offset=where, epoch=epoch, chain=chain))
        await asyncio.gather(client.create_topic("large", 15_000, 1), other.create_topic("small", 1, 1))
        await until(lambda: len({each.status().applied_offset for each in quorum.loops.values()}) == 1)
        images = [each.node.state.committed for each in quorum.loops.values()]
        assert {image.digest for image in images} == {images[0].digest}
        assert images[0].partition_count == 15_001
        assert leader.tallies.transactions.values[("ended",)] == 1


def test_a_controller_registers_after_it() -> None:
    """An abort would take the registration along: the controller hears NOT_READY, and asks again."""
    lone = started()
    request = RegisterControllerRequest(ReplicaKey(3, uuid(3)), (), SUPPORTED)
    large = submit(lone, LARGE)
    for error in (ErrorCode.NOT_READY, ErrorCode.NONE):
        asked = lone.new_reply_to()
        send(lone, RaftRequest(request, asked))
        answer = lone.answers[asked]
        assert isinstance(answer, RegisterControllerResponse) and answer.error is error
        settle(lone)
    assert isinstance(lone.answers[large], CreateTopicsReply)
    assert 3 in lone.node.state.committed.controllers
