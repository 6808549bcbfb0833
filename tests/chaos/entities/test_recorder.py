"""The notes of a client: each call has the claims of its answer, also a call that was cancelled; and the truce."""

import asyncio
from typing import Any

import pytest
from quorum_rpc.v1 import entity_pb2

from metadata_log.format.records import Entity
from metadata_log.image.replay import Replay
from metaquorum import ConditionFailed, PutEntity, version_is
from tests.chaos.entities.claims import Deleted, EntityIs, Listed, SessionIs
from tests.chaos.entities.recorder import RecordedClient, RecordedOnce, Recorder
from tests.chaos.entities.scripted import log_of
from tests.chaos.entities.truce import Truce
from tests.chaos.judge.history import Outcome
from tests.chaos.operators.claims import Claim


class Scripted(RecordedClient):
    """Answers without a network. None: the answer never comes."""

    def __init__(self, recorder: Recorder, answer: Any) -> None:
        super().__init__(recorder, "register client 1", ["127.0.0.1:1"], "", 1.0)
        self._answer = answer

    async def _ask(self, request: Any, **_: Any) -> Any:
        if self._answer is None:
            await asyncio.Event().wait()
        return self._answer


async def test_a_transaction_is_noted_with_its_claims() -> None:
    recorder = Recorder()
    results = [entity_pb2.OperationResult(version=40)]
    client = Scripted(recorder, entity_pb2.TransactResponse(offset=42, succeeded=True, results=results))
    token = await client.put("register", "a/1", b"7")
    (call,) = recorder.calls
    assert (call.outcome, call.offset, call.claims) == (Outcome.DONE, 42, (EntityIs("register", "a/1", b"7", 40),))
    assert call.is_write and len(call.request_id) == 16
    assert (token.offset, client.as_of) == (40, 42)


async def test_a_condition_that_did_not_hold_is_an_answer() -> None:
    recorder = Recorder()
    failed = entity_pb2.FailedCondition(index=0, entity=entity_pb2.Entity(version=41))
    client = Scripted(recorder, entity_pb2.TransactResponse(offset=42, failed=failed))
    with pytest.raises(ConditionFailed):
        await client.must_transact([version_is("register", "a/1", 40)], [PutEntity("register", "a/1", b"7")])
    (call,) = recorder.calls
    assert (call.outcome, call.offset, call.is_write) == (Outcome.UNMET, 42, False)
    assert call.claims[0].contradiction(Replay().image) == "the log says (0, -1)"


async def test_a_call_that_is_cancelled_is_of_unknown_outcome() -> None:
    recorder = Recorder()
    asking = asyncio.ensure_future(Scripted(recorder, None).put("register", "a/1", b"7"))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    (call,) = recorder.calls
    assert (call.outcome, call.claims) == (Outcome.UNKNOWN, ())
    assert call.request_id


def test_a_client_that_asks_once_is_recorded_too() -> None:
    assert RecordedOnce.__mro__.index(RecordedClient) == 2, "the recorder notes what was sent at last"


def test_claims_of_lists_and_sessions() -> None:
    replay = Replay()
    entities: list[Any] = [Entity("lock", name, b"", None) for name in ("m/1", "m/2", "mm/1")]
    replay.apply(log_of([*entities, Entity("locks", "m/3", b"", None)]))  # at 1 to 4
    image = replay.image
    true: list[Claim] = [
        Listed("lock", "m/", (("m/1", 1, 1), ("m/2", 2, 2))),
        Listed("lock", "n/", ()),
        Deleted("lock", "m/3", 9),
        SessionIs(bytes(16), None),
    ]
    assert [each.contradiction(image) for each in true] == [None] * 4
    false: list[Claim] = [
        Listed("lock", "m/", (("m/1", 1, 1),)),
        Listed("lock", "m/", ()),
        Listed("lock", "m", (("m/1", 1, 1), ("m/2", 2, 2))),
        Deleted("lock", "m/1", 1),
        SessionIs(bytes(16), 3),
    ]
    assert None not in [each.contradiction(image) for each in false]


async def test_a_truce_waits_for_those_at_work() -> None:
    truce, rests = Truce(), asyncio.Event()

    async def keep() -> None:
        async with truce.kept():
            rests.set()

    with truce.working():
        keeping = asyncio.ensure_future(keep())
        while not truce.is_wanted:
            await asyncio.sleep(0)
        assert not rests.is_set()
    await keeping
    assert rests.is_set() and not truce.is_wanted
