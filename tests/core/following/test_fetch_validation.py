"""The leader's verdict on a fetch, as tables (KIP-595, KIP-630)."""

from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from quorum.core import fetch_service
from quorum.core.fetch_service import OBSERVER_SESSION_MS, OBSERVERS_MAX
from quorum.core.protocol.divergence import (
    ChainMismatch,
    Diverging,
    UseSnapshot,
    Valid,
    Verdict,
    judge_fetch,
    truncation_point,
)
from quorum.core.protocol.effects import ElectionState, Reply
from quorum.core.protocol.inputs import ShutDown
from quorum.core.protocol.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
)
from tests.core.fake_log import FakeLog
from tests.core.situations import working_leader
from tests.core.solo import Solo, key, log_of, only


def whole_log() -> FakeLog:
    """Offsets 0..9: epochs 1 1 1 3 3 3 3 5 5 5."""
    return log_of(1, 1, 1, 3, 3, 3, 3, 5, 5, 5)


def cut_log() -> FakeLog:
    """The same log after a snapshot at 5@3, without the records before."""
    log = whole_log()
    log.take_snapshot(5)
    return log


def end(offset: int, epoch: int) -> Diverging:
    return Diverging(OffsetAndEpoch(offset, epoch))


SNAPSHOT = UseSnapshot(OffsetAndEpoch(5, 3))

VERDICTS = [
    # the whole log is there
    (whole_log, 10, 5, Valid()),
    (whole_log, 8, 5, Valid()),
    (whole_log, 7, 3, Valid()),
    (whole_log, 3, 1, Valid()),
    (whole_log, 0, 0, Valid()),
    (whole_log, 11, 5, end(10, 5)),  # longer than the leader's
    (whole_log, 8, 3, end(7, 3)),
    (whole_log, 5, 2, end(3, 1)),  # an epoch that the leader does not have
    (whole_log, 9, 4, end(7, 3)),
    (whole_log, 2, 3, end(7, 3)),
    # a snapshot covers the beginning
    (cut_log, 10, 5, Valid()),
    (cut_log, 5, 3, Valid()),
    (cut_log, 0, 0, SNAPSHOT),
    (cut_log, 4, 3, SNAPSHOT),  # below the log's start
    (cut_log, 5, 1, SNAPSHOT),  # at the start, of another epoch
    (cut_log, 5, 4, SNAPSHOT),
    (cut_log, 8, 2, SNAPSHOT),  # above, but of an epoch from before the snapshot
    (cut_log, 9, 3, end(7, 3)),
    (cut_log, 8, 4, end(7, 3)),
]


@pytest.mark.parametrize(("make", "offset", "epoch", "expected"), VERDICTS)
def test_the_verdict(make: type[FakeLog], offset: int, epoch: int, expected: Verdict) -> None:
    """By offset and epoch: valid, diverging at the end of the largest epoch not later, or too old for the log."""
    log = make()
    chain = log.chain_at(offset)

    assert expected == judge_fetch(
        log.shape(), fetch_offset=offset, last_fetched_epoch=epoch, chain=chain or bytes(32), chain_at_offset=chain
    )


def test_an_empty_log_gets_a_snapshot_even_if_the_log_reaches_back() -> None:
    """Snapshots exist for this purpose: the newest state at once, instead of all history."""
    log = whole_log()
    log.snapshot = OffsetAndEpoch(5, 3)

    verdict = judge_fetch(log.shape(), fetch_offset=0, last_fetched_epoch=0, chain=bytes(32), chain_at_offset=bytes(32))

    assert verdict == SNAPSHOT


def test_an_empty_log_of_another_cluster_gets_no_snapshot() -> None:
    """A log reaching back to 0 knows its genesis, and the leader refuses a foreign one.

    A snapshot would adopt the stranger.
    """
    log = whole_log()
    log.snapshot = OffsetAndEpoch(5, 3)

    def verdict(of: FakeLog) -> Verdict:
        return judge_fetch(
            of.shape(), fetch_offset=0, last_fetched_epoch=0, chain=b"\x01" * 32, chain_at_offset=of.chain_at(0)
        )

    assert verdict(log) == ChainMismatch()
    assert verdict(cut_log()) == SNAPSHOT  # the log no longer holds the genesis


@pytest.mark.parametrize("mine", [b"\x01" * 32, None])
def test_equal_places_with_other_histories(mine: bytes | None) -> None:
    """At an equal (offset, epoch) the chains must be equal, and both logs must have a batch boundary there."""
    verdict = judge_fetch(
        whole_log().shape(), fetch_offset=8, last_fetched_epoch=5, chain=bytes(32), chain_at_offset=mine
    )

    assert verdict == ChainMismatch()


@pytest.mark.parametrize(
    ("epochs", "diverging", "expected"),
    [
        ((1, 1, 1, 3, 3, 3, 3), OffsetAndEpoch(3, 1), 3),
        ((1, 1, 1, 3, 3, 3, 3), OffsetAndEpoch(5, 3), 5),
        ((1, 1, 3), OffsetAndEpoch(9, 1), 2),  # the leader's epoch 1 is longer
        ((1, 2, 4, 4), OffsetAndEpoch(8, 3), 2),  # this log has no epoch 3: cut at the end of what is before it
        ((2, 2), OffsetAndEpoch(1, 1), 0),
    ],
)
def test_where_a_follower_cuts(epochs: tuple[int, ...], diverging: OffsetAndEpoch, expected: int) -> None:
    """A follower cuts at the lesser end of a common epoch; without one, where its own log enters a later epoch."""
    assert expected == truncation_point(log_of(*epochs).shape(), diverging)


