"""The session, step by step: what must follow from what. (`test_session_storm` says what must never happen.)"""

from dataclasses import replace

import pytest

from broker_agent.session.lifecycle import (
    EMPTY_POSITION,
    AbandonFetch,
    Applied,
    ApplyBatches,
    BatchesRefused,
    BrokerState,
    CannotFollow,
    DownloadSnapshot,
    Exit,
    Fetch,
    FetchAnswer,
    FetchAnswered,
    FetchFailed,
    FetchResult,
    FindController,
    JoinGeneration,
    LeaseLapsed,
    LeaseMode,
    LeaseRenewed,
    Register,
    Registered,
    RegisterFailed,
    ResetStore,
    StateChanged,
    StopRequested,
    StoreRecovered,
    TimerFired,
)
from broker_agent.session.session_config import SessionConfig
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from tests.broker_agent.one_broker import CHAIN, FENCED, HINT, LEASE_MS, ONLINE, Broker, at

# --- the way up ------------------------------------------------------------------------------------------------------


def test_a_broker_registers_fetches_its_own_registration_and_goes_online() -> None:
    """Offline -> Fenced -> Online; it asks to stay fenced until it has applied its own registration (M3)."""
    broker = Broker()
    broker.step(StoreRecovered(at(10), (b"p" * 16,)))
    assert broker.the(Register).previous_incarnation == b"p" * 16
    assert broker.session.state is BrokerState.OFFLINE

    broker.step(Registered(broker.number(), 12), 5)
    assert broker.the(StateChanged).state is FENCED
    first = broker.the(Fetch).request
    assert (first.position, first.wants_fence, first.broker_epoch) == (at(10), True, 12)

    broker.answer(state=FENCED, batches=b"b", previous_chain=CHAIN, end_offset=13)
    assert broker.the(ApplyBatches) == ApplyBatches(b"b", CHAIN, 13)
    assert not broker.has(Fetch)

    broker.step(Applied(at(13)))
    second = broker.the(Fetch).request
    assert (second.position, second.wants_fence) == (at(13), False)

    broker.answer(state=ONLINE)
    assert broker.the(StateChanged).state is ONLINE
    assert broker.session.reason == "unfenced by the controller, applied all below 13", "the end is exclusive"
    assert broker.session.may_serve(broker.now_ms)


def test_an_unfenced_broker_that_has_not_applied_its_registration_stays_fenced() -> None:
    """Whatever the controller says, Online needs its own registration applied."""
    broker = Broker().registered().answer(state=ONLINE)

    assert broker.session.state is FENCED


def test_online_needs_a_confirmed_answer() -> None:
    """An answer without a lease comes from a leader that has not heard a majority lately: it opens no port."""
    broker = Broker().registered()
    broker.answer(state=FENCED, batches=b"b", previous_chain=CHAIN, end_offset=13)
    broker.step(Applied(at(13))).answer(lease_ms=0)

    assert broker.session.state is FENCED


def test_the_lease_of_an_earlier_session_opens_no_port() -> None:
    """A broker that was unfenced and has not caught up yet has a lease. The lease ends when the controller fences the broker, or
    does not know it any more. The next session needs a lease of its own."""
    behind = Broker().registered().answer(state=ONLINE)
    assert behind.session.lease_until_ms > behind.now_ms
    fenced = Broker().registered().answer(state=ONLINE).wait().answer(state=FENCED)
    assert fenced.session.lease_until_ms == 0

    behind.wait()
    behind.step(FetchFailed(behind.number(), ErrorCode.STALE_BROKER_EPOCH, "registered anew at 12"), 5).wait()
    behind.step(Registered(behind.the(Register).number, 12), 5)
    behind.answer(state=FENCED, batches=b"b", previous_chain=CHAIN, end_offset=13)
    behind.step(Applied(at(13)), 1).answer(state=ONLINE, lease_ms=0)
    assert behind.session.state is FENCED


