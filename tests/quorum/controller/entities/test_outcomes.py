"""A repeated request gets its first answer, also for transactions and sessions."""

import pytest

from metadata_log.format.records import REMEMBERED_REPLY_BYTES_MAX
from quorum.controller.protocol.entity_commands import (
    CREATED_TOPICS_MAX,
    OPERATIONS_MAX,
    DeleteEntity,
    FailedCondition,
    OpenSession,
    OpenSessionReply,
    Operation,
    OperationResult,
    PutEntity,
    Transact,
    TransactReply,
)
from quorum.controller.protocol.request_outcomes import is_done, outcome_of, recalled
from quorum.controller.protocol.topic_commands import NewTopic
from tests.quorum.controller.entities.embedder import ALICE, Embedder
from tests.quorum.controller.test_request_outcomes import identity


def _remembered(
    command: Transact | OpenSession, reply: TransactReply | OpenSessionReply, outcome_offset: int
) -> object:
    me = Embedder()
    outcome = outcome_of(me.cluster.image, identity(1), reply, 10)
    assert outcome.reply is not None
    assert len(outcome.reply) <= REMEMBERED_REPLY_BYTES_MAX
    return recalled(command, outcome._replace(offset=outcome_offset))


def test_a_transaction_is_answered_again_with_the_same_versions() -> None:
    me = Embedder()
    me.put("k", "old")
    command = Transact(
        (), (PutEntity(("k", "a"), b""), DeleteEntity(("k", "old")), PutEntity(("k", "b"), b"", ttl_ms=5_000))
    )
    image = me.cluster.image
    (decision,) = me.cluster.decisions(command)
    outcome = outcome_of(image, identity(1), decision.reply, 10)._replace(offset=me.cluster.image.offset)
    first = decision.answer(me.cluster.image.offset + 1, image.offset)
    again = recalled(command, outcome)
    assert isinstance(first, TransactReply)
    assert isinstance(again, TransactReply)
    assert again.operations == first.operations
    assert again.offset == first.offset
    assert [each.version for each in again.operations][::2] == [me.version("k", "a"), me.version("k", "b")]


@pytest.mark.parametrize("created", [0, 1, CREATED_TOPICS_MAX])
def test_the_results_of_128_operations_are_remembered(created: int) -> None:
    """Versions are as high as they can be, and topic ids are random."""
    operations: list[Operation] = [NewTopic(f"t{number}") for number in range(created)]
    results = [OperationResult(topic_id=bytes([1, number]) * 8) for number in range(created)]
    for number in range(created, OPERATIONS_MAX):
        if number % 2:
            operations.append(DeleteEntity(("k", str(number))))
            results.append(OperationResult((1 << 62) + number))
        else:
            operations.append(PutEntity(("k", str(number)), b""))
            results.append(OperationResult(place=9_000 + number))
    reply = TransactReply(operations=tuple(results), record_count=9_500)
    base = 1 << 60
    again = _remembered(Transact((), tuple(operations)), reply, base + 9_500)
    assert isinstance(again, TransactReply)
    assert again.operations == tuple(each.placed(base) for each in results)


def test_a_failed_condition_is_not_remembered() -> None:
    """Nothing was written, so a repetition compares anew."""
    command = Transact((), (PutEntity(("k", "a"), b""),))
    assert not is_done(command, TransactReply(failed=FailedCondition(0, None)))
    assert is_done(command, TransactReply(operations=(OperationResult(place=0),), record_count=1))


def test_a_repeated_opening_has_the_epoch_of_the_first() -> None:
    """Even if the session has ended meanwhile: the client finds out by its next message."""
    command = OpenSession(ALICE, "alice", "CN=alice", 5_000)
    new = _remembered(command, OpenSessionReply(timeout_ms=5_000), 41)
    assert new == OpenSessionReply(offset=42, epoch=40, timeout_ms=5_000)
    known = _remembered(command, OpenSessionReply(epoch=17, timeout_ms=9_000), 41)
    assert known == OpenSessionReply(offset=42, epoch=17, timeout_ms=9_000)