GOOD = FetchRequest(
    replica=key(2),
    epoch=3,
    number=7,
    fetch_offset=0,
    last_fetched_epoch=0,
    chain=bytes(32),
    high_watermark=0,
    max_wait_ms=0,
    max_bytes=100,
)

REFUSALS = [
    (GOOD._replace(fetch_offset=-1), ErrorCode.INVALID_REQUEST),
    (GOOD._replace(last_fetched_epoch=-1), ErrorCode.INVALID_REQUEST),
    (GOOD._replace(last_fetched_epoch=4), ErrorCode.INVALID_REQUEST),
    (GOOD._replace(max_wait_ms=-1), ErrorCode.INVALID_REQUEST),
    (GOOD._replace(max_bytes=0), ErrorCode.INVALID_REQUEST),
    (GOOD._replace(epoch=-1), ErrorCode.INVALID_REQUEST),
    (GOOD._replace(replica=ReplicaKey(-1, bytes(16))), ErrorCode.INVALID_REQUEST),
    (GOOD._replace(replica=key(1)), ErrorCode.INVALID_REQUEST),
    (GOOD._replace(epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
    (GOOD._replace(epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH),
]


def leader() -> Solo:
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None))
    solo.elect()
    return solo


def fetch_answer(solo: Solo, request: FetchRequest) -> FetchResponse:
    response = only(Reply, solo.request(request)).response
    assert isinstance(response, FetchResponse)
    return response


@pytest.mark.parametrize(("request_", "error"), REFUSALS)
def test_each_refusal_has_its_code(request_: FetchRequest, error: ErrorCode) -> None:
    """A refusal changes nothing: a fetch never moves the receiver's epoch."""
    solo = leader()
    response = fetch_answer(solo, request_)

    assert response.error is error
    assert (response.epoch, response.leader_id, response.number) == (3, 1, 7)
    assert solo.core.is_leading
    assert all(status.last_fetch_ms is None for status in solo.core.replicas()[1:])


def test_who_does_not_lead_says_so_and_who_does() -> None:
    """Nodes find the leader by such answers."""
    follower = Solo(election=ElectionState(3, None, 2))
    response = fetch_answer(follower, GOOD)
    assert (response.error, response.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)

    solo = leader()
    solo.step(ShutDown())
    assert fetch_answer(solo, GOOD).error is ErrorCode.BROKER_NOT_AVAILABLE


PIECE = FetchSnapshotRequest(key(2), 3, 7, OffsetAndEpoch(5, 1), 0, 100)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (replace(PIECE, epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(PIECE, epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (replace(PIECE, position=-1), ErrorCode.POSITION_OUT_OF_RANGE),
        (replace(PIECE, snapshot=OffsetAndEpoch(0, 0)), ErrorCode.SNAPSHOT_NOT_FOUND),
        (replace(PIECE, snapshot=OffsetAndEpoch(-5, 0)), ErrorCode.INVALID_REQUEST),
        (replace(PIECE, max_bytes=0), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_piece_of_a_snapshot_is_refused_by_name(request_: FetchSnapshotRequest, error: ErrorCode) -> None:
    """KIP-630; the bootstrap snapshot 0-0 is never served."""
    response = only(Reply, leader().request(request_)).response

    assert isinstance(response, FetchSnapshotResponse)
    assert response.error is error


def test_observers_of_a_thousand_names_are_not_all_remembered() -> None:
    """Any program may fetch under any name.

    The observer silent for longest is forgotten, and its parked fetch is answered.
    """
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None))
    solo.elect()
    end, chain = solo.log.end, solo.log.chain_at(solo.log.end)
    assert chain is not None
    fetch = GOOD._replace(fetch_offset=end, last_fetched_epoch=3, chain=chain, high_watermark=end, max_wait_ms=30_000)
    answered = 0
    for node_id in range(10, 10 + 2 * OBSERVERS_MAX):
        solo.now_ms += 1
        effects = solo.request(fetch._replace(replica=ReplicaKey(node_id, bytes(16))))
        answered += sum(isinstance(effect, Reply) for effect in effects)

    observers = [each.node_id for each in solo.core.replicas() if not each.is_voter]
    assert observers == list(range(10 + OBSERVERS_MAX, 10 + 2 * OBSERVERS_MAX))
    assert answered == OBSERVERS_MAX


def test_a_removed_voter_may_be_one_observer_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader forgets each observer once, also where one was silent for a session and the others are too many.

    1. Leader 1 of {1,2,3} has two observers, 10 and 11: the maximum, for this test.
    2. Voter 3 is removed, and goes on fetching: three observers.
    3. Observer 10 is silent for a session; 3 fetches, then 11.
    4. Observer 12 is new. The leader forgets 10, and 3, which makes room.
    """
    monkeypatch.setattr(fetch_service, "OBSERVERS_MAX", 2)
    solo = working_leader()
    for node_id in (10, 11):
        solo.fetch(node_id)
    solo.request(RemoveVoterRequest(key(3), timeout_ms=10_000))
    solo.now_ms += OBSERVER_SESSION_MS
    for node_id in (2, 3, 11):
        solo.now_ms += 1
        solo.fetch(node_id)
    assert [each.node_id for each in solo.core.replicas() if not each.is_voter] == [3, 10, 11]
    solo.fetch(12)
    assert [each.node_id for each in solo.core.replicas() if not each.is_voter] == [11, 12]