def test_unfencing_counts_only_after_its_batches_are_applied() -> None:
    """The cache that clients are answered from must already show this broker unfenced."""
    broker = Broker().registered()
    broker.answer(state=ONLINE, batches=b"b", previous_chain=CHAIN, end_offset=14)
    assert broker.session.state is FENCED

    broker.step(Applied(at(14)))
    assert broker.session.state is ONLINE


# --- registering -----------------------------------------------------------------------------------------------------


def test_a_duplicate_registration_is_retried_and_then_given_up_with_a_clear_error() -> None:
    """Its predecessor's session may end; if it does not in time, two processes have one id and this one goes."""
    broker = Broker(initial_registration_timeout_ms=3_000).step(StoreRecovered(EMPTY_POSITION, ()))
    asked = 0
    while not broker.has(Exit):
        refused = RegisterFailed(broker.number(), ErrorCode.DUPLICATE_BROKER_REGISTRATION, "broker 4 is alive")
        broker.step(refused, 5)
        assert not broker.has(FindController), "another node would say the same"
        if not broker.has(Exit):
            broker.wait()
            asked += 1

    exit_ = broker.the(Exit)
    assert exit_.code == 1
    assert "initial.broker.registration.timeout.ms" in exit_.reason
    assert "DUPLICATE_BROKER_REGISTRATION: broker 4 is alive" in exit_.reason
    assert 3 < asked < 60


def test_possible_predecessors_take_turns() -> None:
    """A process that died between registering and noting it is found by naming each candidate in turn."""
    one, two = b"1" * 16, b"2" * 16
    broker = Broker().step(StoreRecovered(EMPTY_POSITION, (one, two)))
    assert broker.the(Register).previous_incarnation == one

    broker.step(RegisterFailed(broker.number(), ErrorCode.DUPLICATE_BROKER_REGISTRATION, ""), 5).wait()
    assert broker.the(Register).previous_incarnation == two


FATAL_AT_FIRST = [
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
]


@pytest.mark.parametrize("code", FATAL_AT_FIRST)
def test_what_trying_again_cannot_help_ends_the_process(code: ErrorCode) -> None:
    """The reason is in the exit, and the code is not 0."""
    broker = Broker().step(StoreRecovered(EMPTY_POSITION, ()))
    broker.step(RegisterFailed(broker.number(), code, "the other cluster"))

    assert broker.the(Exit).code == 1
    assert "the other cluster" in broker.the(Exit).reason


def test_a_restarted_broker_leaves_a_controller_of_another_cluster_for_the_next_one() -> None:
    """The store has metadata, so the broker's own cluster has accepted its cluster id before. If all controllers belong to
    another cluster, the process still ends in time, and says why."""
    broker = Broker(initial_registration_timeout_ms=3_000).step(StoreRecovered(at(10), ()))
    asked = 0
    while not broker.has(Exit):
        refused = RegisterFailed(broker.number(), ErrorCode.INCONSISTENT_CLUSTER_ID, "this is cluster B", HINT)
        broker.step(refused, 5)
        if not broker.has(Exit):
            assert broker.the(FindController).leader is None, "another cluster's word about a leader does not count"
            broker.wait()
            asked += 1

    assert broker.the(Exit).code == 1
    assert "INCONSISTENT_CLUSTER_ID: this is cluster B" in broker.the(Exit).reason
    assert 3 < asked < 60


@pytest.mark.parametrize("code", FATAL_AT_FIRST)
def test_a_controller_that_does_not_accept_a_live_broker_is_left_for_the_next_one(code: ErrorCode) -> None:
    """One controller that has the wrong configuration, or none of today's, stops no broker that a majority serves: the process
    that was registered once has shown whose it is. The broker keeps its lease and its state, and asks another controller. Another
    cluster's controller, started at the address of a dead one, is left in the same way, and so is a former leader that judges a
    registration by an old image."""
    broker = Broker().online()
    broker.step(FetchFailed(broker.number(), code, "not broker 101's certificate"), 5)
    assert not broker.has(Exit)
    assert broker.has(FindController)
    assert broker.session.state is ONLINE
    assert broker.session.may_serve(broker.now_ms)

    broker.wait()
    assert broker.the(Fetch).request.broker_epoch == 12, "the next controller is asked for the same session"
    broker.answer()
    assert broker.session.state is ONLINE


