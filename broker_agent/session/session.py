"""A broker's session with the controllers: registering, fetching (the broker's heartbeat), the lease, and leaving.

Pure: `step(input, now_ms)` returns what the agent should do, and `next_deadline_ms()` says when the agent should come back with
a `TimerFired`. The agent drives this class in production, and the simulator drives the same class.

The session has four parts, each with a rule of its own: `registration` (this process's broker epoch), `fetch_schedule` (one
request in flight, never a busy loop), `store_position` (the store follows the log, never back in time) and `life` (the broker's
state, and the lease: how long it may serve without contact). This file connects the parts.

*Every lease counts from sending* (see `lease`). A leader that has not heard from a majority lately answers without a lease, and
such an answer renews nothing.

*Heartbeats continue while the store works.* Loading a snapshot of millions of partitions takes longer than a session. Meanwhile
small fetches keep the session and the lease. Their contents are dropped, because the store's position is about to change:

    1. Broker 101 begins to load a snapshot that takes 20 s. Its session is 9 s.
    2. Once a second the broker sends a fetch that asks for one byte and does not wait. Each answer renews the lease.
    3. The snapshot is loaded, and the next fetch asks for the log from the snapshot's end.

*A broker that dropped its store must not serve clients.* The broker asks to be fenced until it has applied its own registration
again. If the cluster has a later generation, the broker drops its store and joins that generation; it never joins an earlier one.
"""

import random
from typing import assert_never

from broker_agent.session.fetch_schedule import Sent
from broker_agent.session.lifecycle import (
    AbandonFetch,
    Applied,
    BatchesRefused,
    BrokerState,
    CannotFollow,
    Effect,
    Exit,
    FetchAnswer,
    FetchAnswered,
    FetchFailed,
    FetchRequest,
    FetchResult,
    FindController,
    Input,
    LeaderHint,
    LeaseLapsed,
    LeaseRenewed,
    Registered,
    RegisterFailed,
    RequestFailed,
    SnapshotFailed,
    StopRequested,
    StoreBroken,
    StoreRecovered,
    TimerFired,
)
from broker_agent.session.session_config import SessionConfig
from broker_agent.session.session_view import SessionView
from broker_agent.session.store_position import Work
from metadata_log.format.errors import ErrorCode

