"""The witness of operators' calls: it does not accuse a true answer, and finds each broken history."""

from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import (
    ELR_VERSION,
    EXTERNAL_DATA_PLANE,
    FENCED_MODE,
    METADATA_VERSION,
    NO_DATA_PLANE,
    AbortTransaction,
    BeginTransaction,
    BrokerMode,
    BrokerRegistrationChange,
    Config,
    EndTransaction,
    FeatureLevel,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RequestOutcome,
    Topic,
    Voters,
)
from metaquorum import BROKER_RESOURCE
from quorum.controller.partitions.election_rules import MIN_ISR_KEY
from tests.chaos.judge.history import Kind, Operation, Outcome
from tests.chaos.judge.operator_witness import disordered, hear
from tests.chaos.judge.test_committed import logged
from tests.chaos.operators.calls import Ask, OperatorCall
from tests.chaos.operators.claims import Claim, LevelOf, ModeOf, PartitionCount, SettingOf
from tests.sim.history import History

VOTERS = Voters(())
LARGE = bytes([7]) * 16


def outcome(request: int) -> RequestOutcome:
    """The record that names a change; each has a slot of its own."""
    return RequestOutcome(request, bytes([request]) * 16, bytes(32), "", 0, None)


def value(text: str) -> Config:
    return Config(BROKER_RESOURCE, "", MIN_ISR_KEY, text)


def setting(text: str | None) -> SettingOf:
    return SettingOf(BROKER_RESOURCE, "", MIN_ISR_KEY, text)


def call(
    request: int,
    offset: int | None,
    *claims: Claim,
    outcome: Outcome = Outcome.DONE,
    at: tuple[int, int] = (1, 2),
    message: Any = None,
    is_local: bool = False,
) -> OperatorCall:
    """A change with that request id; 0: a read."""
    asked = admin_pb2.UpdateFeaturesRequest() if message is None else message
    asked.context.request_id = bytes([request]) * 16 if request else b""
    ask = Ask("change", "change it", asked, object, lambda _: [])
    return OperatorCall(request or 99, "operator 1", ask, outcome, claims, *at, offset, is_local)


BROKER = RegisterBroker(101, bytes(16), (), (), None, True, False, ())
LOG: list[Record | list[Record]] = [
    [FeatureLevel(METADATA_VERSION, 2), BROKER],
    BrokerRegistrationChange(101, 1, fenced=False),
    [value("1"), outcome(1)],  # ends at 5
    [value("2"), outcome(2)],  # ends at 7
    [BeginTransaction("large")],
    [Topic("large-1", LARGE), Partition(LARGE, 0, (101,), (101,), (), (), 101, 0, 0, 0)],
    [outcome(3), EndTransaction()],  # ends at 12; the answer is 11
]


def laws(*calls: OperatorCall, log: list[Record | list[Record]] = LOG) -> list[str]:
    heard = hear(calls, logged(log), History(VOTERS))
    return [*heard.broken, *(each.law for each in heard.answers)]


def test_the_truth() -> None:
    """A value that a later change has overridden is true at its own offset."""
    create = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="large-1", partitions=1)])
    true = [
        call(1, 5, setting("1"), at=(1, 2)),
        call(2, 7, setting("2"), at=(3, 4)),
        call(3, 11, PartitionCount("large-1", 1), message=create, at=(3, 8)),
        call(0, 6, setting("1"), at=(3, 5)),
        call(0, 9, setting("2"), PartitionCount("large-1", 0), at=(5, 6)),
        call(0, 12, PartitionCount("large-1", 1), LevelOf(METADATA_VERSION, 2), ModeOf(103, ""), at=(9, 9)),
        call(8, None, outcome=Outcome.FAILED),
        call(9, None, outcome=Outcome.UNKNOWN),
    ]
    assert laws(*true) == []
    assert disordered(true, []) == []


@pytest.mark.parametrize("offset", [3, 5, 6, 12])
def test_an_acknowledged_change_that_is_not_where_it_was_acknowledged(offset: int) -> None:
    assert laws(call(2, offset, setting("2"))) == ["lost"]


def test_a_change_inside_an_aborted_transaction_is_lost() -> None:
    log: list[Record | list[Record]] = [
        FeatureLevel(METADATA_VERSION, 2),
        [BeginTransaction("large"), Topic("large-1", LARGE)],
        [outcome(3)],
        AbortTransaction("another controller leads"),
    ]
    assert laws(call(3, 4), log=log) == ["lost"]