@pytest.mark.parametrize("code", FATAL_AT_FIRST)
@pytest.mark.parametrize("is_registered", [True, False])
def test_a_controller_that_does_not_accept_a_live_broker_is_not_asked_whom_to_ask(
    is_registered: bool, code: ErrorCode
) -> None:
    """A former leader that has not heard of its successor names itself: the broker would come back to it for ever. The next of
    the bootstrap servers is asked."""
    broker = Broker().online()
    if is_registered:
        broker.step(FetchFailed(broker.number(), code, "I lead", HINT), 5)
    else:
        broker.step(FetchFailed(broker.number(), ErrorCode.STALE_BROKER_EPOCH, "registered anew at 40"), 5).wait()
        broker.step(RegisterFailed(broker.number(), code, "I lead", HINT), 5)
    assert broker.the(FindController).leader is None


@pytest.mark.parametrize("code", FATAL_AT_FIRST)
def test_a_broker_that_was_registered_once_registers_anew_with_whoever_accepts_it(code: ErrorCode) -> None:
    """Also while it is registered no more: what refuses it then is one controller, not the cluster."""
    broker = Broker().online()
    broker.step(FetchFailed(broker.number(), ErrorCode.STALE_BROKER_EPOCH, "registered anew at 40"), 5).wait()
    broker.step(RegisterFailed(broker.number(), code, "an old controller"), 5)
    assert not broker.has(Exit)
    assert broker.has(FindController)

    broker.wait()
    broker.step(Registered(broker.the(Register).number, 41), 5)
    assert broker.has(Fetch)


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_broker_that_is_no_longer_registered_registers_anew_and_is_fenced_meanwhile(code: ErrorCode) -> None:
    """It does not trust its old epoch for anything, and clients are not served."""
    broker = Broker().online()
    broker.step(FetchFailed(broker.number(), code, "registered anew at 40"), 5)
    assert broker.the(StateChanged).state is FENCED
    assert not broker.session.may_serve(broker.now_ms)

    broker.wait()
    broker.step(Registered(broker.the(Register).number, 41), 5)
    assert broker.the(Fetch).request.wants_fence
    assert broker.the(Fetch).request.broker_epoch == 41


# --- generations -----------------------------------------------------------------------------------------------------


def left_behind(broker: Broker, generation: int) -> FetchFailed:
    return FetchFailed(broker.number(), ErrorCode.INVALID_CONTROL_GENERATION, "recovered", None, generation)


def test_a_later_generation_is_gone_over_to_with_nothing_in_hand() -> None:
    """Fenced at once; the store is dropped, and only then does it register; epochs and offsets begin anew."""
    broker = Broker().online()
    broker.step(left_behind(broker, 2), 5)
    assert broker.the(JoinGeneration).generation == broker.session.generation == 2
    assert broker.the(StateChanged).state is FENCED
    assert not broker.session.may_serve(broker.now_ms)
    assert broker.session.next_deadline_ms() is None, "nothing is asked before the store is empty"

    broker.step(Applied(EMPTY_POSITION), 20)
    broker.step(Registered(broker.the(Register).number, 3), 5)
    assert broker.the(Fetch).request.position == EMPTY_POSITION
    broker.answer(state=FENCED, batches=b"b", previous_chain=CHAIN, end_offset=4, high_watermark=4, controller_epoch=1)
    assert broker.session.high_watermark == 4
    broker.step(Applied(at(4)), 1)
    broker.answer(controller_epoch=1)
    assert broker.session.state is ONLINE


def test_a_broker_that_starts_left_behind_goes_over_too() -> None:
    """Its registration is what is refused."""
    broker = Broker().step(StoreRecovered(at(10), ()))
    refused = RegisterFailed(broker.number(), ErrorCode.INVALID_CONTROL_GENERATION, "recovered", None, 5)
    broker.step(refused, 5)
    assert broker.the(JoinGeneration).generation == 5
    broker.step(Applied(EMPTY_POSITION), 5)
    assert broker.has(Register)


