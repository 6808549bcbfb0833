"""What is remembered of requests: the first answer, for the same request alone, and no longer than there is room."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import MetadataRecord, NoOp, RequestOutcome
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from metadata_log.image.replay import loading_delta
from quorum.controller.protocol.commands import (
    Command,
    CommandReply,
    FenceBroker,
    FenceBrokerReply,
    UnregisterBroker,
    UnregisterBrokerReply,
)
from quorum.controller.protocol.config_commands import AlterConfigs, AlterConfigsReply, ConfigResult
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.mode_commands import BrokerModeReply, DrainBroker, EndBrokerMode, Mode
from quorum.controller.protocol.request_outcomes import RequestIdentity, earlier_outcome, is_done, outcome_of, recalled
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    TopicResult,
)

TOPICS = (
    TopicResult("a", topic_id=bytes([1]) * 16, partitions=3, replication_factor=2),
    TopicResult("b", ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'b' exists already"),
)
CONFIGS = (ConfigResult(2, "a"), ConfigResult(4, "", ErrorCode.INVALID_CONFIG, "no"))


def identity(number: int, seen: int = 0, payload: int = 7, principal: str = "anonymous") -> RequestIdentity:
    return RequestIdentity(number.to_bytes(16, "big"), bytes([payload]) * 32, principal, seen)


def done(image: MetadataImage, number: int, reply: CommandReply | None = None) -> MetadataImage:
    """One request after `image`: a batch of a record and the outcome."""
    delta = MetadataDelta(image)
    records: list[MetadataRecord] = [
        NoOp(),
        outcome_of(image, identity(number, image.offset), reply or UnregisterBrokerReply(), 3),
    ]
    for offset, record in enumerate(records, image.offset):
        delta.replay(record, offset)
    return delta.finish(Provenance(image.offset + 2, 1, 1))


def loaded(image: MetadataImage) -> MetadataImage:
    """The image as a snapshot brings it back."""
    delta = loading_delta()
    for place, record in enumerate(image.canonical_records()):
        delta.replay(record, place)
    return delta.finish(image.provenance)


def code_of(image: MetadataImage, asked: RequestIdentity) -> ErrorCode:
    with pytest.raises(ControllerError) as refused:
        earlier_outcome(image, asked)
    return refused.value.code


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (CreateTopics(()), CreateTopicsReply(2, TOPICS)),
        (CreatePartitions(()), CreatePartitionsReply(2, TOPICS)),
        (DeleteTopics(()), DeleteTopicsReply(2, TOPICS)),
        (AlterConfigs(()), AlterConfigsReply(2, CONFIGS)),
        (FenceBroker(7), FenceBrokerReply(2, 7)),
        (DrainBroker(7, "why"), BrokerModeReply(7, 2)),
        (EndBrokerMode(7, Mode.FENCED), BrokerModeReply(7, 2)),
        (UnregisterBroker(7), UnregisterBrokerReply(2)),
    ],
)
def test_the_first_answer_comes_again(command: Command, reply: CommandReply) -> None:
    """With its results and its offset, the end of its batch; also after a snapshot."""
    image = done(EMPTY_IMAGE, 1, reply)
    for each in (image, loaded(image)):
        outcome = earlier_outcome(each, identity(1))
        assert outcome is not None
        assert recalled(command, outcome) == reply


def test_an_answer_too_large_to_keep_comes_back_with_its_offset_alone() -> None:
    reply = CreateTopicsReply(2, TOPICS * 1_000)
    outcome = earlier_outcome(done(EMPTY_IMAGE, 1, reply), identity(1))
    assert outcome is not None
    assert recalled(CreateTopics(()), outcome) == CreateTopicsReply(2, ())


def test_an_id_belongs_to_one_request_of_one_principal() -> None:
    """Who sends something else under it has made a mistake, and must not be told what another was told."""
    image = done(EMPTY_IMAGE, 1)
    assert code_of(image, identity(1, payload=8)) is ErrorCode.INVALID_REQUEST
    assert code_of(image, identity(1, principal="CN=eve")) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("command", "reply", "done"),
    [
        (AlterConfigs(()), AlterConfigsReply(2, CONFIGS), True),
        (AlterConfigs(()), AlterConfigsReply(2, CONFIGS[1:]), False),
        (AlterConfigs((), validate_only=True), AlterConfigsReply(2, CONFIGS[:1]), False),
        (CreateTopics(()), CreateTopicsReply(2, TOPICS[1:]), False),
        (CreateTopics((), validate_only=True), CreateTopicsReply(2, TOPICS), False),
        (CreatePartitions((), validate_only=True), CreatePartitionsReply(2, TOPICS), False),
        (FenceBroker(7), FenceBrokerReply(2, 7), True),
    ],
)
def test_a_request_is_done_if_a_part_of_it_was_and_not_only_tried_out(
    command: Command, reply: CommandReply, done: bool
) -> None:
    """Whether it wrote anything does not matter: who fences a fenced broker has fenced it."""
    assert is_done(command, reply) is done


def test_an_unknown_id_is_done_unless_it_may_have_been_forgotten() -> None:
    """Three are remembered. Request n takes effect in [2n, 2n + 2), so a client that had seen the horizon is surely new."""
    image = EMPTY_IMAGE
    for number in range(3):
        image = done(image, number)
    assert image.request_horizon == 0
    assert earlier_outcome(image, identity(99, seen=0)) is None

    for number in range(3, 8):
        image = done(image, number)
        image.check_invariants()

    assert [earlier_outcome(image, identity(number)) is not None for number in (5, 6, 7)] == [True] * 3
    for each in (image, loaded(image)):
        assert each.request_horizon == 2 * 4 + 2, "request 4 was the last one to be forgotten"
        assert code_of(each, identity(4, seen=2 * 4)) is ErrorCode.REQUEST_ID_EXPIRED
        assert earlier_outcome(each, identity(99, seen=2 * 4 + 2)) is None
    assert len(image.request_outcomes) == 3
    assert loaded(image) == image
    loaded(image).check_invariants()


def test_no_log_says_twice_that_a_request_was_done() -> None:
    image = done(EMPTY_IMAGE, 1)
    again = RequestOutcome(5, identity(1).request_id, bytes(32), "anonymous", 0, b"")
    with pytest.raises(InvalidRecord, match="done already"):
        MetadataDelta(image).replay(again, image.offset)


@pytest.mark.parametrize(
    "change",
    [{"slot": -1}, {"slot": 1 << 20}, {"horizon": 8}, {"payload_hash": b"short"}, {"principal": "x" * 257},
     {"reply": bytes(2_049)}, {"offset": 7}],
)  # fmt: skip
def test_what_is_out_of_its_limits_is_not_replayed(change: dict[str, object]) -> None:
    record = RequestOutcome(0, bytes(16), bytes(32), "anonymous", 0, b"")
    MetadataDelta(EMPTY_IMAGE).replay(record, 7)
    with pytest.raises(InvalidRecord):
        MetadataDelta(EMPTY_IMAGE).replay(record._replace(**change), 7)  # type: ignore[arg-type]