@pytest.mark.parametrize(
    "lie",
    [
        call(2, 7, setting("1")),
        call(0, 7, setting("1")),
        call(0, 4, setting("1")),
        call(0, 11, PartitionCount("large-1", 1)),
        call(0, 12, PartitionCount("large-1", 0)),
        call(0, 12, ModeOf(103, "fenced")),
        call(0, 12, LevelOf(METADATA_VERSION, 1)),
    ],
)
def test_a_false_claim(lie: OperatorCall) -> None:
    """The image at that offset has not what a change has done, or a read has shown: for example a part of a transaction."""
    assert laws(lie) == ["claim"]


def test_a_refused_change_that_was_made() -> None:
    assert laws(call(2, None, outcome=Outcome.FAILED)) == ["undone"]
    assert laws(call(2, 6, setting("1"), outcome=Outcome.UNMET)) == ["undone"]


def test_a_condition_that_did_not_hold_claims_what_was_there() -> None:
    """As of its offset, like a read."""
    assert laws(call(4, 6, setting("1"), outcome=Outcome.UNMET)) == []
    assert laws(call(4, 6, setting("2"), outcome=Outcome.UNMET)) == ["claim"]


def test_an_answer_to_a_change_that_had_nothing_to_write() -> None:
    """Its claims are true at its offset. If its record is in the log, the record is just below the offset."""
    assert laws(call(4, 6, setting("1"))._replace(may_be_unwritten=True)) == []
    assert laws(call(4, 7, setting("1"))._replace(may_be_unwritten=True)) == ["claim"]
    assert laws(call(2, 7, setting("2"))._replace(may_be_unwritten=True)) == []
    assert laws(call(2, 9, setting("2"))._replace(may_be_unwritten=True)) == ["lost"]


def test_a_change_that_was_made_twice() -> None:
    """The log had forgotten the request, because another one took its slot, and the repetition was done again."""
    log: list[Record | list[Record]] = [
        [value("1"), outcome(1)],
        [value("2"), outcome(2)._replace(slot=1, horizon=2)],
        [value("1"), outcome(1)._replace(slot=2, horizon=2)],
    ]
    assert laws(call(1, None, outcome=Outcome.UNKNOWN), log=log) == ["once"]


def test_an_answer_as_of_more_than_is_committed() -> None:
    assert laws(call(0, 13, setting("2")), call(5, 14)) == ["beyond", "beyond"]


def test_a_topic_with_some_of_its_partitions() -> None:
    """A large topic was asked for with 1,200 partitions; the log has it with one."""
    create = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="large-1", partitions=1_200)])
    (broken,) = laws(call(4, None, outcome=Outcome.UNKNOWN, message=create))
    assert "C7 Atomic: large-1 at 11 has 1 partitions" in broken


def test_a_log_that_breaks_a_law_of_the_simulator() -> None:
    """Broker 101 was fenced by an operator, and is online in the image."""
    (broken,) = laws(log=[*LOG, BrokerMode(101, FENCED_MODE)])
    assert "M10 KeptOut" in broken


@pytest.mark.parametrize(("data_plane", "breaks"), [(NO_DATA_PLANE, False), (EXTERNAL_DATA_PLANE, True)])
def test_a_broker_without_a_data_plane_has_lost_nothing(data_plane: str, breaks: bool) -> None:
    """Broker 101 is the last of an ISR, ends without a clean shutdown, and registers as a new process that stays in the ISR."""
    process = BROKER._replace(data_plane=data_plane)
    broken = laws(
        log=[
            [FeatureLevel(METADATA_VERSION, 2), FeatureLevel(ELR_VERSION, 1), process],
            BrokerRegistrationChange(101, 2, fenced=False),
            [Topic("t1", LARGE), Partition(LARGE, 0, (101,), (101,), (), (), 101, 0, 0, 0)],
            [PartitionChange(LARGE, 0, leader=NO_LEADER), BrokerRegistrationChange(101, 2, fenced=True)],
            process._replace(incarnation_id=bytes([1]) * 16),
        ]
    )
    assert ["M13 CrashedIsNotSafe" in each for each in broken] == [True] * breaks


def test_an_answer_that_is_older_than_what_had_ended() -> None:
    """Also if another client was told the newer offset. A local read may be old, and says so."""
    write = Operation(1, 1, "alpha", Kind.SET, 1, Outcome.DONE, 1, 2, 5)
    assert [each.law for each in disordered([call(0, 4, at=(3, 4))], [write])] == ["order"]
    assert [each.law for each in disordered([call(2, 5, at=(3, 4))], [write])] == ["order"]
    assert disordered([call(0, 4, at=(1, 4))], [write]) == []
    assert disordered([call(0, 4, at=(3, 4), is_local=True)], [write]) == []