def test_a_controller_of_an_earlier_generation_is_a_ghost() -> None:
    """Its disk was found again and somebody started it: the broker turns away, and keeps what it has."""
    broker = Broker().online()
    broker.session.generation = 3
    broker.step(left_behind(broker, 2), 5)
    assert broker.has(FindController) and not broker.has(JoinGeneration)
    assert broker.session.generation == 3


def test_while_the_store_works_no_generation_is_begun() -> None:
    """What it does now would land in the new history; the controllers will say it again."""
    broker = Broker().online()
    broker.answer(batches=b"b", previous_chain=CHAIN, end_offset=14).wait()
    broker.step(left_behind(broker, 2), 5)
    assert not broker.has(JoinGeneration)
    broker.step(Applied(at(14)), 1)
    broker.wait() if not broker.has(Fetch) else None
    broker.step(left_behind(broker, 2), 5)
    assert broker.has(JoinGeneration)


def test_a_broker_that_stops_leaves_the_new_generation_alone() -> None:
    """Under the old one nothing is led any more, so nobody has to be waited for."""
    broker = Broker().online()
    broker.step(StopRequested(), 1)
    broker.step(left_behind(broker, 2), 5)
    assert broker.the(Exit).code == 0


def test_a_leader_hint_is_followed_at_once_but_not_in_circles() -> None:
    """Two nodes that name each other are asked in turns with a pause between the rounds."""
    broker = Broker().step(StoreRecovered(EMPTY_POSITION, ()))
    broker.step(RegisterFailed(broker.number(), ErrorCode.NOT_CONTROLLER, "", HINT))
    assert broker.the(FindController).leader == HINT
    assert broker.has(Register)

    broker.step(RegisterFailed(broker.number(), ErrorCode.NOT_CONTROLLER, "", HINT))
    assert not broker.has(Register)
    assert broker.session.next_deadline_ms() > broker.now_ms  # type: ignore[operator]


# --- fetching --------------------------------------------------------------------------------------------------------


def test_only_the_answer_in_flight_counts() -> None:
    """A late or repeated answer neither applies nor renews."""
    broker = Broker().online()
    until_ms = broker.session.lease_until_ms
    broker.answer(number=broker.number() - 1, after_ms=100, batches=b"x", end_offset=99, lease_ms=60_000)

    assert broker.effects == []
    assert broker.session.lease_until_ms == until_ms


def test_an_answer_of_an_older_controller_is_not_believed() -> None:
    """A deposed leader that has not heard of it can neither fence nor renew."""
    broker = Broker().online()
    until_ms = broker.session.lease_until_ms
    broker.answer(controller_epoch=2, state=FENCED, lease_ms=60_000)

    assert broker.the(FindController)
    assert broker.session.state is ONLINE
    assert broker.session.lease_until_ms == until_ms


def test_not_ready_is_contact_but_not_a_lease() -> None:
    """A new controller does not know yet what is committed: the broker asks again shortly, and its lease runs on."""
    broker = Broker().online()
    until_ms = broker.session.lease_until_ms
    broker.answer(result=FetchResult.NOT_READY, state=None, lease_ms=60_000)
    assert not broker.has(FindController)
    assert broker.session.lease_until_ms == until_ms

    broker.wait()
    assert broker.has(Fetch)


def test_contact_goes_on_while_a_snapshot_loads() -> None:
    """Small fetches that wait for nothing keep the session; what they bring is dropped."""
    broker = Broker().online()
    broker.answer(result=FetchResult.USE_SNAPSHOT, snapshot=OffsetAndEpoch(500, 3))
    assert broker.the(DownloadSnapshot).snapshot == OffsetAndEpoch(500, 3)

    for _ in range(8):
        broker.wait()
        request = broker.the(Fetch).request
        assert (request.max_wait_ms, request.max_bytes) == (0, 1)
        broker.answer(batches=b"x", previous_chain=CHAIN, end_offset=14)
        assert not broker.has(ApplyBatches)
    assert broker.session.state is ONLINE
    assert not broker.session.lease_lapsed

    broker.step(Applied(at(500)))
    assert broker.the(Fetch).request.position == at(500)


