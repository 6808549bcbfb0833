"""A request with an id takes effect once, whatever its client has to do to get the answer."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.format.records import BROKER_RESOURCE, NoOp
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import Command, FenceBroker, FenceBrokerReply, RegisterBrokerReply
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
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    NewPartitions,
    NewTopic,
)
from quorum.core.protocol.inputs import ShutDown
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import MetadataFetch, Refused
from quorum.runtime.protocol.world import Answer, BrokerFetch, ReplyTo, Submission
from tests.quorum.controller.cluster import incarnation, registration
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory


def started(disk: MemoryDirectory | None = None, config: NodeConfig | None = None) -> LoneNode:
    lone = LoneNode(disk or formatted_disk(voters_of([1])), config)
    lone.run_until_idle()
    return lone


def identity(number: int = 1, payload: int = 7) -> RequestIdentity:
    return RequestIdentity(number.to_bytes(16, "big"), bytes([payload]) * 32, "anonymous", 0)


def set_to(value: str, *, validate_only: bool = False) -> Command:
    """A change that undoes others when it is made again."""
    operation = ConfigOperation(ConfigOperationKind.SET, "log.retention.ms", value)
    return AlterConfigs((ConfigAlteration(BROKER_RESOURCE, "", (operation,)),), validate_only)


def send(lone: LoneNode, command: Command, asked: RequestIdentity | None) -> ReplyTo:
    reply_to = lone.new_reply_to()
    lone.turn(Submission(command, reply_to, lone.now_ms + 1_000, asked))
    return reply_to


def answer(lone: LoneNode, reply_to: ReplyTo) -> Answer:
    lone.run_until_idle()
    return lone.answers[reply_to]


def refusal(lone: LoneNode, reply_to: ReplyTo) -> ErrorCode:
    refused = answer(lone, reply_to)
    assert isinstance(refused, Refused)
    return refused.code


def check_repeated_after_another_change(lone: LoneNode, first: Answer) -> None:
    """Request 1 has set 1, and was told `first`; request 2 sets 2; then request 1 comes again."""
    assert isinstance(first, AlterConfigsReply)
    answer(lone, send(lone, set_to("2"), identity(2)))
    end = lone.node.log.shape.end

    again = answer(lone, send(lone, set_to("1"), identity(1)))

    assert again == first
    assert lone.node.log.shape.end == end
    assert lone.node.state.committed.config(BROKER_RESOURCE, "")["log.retention.ms"] == "2"


def test_a_repetition_gets_the_first_answer_and_writes_nothing() -> None:
    """Although another value was set meanwhile, which a second effect would undo."""
    lone = started()
    first = answer(lone, send(lone, set_to("1"), identity(1)))
    check_repeated_after_another_change(lone, first)


def test_a_change_that_found_nothing_to_do_is_done_all_the_same() -> None:
    """One client sets 1, which it is already, and misses the answer; another sets 2; the first one's repetition must not undo
    that: its change stands before the other's.
    """
    lone = started()
    answer(lone, send(lone, set_to("1"), None))
    first = answer(lone, send(lone, set_to("1"), identity(1)))
    check_repeated_after_another_change(lone, first)


def test_a_change_that_found_nothing_to_do_waits_for_its_outcome_to_be_committed() -> None:
    """And if the time is up before, it may have happened: whoever remembers it will say that it has."""
    lone = started()
    answer(lone, send(lone, set_to("1"), None))
    reply_to = send(lone, set_to("1"), identity())
    lone.now_ms += 1_000
    lone.turn()
    refused = lone.answers[reply_to]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.REQUEST_TIMED_OUT


def test_what_changes_nothing_writes_nothing_where_no_id_asks_for_it() -> None:
    lone = started()
    answer(lone, send(lone, set_to("1"), None))
    end = lone.node.log.shape.end
    assert isinstance(answer(lone, send(lone, set_to("1"), None)), AlterConfigsReply)
    assert lone.node.log.shape.end == end


@pytest.mark.parametrize("command", [set_to("2", validate_only=True), set_to("no number")])
def test_what_is_tried_out_or_refused_in_each_part_is_not_remembered(command: Command) -> None:
    """It could do nothing when it came, so a repetition may be judged anew, and the log stays as it is."""
    lone = started()
    end = lone.node.log.shape.end
    assert isinstance(answer(lone, send(lone, command, identity())), AlterConfigsReply)
    assert lone.node.log.shape.end == end
    assert lone.node.state.committed.newest_request is None


def test_a_repetition_that_comes_before_the_commit_waits_for_it() -> None:
    """It has seen what is only proposed, and must not be told of it yet."""
    lone = started()
    first = send(lone, set_to("1"), identity())
    second = send(lone, set_to("1"), identity())
    assert lone.answers.keys().isdisjoint({first, second})
    assert answer(lone, second) == answer(lone, first)


def test_a_restarted_node_remembers() -> None:
    disk = formatted_disk(voters_of([1]))
    lone = started(disk)
    first = answer(lone, send(lone, set_to("1"), identity()))
    lone.turn(ShutDown())
    lone.node.log.close()

    lone = started(disk)

    assert answer(lone, send(lone, set_to("1"), identity())) == first


def test_another_request_under_the_same_id_is_refused() -> None:
    lone = started()
    answer(lone, send(lone, set_to("1"), identity()))
    assert refusal(lone, send(lone, set_to("2"), identity(payload=8))) is ErrorCode.INVALID_REQUEST


def test_refusals_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was refused did nothing; when it comes again it is judged by the cluster as it then is."""
    lone = started()
    assert refusal(lone, send(lone, FenceBroker(7), identity())) is ErrorCode.BROKER_ID_NOT_REGISTERED
    monkeypatch.setattr(lone.node.active.controller, "decide", lambda *_: Decision((NoOp(),), FenceBrokerReply()))
    assert isinstance(answer(lone, send(lone, FenceBroker(7), identity())), FenceBrokerReply)