_NOT_REGISTERED = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class Session(SessionView):
    """One broker process's session. Attributes without an underscore are for reading only."""

    def __init__(self, config: SessionConfig, rng: random.Random, generation: int = 1) -> None:
        super().__init__(config, rng, generation)
        self._effects: list[Effect] = []

    # --- called by the agent -----------------------------------------------------------------------------------------

    def step(self, happened: Input, now_ms: int) -> list[Effect]:
        """Takes one input and returns the effects, to be carried out once and in order."""
        if self.exited:
            return []
        assert not self._effects
        if self._life.notice_lapse(now_ms):
            self._effects.append(LeaseLapsed())
        self._take(happened, now_ms)
        if not self.exited:
            self._run_deadlines(now_ms)
        self.check_invariants()
        effects, self._effects = self._effects, []
        return effects

    def check_invariants(self) -> None:
        self._schedule.check_invariants()
        self._life.check_invariants()
        assert self.state is not BrokerState.ONLINE or self.broker_epoch is not None, self.reason

    # --- inputs ------------------------------------------------------------------------------------------------------

    def _take(self, happened: Input, now_ms: int) -> None:
        match happened:
            case StoreRecovered():
                self._store.recovered(happened.position)
                has_metadata = happened.position.offset > 0
                self._registration.recovered(
                    happened.previous_incarnations,
                    has_metadata=has_metadata,
                    clean_broker_epoch=happened.clean_broker_epoch,
                )
                self._life.tell("registering")
                self._begin_registering(now_ms)
            case Registered():
                self._on_registered(happened, now_ms)
            case RegisterFailed():
                if self._schedule.registration_completed(happened.number):
                    self._on_register_failed(happened, now_ms)
            case FetchAnswered():
                sent = self._schedule.fetch_completed(happened.answer.number)
                if sent is not None:
                    self._on_answer(happened.answer, *sent, now_ms)
            case FetchFailed():
                if self._schedule.fetch_completed(happened.number):
                    self._on_fetch_failed(happened, now_ms)
            case Applied():
                self._on_applied(happened, now_ms)
            case SnapshotFailed():
                self._store.failed()
                self._ask_again(now_ms, f"snapshot: {happened.reason}", None)
            case BatchesRefused():
                self._store.failed()
                self._ask_again(now_ms, f"batches: {happened.reason}", None)
            case StoreBroken():
                self._give_work(self._store.reset(happened.reason))
            case CannotFollow():
                self._exit(1, happened.reason)
            case StopRequested():
                self._on_stop(now_ms)
            case TimerFired():
                pass
            case _:
                assert_never(happened)

    # --- registering -------------------------------------------------------------------------------------------------

    def _begin_registering(self, now_ms: int) -> None:
        self._registration.begin(now_ms)
        self._schedule.ask_at(now_ms)

    def _on_registered(self, registered: Registered, now_ms: int) -> None:
        if not self._schedule.registration_completed(registered.number):
            return
        self._registration.complete(registered.broker_epoch)
        self._schedule.forget_failures()
        self._become(BrokerState.FENCED, f"registered with broker epoch {registered.broker_epoch}")
        self._schedule.ask_at(now_ms)

    def _on_register_failed(self, failed: RegisterFailed, now_ms: int) -> None:
        text = f"registration refused: {failed.code.name}: {failed.message}"
        if self._is_left_behind(failed):
            self._join_generation(failed.generation, text)
        elif self._registration.is_fatal(failed.code):
            self._exit(1, text)
        elif self._registration.is_given_up(failed.code, now_ms):
            limit = f"{self._config.initial_registration_timeout_ms} ms (initial.broker.registration.timeout.ms)"
            self._exit(1, f"not registered within {limit}; last answer: {text}")
        else:
            # The right controller refuses a duplicate: waiting helps, another controller does not.
            turn = failed.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION
            self._ask_again(now_ms, text, self._registration.believed_leader(failed), find_controller=turn)

    def _register_anew(self, reason: str, now_ms: int) -> None:
        if self.state is BrokerState.STOPPING:
            # Another process may hold the id now. No partition is led under the epoch that this process had, so it may leave.
            self._exit(0, f"no longer registered while stopping: {reason}")
            return
        self._become(BrokerState.FENCED, reason)
        self._begin_registering(now_ms)
        self._schedule.back_off(now_ms)

    # --- generations -------------------------------------------------------------------------------------------------

    def _is_left_behind(self, failed: RequestFailed) -> bool:
        """Tells whether the controller belongs to a later generation. A controller of an earlier generation is not followed.

        While the store works the answer is no. The next answer of the controller will repeat the generation.
        """
        is_said = failed.code is ErrorCode.INVALID_CONTROL_GENERATION and failed.generation > self.generation
        return is_said and not self._store.is_busy

    def _join_generation(self, generation: int, reason: str) -> None:
        """Drops everything that was learned: offsets and epochs of the old generation do not compare with the new ones."""
        if self.state is BrokerState.STOPPING:
            self._exit(0, f"the cluster was recovered while stopping: {reason}")
            return
        if self.state is not BrokerState.OFFLINE:
            self._become(BrokerState.FENCED, reason)
        self.generation = generation
        self.high_watermark = 0
        self._controller_epoch = 0
        self._registration.end()
        self._give_work(self._store.join_generation(generation))

    # --- fetching ----------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: FetchAnswer, sent: Sent, request: FetchRequest, now_ms: int) -> None:
        if 0 < answer.controller_epoch < self._controller_epoch:
            text = f"a stale answer, of controller epoch {answer.controller_epoch}: epoch {self._controller_epoch} has answered"
            self._ask_again(now_ms, text, None)
            return
        self._controller_epoch = max(self._controller_epoch, answer.controller_epoch)
        self._schedule.answered()
        if answer.result is FetchResult.NOT_READY:
            self._schedule.ask_when_ready(now_ms)
            return
        self.high_watermark = max(self.high_watermark, answer.high_watermark)
        if self.state is BrokerState.STOPPING and answer.should_shut_down:
            self._exit(0, "the controller allows the shutdown", self.broker_epoch)
            return
        self._hear_state(answer, sent, now_ms)
        busy = self._store.is_busy
        if answer.content_bytes and answer.end_offset < answer.high_watermark:
            self._schedule.piece_came(sent, answer.content_bytes, now_ms)
        brought, leased = answer.content_bytes > 0, answer.lease_ms > 0
        self._schedule.ask_after_answer(sent, self.state, busy=busy, brought=brought, leased=leased, now_ms=now_ms)
        if not busy and request.position == self.position:
            self._give_work(self._store.take(answer, request.broker_epoch))
        self._maybe_go_online(now_ms)

    def _on_fetch_failed(self, failed: FetchFailed, now_ms: int) -> None:
        text = f"fetch failed: {failed.code.name}: {failed.message}"
        if self._is_left_behind(failed):
            self._join_generation(failed.generation, text)
        elif failed.code in _NOT_REGISTERED:
            self._register_anew(text, now_ms)
        elif self._registration.is_fatal(failed.code):
            self._exit(1, text)
        elif failed.code is ErrorCode.CHAIN_MISMATCH and not self._store.is_busy:
            self._schedule.ask_at(now_ms)
            self._give_work(self._store.reset(text))
        else:
            self._ask_again(now_ms, text, self._registration.believed_leader(failed))

    def _ask_again(self, now_ms: int, reason: str, leader: LeaderHint | None, *, find_controller: bool = True) -> None:
        """Asks again after a failure: at once after a hint to the leader, else with back-off."""
        if self._life.is_fenced_while_stopping:
            self._exit(0, f"stopped while fenced; {reason}", self.broker_epoch)
            return
        if find_controller:
            self._effects.append(FindController(leader, reason))
        self._schedule.try_elsewhere(leader, now_ms)

    # --- the store ---------------------------------------------------------------------------------------------------

    def _give_work(self, work: Work | None) -> None:
        """Gives work to the store; heartbeats continue until the work is done."""
        if work is not None:
            self._effects.append(work)
            self._schedule.postpone()

    def _on_applied(self, applied: Applied, now_ms: int) -> None:
        self._store.applied(applied.position)
        if self._schedule.in_flight is None and self.broker_epoch is not None:
            # A store that was dropped again and again is fetched again only after a pause.
            is_empty = applied.position.offset == 0
            delay_ms = self._schedule.reset_backoff_ms(self._store.resets) if is_empty else 0
            self._schedule.ask_at(now_ms + delay_ms)
        if self.broker_epoch is None and self._schedule.is_idle:
            self._begin_registering(now_ms)  # the first step in a new generation
        self._give_work(self._store.compare_digests())
        self._maybe_go_online(now_ms)

    # --- lease and state ---------------------------------------------------------------------------------------------

    def _hear_state(self, answer: FetchAnswer, sent: Sent, now_ms: int) -> None:
        """Notes the state that the controller reports for this broker, and the lease that comes with it."""
        registration = self._registration
        if answer.state is not None:
            registration.hear(unfenced=answer.state not in (BrokerState.FENCED, BrokerState.OFFLINE))
        if not registration.unfenced:
            self._effects += self._life.fence()
        elif answer.lease_ms > 0 and self._life.lease.renew(sent.sent_ms, answer.lease_ms, now_ms):
            self._effects.append(LeaseRenewed())

    def _maybe_go_online(self, now_ms: int) -> None:
        is_confirmed = self._registration.unfenced and self._life.lease.holds(now_ms)
        is_ready = self.is_caught_up and not self._store.is_busy
        if is_confirmed and is_ready and self.state is BrokerState.FENCED:
            self._become(BrokerState.ONLINE, f"unfenced by the controller, applied all below {self.position.offset}")

    def _become(self, state: BrokerState, reason: str) -> None:
        self._effects += self._life.become(state, reason)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def _on_stop(self, now_ms: int) -> None:
        if self.state is BrokerState.STOPPING:
            return
        abandoned = self._schedule.abandon()
        if abandoned is not None:
            self._effects.append(abandoned)
        if self.broker_epoch is None:
            self._exit(0, "stopped before it was registered", self._registration.previous_broker_epoch)
            return
        self._become(BrokerState.STOPPING, "stop requested; partition leaders move away first")
        self._stop_until_ms = now_ms + self._config.shutdown_deadline_ms
        self._schedule.ask_at(now_ms)

    def _exit(self, code: int, reason: str, clean_broker_epoch: int | None = None) -> None:
        self._become(BrokerState.OFFLINE, reason)
        self.exited = True
        self._schedule.stop()
        self._effects.append(Exit(code, reason, clean_broker_epoch))

    # --- time --------------------------------------------------------------------------------------------------------

    def _run_deadlines(self, now_ms: int) -> None:
        if self.state is BrokerState.STOPPING and now_ms >= self._stop_until_ms:
            limit_ms = self._config.shutdown_deadline_ms
            text = f"leaders did not move away within {limit_ms} ms (controlled.shutdown.deadline.ms)"
            self._exit(0, text, self.broker_epoch)
            return
        sent = self._schedule.take_overdue(now_ms)
        if sent is not None:
            self._on_timeout(sent, now_ms)
        if not self.exited and self._schedule.is_due(now_ms):
            self._ask(now_ms)

    def _on_timeout(self, sent: Sent, now_ms: int) -> None:
        waited = f"no answer within {sent.timeout_at_ms - sent.sent_ms} ms"
        if sent.request is None:
            self._on_register_failed(RegisterFailed(sent.number, ErrorCode.REQUEST_TIMED_OUT, waited), now_ms)
            return
        self._effects.append(AbandonFetch(sent.number))
        self._on_fetch_failed(FetchFailed(sent.number, ErrorCode.REQUEST_TIMED_OUT, waited), now_ms)

    def _ask(self, now_ms: int) -> None:
        registration, schedule = self._registration, self._schedule
        if registration.broker_epoch is None:
            predecessor = registration.predecessor(schedule.failures)
            self._effects.append(schedule.register(predecessor, now_ms, registration.previous_broker_epoch))
            return
        self._effects.append(
            schedule.fetch(
                registration.broker_epoch,
                self.position,
                self.state,
                part_position=self._store.part_position,
                busy=self._store.is_busy,
                wants_fence=not self.is_caught_up,
                now_ms=now_ms,
            )
        )