def test_a_snapshot_below_the_store_starts_it_afresh() -> None:
    """A store ahead of the snapshot that it is told to load is not on this history."""
    broker = Broker().online().answer(result=FetchResult.USE_SNAPSHOT, snapshot=OffsetAndEpoch(5, 1))

    assert broker.has(ResetStore)


@pytest.mark.parametrize(
    "happened",
    [
        FetchAnswered(FetchAnswer(0, FetchResult.DIVERGED, ONLINE, diverging=OffsetAndEpoch(9, 1))),
        FetchAnswered(FetchAnswer(0, FetchResult.BATCHES, ONLINE, end_offset=99, lease_ms=LEASE_MS)),
        FetchFailed(0, ErrorCode.CHAIN_MISMATCH, "other bytes"),
    ],
)
def test_another_history_drops_the_store_and_asks_to_be_fenced(happened: FetchAnswered | FetchFailed) -> None:
    """Diverged, a gap, another chain: the store goes, and without an image this broker wants no partitions."""
    broker = Broker().online()
    number = broker.number()
    if isinstance(happened, FetchAnswered):
        broker.step(FetchAnswered(replace(happened.answer, number=number)), 5)
    else:
        broker.step(replace(happened, number=number), 5)
    assert broker.has(ResetStore)

    broker.step(Applied(EMPTY_POSITION))
    request = broker.the(Fetch).request
    assert request.position == EMPTY_POSITION
    assert request.wants_fence


def test_an_image_that_is_not_the_controllers_is_dropped() -> None:
    """F6: digests are compared where both sides stand at one offset."""
    broker = Broker().online()
    broker.answer(batches=b"b", previous_chain=CHAIN, end_offset=20, digest=b"theirs", digest_offset=20)
    broker.step(Applied(at(20, b"ours")))

    assert "digest" in broker.the(ResetStore).reason


def test_an_image_that_is_the_controllers_is_kept() -> None:
    """Also where the digest comes with an answer that brings nothing new."""
    broker = Broker().online()
    broker.answer(batches=b"b", previous_chain=CHAIN, end_offset=20, digest=b"same", digest_offset=20)
    broker.step(Applied(at(20, b"same"))).answer(digest=b"same", digest_offset=20)

    assert not broker.has(ResetStore)


def test_damaged_batches_are_fetched_again_and_nothing_is_dropped() -> None:
    """Damage on the way says nothing about the store."""
    broker = Broker().online().answer(batches=b"b", previous_chain=CHAIN, end_offset=20)
    broker.step(BatchesRefused("CRC-32C mismatch"))
    assert not broker.has(ResetStore)

    broker.wait()
    assert broker.the(Fetch).request.position == at(13)


def test_a_record_from_the_future_ends_the_process() -> None:
    """A broker that skipped it would no longer hold what the others hold."""
    broker = Broker().online().answer(batches=b"b", previous_chain=CHAIN, end_offset=20)
    broker.step(CannotFollow("type 99"))

    assert broker.the(Exit) == Exit(1, "type 99")


def test_a_controller_that_does_not_answer_is_left_for_another() -> None:
    """A fetch that outlives its wait and the request timeout is abandoned; its late answer counts for nothing."""
    broker = Broker().online()
    number = broker.number()
    broker.wait()
    assert broker.the(AbandonFetch).number == number
    assert broker.the(FindController).leader is None

    broker.answer(number=number, batches=b"x", end_offset=99)
    assert not broker.has(ApplyBatches)


def test_answers_that_do_not_wait_cause_no_busy_loop() -> None:
    """F8: a controller that answers at once is asked at most every `fetch_interval_min_ms`."""
    broker = Broker(fetch_interval_min_ms=20).online()
    begin_ms = broker.now_ms
    for _ in range(50):
        broker.answer(after_ms=0).wait()

    assert broker.now_ms - begin_ms >= 50 * 20