def test_a_decision_in_several_batches_is_remembered_with_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repetition that comes in the middle waits for the end, and is told the same."""
    lone = started()
    steps = [Decision((NoOp(),), FenceBrokerReply(), then=FenceBroker(7)) for _ in range(3)]
    steps.append(Decision((), FenceBrokerReply(broker_id=7)))
    monkeypatch.setattr(lone.node.active.controller, "decide", lambda *_: steps.pop(0))
    first, second = lone.new_reply_to(), lone.new_reply_to()
    lone.turn(
        Submission(FenceBroker(7), first, lone.now_ms + 1_000, identity()),
        Submission(FenceBroker(7), second, lone.now_ms + 1_000, identity()),
    )
    assert lone.node.state.proposed.newest_request is None
    while steps:
        lone.turn()
    lone.turn()

    told = answer(lone, first)
    assert isinstance(told, FenceBrokerReply)
    assert answer(lone, second) == told
    assert told.offset == lone.node.log.shape.end


def test_a_decision_in_several_batches_outlives_the_memory_of_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log remembers two requests here, and forgets two while a fencing goes on. The fencing is new at its first batch. Nobody
    else can have done it since, so it ends, once, and its repetition is told the same. When it is forgotten, too, a repetition is
    refused."""
    lone = started(config=NodeConfig(controller=ControllerConfig(request_outcomes_max=2)))
    steps = [Decision((NoOp(),), FenceBrokerReply(), then=FenceBroker(7)) for _ in range(12)]
    steps.append(Decision((NoOp(),), FenceBrokerReply(broker_id=7)))
    decide = lone.node.active.controller.decide

    def step(image: MetadataImage, command: Command, *times: int) -> Decision:
        if not isinstance(command, FenceBroker):
            return decide(image, command, *times)
        return steps.pop(0)

    def new(number: int) -> RequestIdentity:
        return identity(number)._replace(client_high_watermark=lone.node.log.shape.end)

    monkeypatch.setattr(lone.node.active.controller, "decide", step)
    asked = new(1)
    first = send(lone, FenceBroker(7), asked)
    second = send(lone, FenceBroker(7), asked)
    others = [send(lone, set_to(str(number)), new(number)) for number in (2, 3, 4, 5)]
    assert steps and lone.node.state.proposed.request_horizon > asked.client_high_watermark
    while steps:
        lone.turn()

    told = answer(lone, first)
    assert isinstance(told, FenceBrokerReply) and answer(lone, second) == told
    assert not steps and all(isinstance(answer(lone, other), AlterConfigsReply) for other in others)
    assert answer(lone, send(lone, FenceBroker(7), asked)) == told

    for number in (6, 7):
        answer(lone, send(lone, set_to(str(number)), new(number)))
    end = lone.node.log.shape.end
    assert refusal(lone, send(lone, FenceBroker(7), asked)) is ErrorCode.REQUEST_ID_EXPIRED
    assert lone.node.log.shape.end == end


