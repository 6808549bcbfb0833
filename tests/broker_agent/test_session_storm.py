"""The session by storm: Hypothesis looks for what must never happen, whatever comes and in whatever order."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_agent.session.lifecycle import (
    EDGES,
    Applied,
    ApplyBatches,
    BatchesRefused,
    BrokerState,
    DownloadSnapshot,
    Exit,
    Fetch,
    FetchAnswer,
    FetchAnswered,
    FetchFailed,
    FetchResult,
    Input,
    LeaseMode,
    Register,
    Registered,
    RegisterFailed,
    ResetStore,
    SnapshotFailed,
    StateChanged,
    StopRequested,
    StoreBroken,
    StoreRecovered,
    TimerFired,
)
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from tests.broker_agent.one_broker import HINT, ONLINE, Broker, at

numbers = st.integers(-2, 1)
codes = st.sampled_from(
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.CHAIN_MISMATCH,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
)
answers = st.builds(
    FetchAnswer,
    number=numbers,
    result=st.sampled_from(FetchResult),
    state=st.sampled_from([None, *BrokerState]),
    batches=st.sampled_from([b"", b"b"]),
    end_offset=st.integers(0, 40),
    snapshot=st.builds(OffsetAndEpoch, st.integers(1, 60), st.just(3)),
    digest=st.sampled_from([b"", b"d"]),
    digest_offset=st.integers(0, 40),
    should_shut_down=st.booleans(),
    lease_ms=st.sampled_from([0, 300, 5_000]),
    controller_epoch=st.integers(0, 4),
)
happenings = st.one_of(
    st.builds(FetchAnswered, answers),
    st.builds(Registered, numbers, st.integers(10, 30)),
    st.builds(RegisterFailed, numbers, codes, st.just("x"), st.sampled_from([None, HINT])),
    st.builds(FetchFailed, numbers, codes, st.just("x"), st.sampled_from([None, HINT])),
    st.builds(Applied, st.builds(at, st.integers(1, 50), st.sampled_from([b"", b"d", b"e"]))),
    st.just(StoreBroken("x")),
    st.just(SnapshotFailed("x")),
    st.just(BatchesRefused("x")),
    st.just(TimerFired()),
    st.sampled_from([TimerFired(), TimerFired(), StopRequested()]),
)


def resolved(happened: Any, newest: int) -> Input:
    """Numbers are drawn relative to the newest request, so that most answers are at home and some are not."""
    if isinstance(happened, FetchAnswered):
        return FetchAnswered(replace(happened.answer, number=newest + happened.answer.number))
    if isinstance(happened, Registered | RegisterFailed | FetchFailed):
        return replace(happened, number=newest + happened.number)
    return happened  # type: ignore[no-any-return]


@settings(max_examples=300, deadline=None)
@given(storm=st.lists(st.tuples(happenings, st.integers(0, 3_000)), max_size=60), mode=st.sampled_from(LeaseMode))
def test_whatever_happens_the_laws_hold(storm: list[tuple[Any, int]], mode: LeaseMode) -> None:
    """States move along the table's edges only; one request is in flight; no lease outlives what was promised from the
    sending of an answered request; requests are not sent in a busy loop; after Exit nothing comes."""
    broker = Broker(lease_mode=mode)
    state, newest, exited, busy = BrokerState.OFFLINE, 0, False, False
    sent_ms: dict[int, int] = {}
    in_flight: int | None = None
    fetching = False
    promised_until_ms = 0
    for happened, after_ms in [(StoreRecovered(at(10), ()), 0), *storm]:
        now = resolved(happened, newest)
        if isinstance(now, Applied | SnapshotFailed | BatchesRefused) and not busy:
            continue  # the store answers only what it was asked
        broker.step(now, after_ms)
        assert not (exited and broker.effects)
        if isinstance(now, FetchAnswered) and fetching and now.answer.number == in_flight:
            promised_until_ms = max(promised_until_ms, sent_ms[in_flight] + now.answer.lease_ms)
        busy = busy and not isinstance(now, Applied | SnapshotFailed | BatchesRefused)
        sends = 0
        for effect in broker.effects:
            match effect:
                case StateChanged(new, _):
                    assert new in EDGES[state]
                    state = new
                case Fetch(request):
                    newest, in_flight, fetching, sends = request.number, request.number, True, sends + 1
                    sent_ms[newest] = broker.now_ms
                case Register(number):
                    newest, in_flight, fetching, sends = number, number, False, sends + 1
                    sent_ms[newest] = broker.now_ms
                case ApplyBatches() | DownloadSnapshot() | ResetStore():
                    busy = True
                case Exit():
                    exited = True
                case _:
                    pass
        assert sends <= 1
        assert state is broker.session.state
        assert exited is (broker.session.exited)
        assert broker.session.lease_until_ms <= promised_until_ms
        if broker.session.may_serve(broker.now_ms):
            assert state in (ONLINE, BrokerState.STOPPING)
            assert mode is LeaseMode.ADVISORY or broker.now_ms < promised_until_ms
        deadline_ms = broker.session.next_deadline_ms()
        assert exited or deadline_ms is not None, "a session that waits for nothing is lost"