# --- the lease -------------------------------------------------------------------------------------------------------


def test_a_controller_that_hangs_costs_no_lease() -> None:
    """The wait for one answer leaves time to ask another controller before the lease ends.

    1. A fetch is answered after its whole wait. 2. The controller hangs, so the next fetch is given up. 3. Another one leads by
    now, and is asked for an answer at once: a second and a half of the lease is left, and the answer renews it.
    """
    broker = Broker().online()
    config = SessionConfig()
    broker.answer(after_ms=config.max_wait_ms).wait()
    while not broker.has(AbandonFetch):
        broker.wait()
    while not broker.has(Fetch):
        broker.wait()

    assert broker.the(Fetch).request.max_wait_ms == 0
    assert broker.session.lease_until_ms - broker.now_ms >= 1_500

    # A leader that has only just begun is not ready, then brings the record that opened its epoch, then gives a lease.
    broker.answer(result=FetchResult.NOT_READY, lease_ms=0).wait()
    assert broker.the(Fetch).request.max_wait_ms == 0
    broker.answer(lease_ms=0, batches=b"b", previous_chain=CHAIN, end_offset=14)
    broker.step(Applied(at(14)), 1)
    while not broker.has(Fetch):
        broker.wait()
    assert broker.the(Fetch).request.max_wait_ms == 0
    broker.answer().wait()
    assert broker.the(Fetch).request.max_wait_ms == config.max_wait_ms, "it leads, and is fetched from as ever"


def test_the_lease_counts_from_sending() -> None:
    """However long the answer took, the promise was made no earlier than the request was sent."""
    broker = Broker(max_wait_ms=2_000).online()
    sent_ms = broker.now_ms
    broker.answer(after_ms=2_500)

    assert broker.session.lease_until_ms == sent_ms + LEASE_MS


def test_a_lapsed_lease_fences_towards_clients_until_the_next_confirmed_answer() -> None:
    """The state stays Online: the controller never fenced this broker, so nothing was moved."""
    broker = Broker().online()
    until_ms = broker.session.lease_until_ms
    lapsed = False
    while not lapsed:
        broker.wait()
        lapsed = broker.has(LeaseLapsed)
    assert broker.now_ms == until_ms
    assert not broker.session.may_serve(broker.now_ms)
    assert broker.session.state is ONLINE

    while not broker.has(Fetch):
        broker.wait()
    broker.answer()
    assert broker.has(LeaseRenewed)
    assert broker.session.lease_until_ms > broker.now_ms
    assert broker.session.may_serve(broker.now_ms)


def test_fencing_is_told_before_the_lease_is_renewed() -> None:
    """If it were the other way round, a fenced broker would serve for the moment between two effects."""
    broker = Broker().online()
    while not broker.has(LeaseLapsed):
        broker.wait()
    while not broker.has(Fetch):
        broker.wait()
    broker.answer(state=FENCED)

    assert broker.the(StateChanged).state is FENCED
    assert not broker.has(LeaseRenewed)
    assert not broker.session.may_serve(broker.now_ms)


def test_a_process_that_was_paused_does_not_serve_before_its_first_step() -> None:
    """SIGSTOP past the lease, then a client's request before any timer has run: `may_serve` looks at the clock."""
    broker = Broker().online()

    assert not broker.session.may_serve(broker.session.lease_until_ms)