def test_the_largest_decision_leaves_room_for_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch holds 12,000 records; a request that takes all but one is done, with an id as without."""
    lone = started()
    largest = lone.config.controller.records_max
    monkeypatch.setattr(
        lone.node.active.controller, "decide", lambda *_: Decision((NoOp(),) * largest, FenceBrokerReply())
    )
    assert isinstance(answer(lone, send(lone, FenceBroker(7), None)), FenceBrokerReply)
    assert isinstance(answer(lone, send(lone, FenceBroker(7), identity())), FenceBrokerReply)


def test_a_decision_that_is_refused_after_its_first_batch_never_ends_as_nothing_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker was unregistered while it was being fenced: some of its partitions have moved."""
    lone = started()
    steps = iter([Decision((NoOp(),), FenceBrokerReply(), then=FenceBroker(7))])

    def decide(*_: object) -> Decision:
        for step in steps:
            return step
        raise ControllerError(ErrorCode.BROKER_ID_NOT_REGISTERED, "gone")

    monkeypatch.setattr(lone.node.active.controller, "decide", decide)
    reply_to = send(lone, FenceBroker(7), None)
    lone.turn()
    assert refusal(lone, reply_to) is ErrorCode.REQUEST_TIMED_OUT


def test_a_last_step_that_writes_nothing_is_no_decision_that_wrote_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """When its confirmation does not come in time, the steps before it still may have happened."""
    lone = started()
    steps = [Decision((NoOp(),), FenceBrokerReply(), then=FenceBroker(7)), Decision((), FenceBrokerReply())]
    monkeypatch.setattr(lone.node.active.controller, "decide", lambda *_: steps.pop(0))
    reply_to = send(lone, FenceBroker(7), None)
    lone.turn()
    assert not steps

    lone.now_ms += 1_000
    lone.turn()

    refused = lone.answers[reply_to]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("command", ["one topic", "a thousand topics", "one topic that grows"])
def test_a_request_for_exactly_as_many_partitions_as_are_allowed_is_done_and_remembered(command: str) -> None:
    """At level 1, 10,000 partitions, their topics and the outcome of the request stand in one batch; a repetition is told the
    same."""
    lone = started(config=NodeConfig(controller=ControllerConfig(bootstrap_metadata_version=1)))
    limit = lone.config.controller.partitions_per_request_max
    unfenced(lone, 7)
    asked: Command
    match command:
        case "one topic":
            asked = CreateTopics((NewTopic("t", limit, 1),))
        case "a thousand topics":
            asked = CreateTopics(tuple(NewTopic(f"t{number}", limit // 1_000, 1) for number in range(1_000)))
        case _:
            assert isinstance(
                answer(lone, send(lone, CreateTopics((NewTopic("t", 5, 1),)), identity(2))), CreateTopicsReply
            )
            asked = CreatePartitions((NewPartitions("t", 5 + limit),))
    before = sum(topic.partition_count for topic in lone.node.state.committed.topics())

    first = answer(lone, send(lone, asked, identity()))

    assert isinstance(first, CreateTopicsReply | CreatePartitionsReply)
    assert {result.message for result in first.results} == {""}
    assert sum(topic.partition_count for topic in lone.node.state.committed.topics()) == before + limit
    end = lone.node.log.shape.end
    again = answer(lone, send(lone, asked, identity()))
    assert isinstance(again, CreateTopicsReply | CreatePartitionsReply) and again.offset == first.offset
    assert lone.node.log.shape.end == end

    one_more = CreateTopics((NewTopic("more", limit + 1, 1),))
    assert refusal(lone, send(lone, one_more, identity(3))) is ErrorCode.POLICY_VIOLATION


def unfenced(lone: LoneNode, broker_id: NodeId) -> None:
    """That broker is registered, and online."""
    registered = answer(lone, send(lone, registration(broker_id), None))
    assert isinstance(registered, RegisterBrokerReply)
    shape = lone.node.log.shape
    chain, epoch = lone.node.log.chain_at(shape.end), shape.last_epoch
    assert chain is not None
    fetch = MetadataFetch(
        broker_id,
        registered.broker_epoch,
        incarnation(broker_id),
        shape.end,
        epoch,
        chain,
        False,
        False,
        (),
        0,
        1 << 20,
    )
    lone.turn(BrokerFetch(fetch, lone.new_reply_to()))
    lone.run_until_idle()
    assert not lone.node.state.committed.brokers[broker_id].fenced