def test_advisory_mode_serves_on() -> None:
    """The lapse is told, and clients do not notice."""
    broker = Broker(lease_mode=LeaseMode.ADVISORY).online()
    while not broker.has(LeaseLapsed):
        broker.wait()

    assert broker.session.may_serve(broker.now_ms)


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_an_online_broker_leaves_when_the_controller_lets_it() -> None:
    """The long poll in flight is abandoned, wants_shut_down goes at once and then every 50 ms, clients are served on."""
    broker = Broker().online()
    waiting = broker.number()
    broker.step(StopRequested(), 5)
    assert broker.the(AbandonFetch).number == waiting
    assert (broker.the(Fetch).request.wants_shut_down, broker.session.state) == (True, BrokerState.STOPPING)

    for _ in range(5):
        sent_ms = broker.now_ms
        broker.answer(state=BrokerState.STOPPING, after_ms=1).wait()
        assert broker.now_ms - sent_ms == 50
        assert broker.the(Fetch).request.wants_shut_down
    assert broker.session.may_serve(broker.now_ms)

    broker.answer(state=BrokerState.STOPPING, should_shut_down=True)
    assert broker.the(Exit).code == 0
    assert broker.session.state is BrokerState.OFFLINE
    assert broker.session.next_deadline_ms() is None


def test_leaving_has_a_deadline() -> None:
    """Leaders that cannot move do not keep a process for ever; nor does a controller that is out of reach."""
    broker = Broker(shutdown_deadline_ms=4_000).online().step(StopRequested())
    begin_ms = broker.now_ms
    while not broker.has(Exit):
        broker.wait()

    assert broker.now_ms - begin_ms == 4_000
    assert "controlled.shutdown.deadline.ms" in broker.the(Exit).reason


def test_a_fenced_broker_leaves_without_waiting_for_a_controller_that_is_gone() -> None:
    """It leads nothing, so it asks once; on the first failure it goes."""
    broker = Broker().registered().step(StopRequested())
    assert broker.the(Fetch).request.wants_shut_down
    assert not broker.session.may_serve(broker.now_ms)

    broker.step(FetchFailed(broker.number(), ErrorCode.BROKER_NOT_AVAILABLE, "refused"))
    assert broker.the(Exit).code == 0


def test_a_broker_that_is_not_registered_leaves_at_once() -> None:
    """Recovering, or registering: there is nobody to tell."""
    assert Broker().step(StopRequested()).the(Exit).code == 0
    assert Broker().step(StoreRecovered(EMPTY_POSITION, ())).step(StopRequested()).the(Exit).code == 0


def test_a_stopping_broker_that_was_superseded_goes() -> None:
    """Nothing is led under its old epoch any more."""
    broker = Broker().online().step(StopRequested())
    broker.step(FetchFailed(broker.number(), ErrorCode.STALE_BROKER_EPOCH, ""))

    assert broker.the(Exit).code == 0
    assert broker.the(Exit).clean_broker_epoch is None


def test_a_controlled_shutdown_leaves_a_proof_for_the_next_process() -> None:
    """The broker epoch of the process that ended in order, whether or not the controller agreed in time (KIP-966)."""
    broker = Broker().online().step(StopRequested())
    broker.answer(broker.number(), state=BrokerState.STOPPING, should_shut_down=True)
    assert broker.the(Exit).clean_broker_epoch == 12
    broker = Broker().online().step(StopRequested())
    broker.step(TimerFired(), 15_000)
    assert broker.the(Exit).clean_broker_epoch == 12
    broker = Broker().registered().step(StopRequested())
    broker.step(FetchFailed(broker.number(), ErrorCode.BROKER_NOT_AVAILABLE, "refused"))
    assert broker.the(Exit).clean_broker_epoch == 12


def test_the_proof_is_sent_with_each_attempt_to_register_until_one_succeeds() -> None:
    """A process that is stopped before it is registered has changed nothing: it leaves the proof as it was."""
    broker = Broker().step(StoreRecovered(at(10), (), 7))
    assert broker.the(Register).previous_broker_epoch == 7
    assert Broker().step(StoreRecovered(at(10), (), 7)).step(StopRequested()).the(Exit).clean_broker_epoch == 7
    broker.step(RegisterFailed(broker.number(), ErrorCode.BROKER_NOT_AVAILABLE, "refused"))
    assert broker.wait().the(Register).previous_broker_epoch == 7
    broker.step(Registered(broker.number(), 12), 5)
    broker.step(FetchFailed(broker.number(), ErrorCode.STALE_BROKER_EPOCH, ""))
    assert broker.wait().the(Register).previous_broker_epoch is None
