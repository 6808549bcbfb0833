"""A broker's session with the controllers: registering, fetching (which is its heartbeat), its lease, and leaving.

Pure: `step(input, now_ms)` returns what the world should do, `next_deadline_ms()` says when to come back with a
`TimerFired`. The agent drives it in production and the simulator drives the very same class.

Rules that it keeps, and why:

*One request in flight.* An answer counts only while its number is the one in flight, so a late or repeated answer can
neither apply twice nor renew a lease.

*The lease counts from sending* (see `lease`), and an answer without one, of a leader that has not heard a majority lately,
renews nothing.

*Contact goes on while the store works.* Loading a snapshot of millions of partitions takes longer than a session. While
the store is busy, small fetches that wait for nothing keep the session and the lease; what they bring is dropped, because
the position that they name is no longer the one to continue from.

*Never a busy loop.* Every path to the next request passes a back-off, a long poll or `fetch_interval_min_ms`.

*Never back in time.* Batches follow the position exactly; anything else drops the store, and the broker asks to be fenced
until it has applied its own registration again. To a later generation of the cluster it goes over with an empty store; never
to an earlier one.
"""

import random
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from broker_agent.lease import Lease
from broker_agent.lifecycle import (
    EDGES,
    EMPTY_POSITION,
    AbandonFetch,
    Applied,
    ApplyBatches,
    BatchesRefused,
    BrokerState,
    CannotFollow,
    DownloadSnapshot,
    Effect,
    Exit,
    Fetch,
    FetchAnswer,
    FetchAnswered,
    FetchFailed,
    FetchRequest,
    FetchResult,
    FindController,
    Input,
    JoinGeneration,
    LeaderHint,
    LeaseLapsed,
    LeaseMode,
    LeaseRenewed,
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
from metadata_log.errors import ErrorCode
from metadata_log.ids import Epoch, Offset, Uuid

_FATAL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Trying again cannot help: somebody must change something."""

_NOT_REGISTERED = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The session's times. `max_wait_ms` must leave room for two fetches in a session."""

    lease_mode: LeaseMode = LeaseMode.STRICT
    max_wait_ms: int = 2_000
    fenced_max_wait_ms: int = 500
    """A fenced broker waits less, so that it sees soon that it may go Online."""
    max_bytes: int = 2 << 20
    request_timeout_ms: int = 1_000
    """How long an answer may take beyond the wait that was asked for."""
    register_timeout_ms: int = 3_000
    initial_registration_timeout_ms: int = 60_000
    shutdown_deadline_ms: int = 15_000
    shutdown_interval_ms: int = 50
    contact_interval_ms: int = 1_000
    fetch_interval_min_ms: int = 20
    not_ready_interval_ms: int = 50
    backoff_ms: int = 50
    backoff_max_ms: int = 1_000
    reset_backoff_max_ms: int = 30_000
    """A store that keeps coming out wrong is a bug somewhere, and each new attempt costs the controller a whole image."""


class _Work(Enum):
    """What the store is doing for the session."""

    APPLY = "applying batches"
    LOAD = "loading a snapshot"
    RESET = "starting afresh"


@dataclass(frozen=True, slots=True)
class _InFlight:
    number: int
    sent_ms: int
    timeout_at_ms: int
    request: FetchRequest | None
    """None: a registration."""


class Session:
    """One broker process's session. Attributes without an underscore are for reading only."""

    def __init__(self, config: SessionConfig, rng: random.Random, generation: int = 1) -> None:
        self.state = BrokerState.OFFLINE
        self.reason = "recovering the local store"
        self.position = EMPTY_POSITION
        self.broker_epoch: int | None = None
        self.generation = generation
        """Of the cluster: grows when an operator recovers it without a majority, and then begins another history."""
        self.high_watermark: Offset = 0
        self.exited = False
        self._config = config
        self._lease = Lease()
        self._rng = rng
        self._effects: list[Effect] = []
        self._in_flight: _InFlight | None = None
        self._ask_at_ms: int | None = None
        self._number = 0
        self._failures = 0
        self._resets = 0
        self._work: _Work | None = None
        self._expected_digest: tuple[Offset, bytes] | None = None
        self._unfenced = False
        """The last answer said Online."""
        self._controller_epoch: Epoch = 0
        self._previous_incarnations: tuple[Uuid, ...] = ()
        self._was_registered = False
        self._register_until_ms = 0
        self._stop_until_ms = 0
        self._fenced_while_stopping = False
        """Nothing is led, so nobody has to be waited for, and clients are not served."""
        self._followed_hint = False

    # --- what the world calls ----------------------------------------------------------------------------------------

    def step(self, happened: Input, now_ms: int) -> list[Effect]:
        """What follows from `happened`. Effects are to be carried out in order; none is repeated."""
        if self.exited:
            return []
        assert not self._effects
        self._check_lease(now_ms)
        self._take(happened, now_ms)
        if not self.exited:
            self._run_deadlines(now_ms)
        self.check_invariants()
        effects, self._effects = self._effects, []
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `step(TimerFired(), ...)` is due at the latest; None where only something else can move the session."""
        if self.exited:
            return None
        deadlines = [
            self._ask_at_ms if self._in_flight is None else self._in_flight.timeout_at_ms,
            self._lease.until_ms if self._needs_lease and not self._lease.lapsed else None,
            self._stop_until_ms if self.state is BrokerState.STOPPING else None,
        ]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def may_serve(self, now_ms: int) -> bool:
        """Whether clients may be answered now. Asked at each request: a process that was paused has not stepped since."""
        if self.state not in (BrokerState.ONLINE, BrokerState.STOPPING) or self._fenced_while_stopping:
            return False
        return self._config.lease_mode is LeaseMode.ADVISORY or self._lease.holds(now_ms)

    @property
    def lease_lapsed(self) -> bool:
        """No controller has confirmed this broker for too long, and it was neither fenced nor confirmed since."""
        return self._lease.lapsed

    @property
    def lease_until_ms(self) -> int:
        """Exclusive: at this very moment the lease has lapsed."""
        return self._lease.until_ms

    @property
    def is_caught_up(self) -> bool:
        """Whether this broker has applied its own registration (M3: only then may it be unfenced)."""
        return self.broker_epoch is not None and self.position.offset > self.broker_epoch

    def check_invariants(self) -> None:
        assert self.state is not BrokerState.ONLINE or self.broker_epoch is not None, self.reason
        assert self._in_flight is None or self._ask_at_ms is None, "one request at a time"
        assert not self.lease_lapsed or self._needs_lease, "only who serves can have a lapsed lease"

    # --- inputs ------------------------------------------------------------------------------------------------------

    def _take(self, happened: Input, now_ms: int) -> None:
        match happened:
            case StoreRecovered():
                self.position = happened.position
                self._previous_incarnations = happened.previous_incarnations
                self.reason = "registering"
                self._begin_registering(now_ms)
            case Registered():
                self._on_registered(happened, now_ms)
            case RegisterFailed():
                if self._registration_completed(happened.number):
                    self._on_register_failed(happened, now_ms)
            case FetchAnswered():
                sent = self._fetch_completed(happened.answer.number)
                if sent is not None:
                    self._on_answer(happened.answer, *sent, now_ms)
            case FetchFailed():
                if self._fetch_completed(happened.number):
                    self._on_fetch_failed(happened, now_ms)
            case Applied():
                self._on_applied(happened, now_ms)
            case SnapshotFailed():
                self._work = None
                self._ask_again(now_ms, f"snapshot: {happened.reason}", None)
            case BatchesRefused():
                self._work = None
                self._ask_again(now_ms, f"batches: {happened.reason}", None)
            case StoreBroken():
                self._reset_store(happened.reason)
            case CannotFollow():
                self._exit(1, happened.reason)
            case StopRequested():
                self._on_stop(now_ms)
            case TimerFired():
                pass
            case _:
                assert_never(happened)

    def _registration_completed(self, number: int) -> bool:
        """Whether registration `number` is the request in flight; it is so no more."""
        sent = self._in_flight
        if sent is None or sent.number != number or sent.request is not None:
            return False
        self._in_flight = None
        return True

    def _fetch_completed(self, number: int) -> tuple[_InFlight, FetchRequest] | None:
        """Fetch `number` if that is the request in flight; it is so no more."""
        sent = self._in_flight
        if sent is None or sent.number != number or sent.request is None:
            return None
        self._in_flight = None
        return sent, sent.request

    # --- registering -------------------------------------------------------------------------------------------------

    def _begin_registering(self, now_ms: int) -> None:
        self.broker_epoch = None
        self._unfenced = False
        self._register_until_ms = now_ms + self._config.initial_registration_timeout_ms
        self._ask_at_ms = now_ms

    def _on_registered(self, registered: Registered, now_ms: int) -> None:
        if not self._registration_completed(registered.number):
            return
        self.broker_epoch = registered.broker_epoch
        self._was_registered = True
        self._failures = 0
        self._become(BrokerState.FENCED, f"registered with broker epoch {registered.broker_epoch}")
        self._ask_at_ms = now_ms

    def _on_register_failed(self, failed: RegisterFailed, now_ms: int) -> None:
        text = f"registration refused: {failed.code.name}: {failed.message}"
        if self._is_left_behind(failed):
            self._join_generation(failed.generation, text)
        elif failed.code in _FATAL:
            self._exit(1, text)
        elif now_ms >= self._register_until_ms and (
            not self._was_registered or failed.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        ):
            waited_ms = self._config.initial_registration_timeout_ms
            self._exit(
                1, f"not registered within {waited_ms} ms (initial.broker.registration.timeout.ms); last: {text}"
            )
        else:
            # A duplicate is refused by the right controller: only time can help, not another node.
            turn = failed.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION
            self._ask_again(now_ms, text, failed.leader, find_controller=turn)

    def _register_anew(self, reason: str, now_ms: int) -> None:
        if self.state is BrokerState.STOPPING:
            # Whoever holds the id now, nothing is led under the epoch that this process had.
            self._exit(0, f"no longer registered while stopping: {reason}")
            return
        self._become(BrokerState.FENCED, reason)
        self._begin_registering(now_ms)
        self._failures += 1
        self._ask_at_ms = now_ms + self._backoff(self._failures)

    # --- generations -------------------------------------------------------------------------------------------------

    def _is_left_behind(self, failed: RegisterFailed | FetchFailed) -> bool:
        """Whether the controller is of a later generation. One of an earlier is a ghost: another controller is looked for.

        While the store works nothing is begun; the next answer will say it again.
        """
        is_said = failed.code is ErrorCode.INVALID_CONTROL_GENERATION and failed.generation > self.generation
        return is_said and self._work is None

    def _join_generation(self, generation: int, reason: str) -> None:
        """What was learned before counts no more: offsets and epochs of the old generation are not comparable."""
        if self.state is BrokerState.STOPPING:
            self._exit(0, f"the cluster was recovered while stopping: {reason}")
            return
        if self.state is not BrokerState.OFFLINE:
            self._become(BrokerState.FENCED, reason)
        self.generation = generation
        self.broker_epoch = None
        self.high_watermark = 0
        self._unfenced = False
        self._controller_epoch = 0
        self._expected_digest = None
        self._begin(_Work.RESET, JoinGeneration(generation))

    # --- fetching ----------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: FetchAnswer, sent: _InFlight, request: FetchRequest, now_ms: int) -> None:
        if 0 < answer.controller_epoch < self._controller_epoch:
            text = f"an answer of epoch {answer.controller_epoch}, after one of epoch {self._controller_epoch}"
            self._ask_again(now_ms, text, None)
            return
        self._controller_epoch = max(self._controller_epoch, answer.controller_epoch)
        self._failures = 0
        self._followed_hint = False
        if answer.result is FetchResult.NOT_READY:
            self._ask_at_ms = now_ms + self._jittered(self._config.not_ready_interval_ms)
            return
        self.high_watermark = max(self.high_watermark, answer.high_watermark)
        if self.state is BrokerState.STOPPING and answer.should_shut_down:
            self._exit(0, "the controller says that it may go")
            return
        if answer.state is not None:
            self._unfenced = answer.state not in (BrokerState.FENCED, BrokerState.OFFLINE)
        if not self._unfenced and self.state is BrokerState.ONLINE:
            self._become(BrokerState.FENCED, "fenced by the controller")
        elif not self._unfenced and self.state is BrokerState.STOPPING:
            self._fenced_while_stopping = True
            self._lease.end()
        if answer.lease_ms > 0 and self._unfenced and self._lease.renew(sent.sent_ms, answer.lease_ms, now_ms):
            self._effects.append(LeaseRenewed(self._lease.until_ms))
        self._ask_at_ms = max(now_ms, sent.sent_ms + self._interval_ms(answer))
        if self._work is None and request.position == self.position:
            self._take_contents(answer)
        self._maybe_go_online(now_ms)

    def _interval_ms(self, answer: FetchAnswer) -> int:
        """How long after the last request the next may be sent, apart from what the store is doing."""
        if self.state is BrokerState.STOPPING:
            return self._config.shutdown_interval_ms
        if self._work is not None:
            return self._config.contact_interval_ms
        return 0 if answer.batches else self._config.fetch_interval_min_ms

    def _take_contents(self, answer: FetchAnswer) -> None:
        here = self.position.offset
        match answer.result:
            case FetchResult.BATCHES if answer.batches:
                self._expected_digest = (answer.digest_offset, answer.digest) if answer.digest else None
                self._begin(_Work.APPLY, ApplyBatches(answer.batches, answer.previous_chain, answer.end_offset))
            case FetchResult.BATCHES if answer.end_offset > here:
                self._reset_store(f"told that all below {answer.end_offset} was delivered; the store ends at {here}")
            case FetchResult.BATCHES:
                self._resets = 0
                self._expected_digest = (answer.digest_offset, answer.digest) if answer.digest else None
                self._compare_digests()
            case FetchResult.USE_SNAPSHOT if answer.snapshot.offset > here:
                assert self.broker_epoch is not None
                self._begin(_Work.LOAD, DownloadSnapshot(answer.snapshot, self.broker_epoch))
            case FetchResult.USE_SNAPSHOT:
                self._reset_store(f"sent back to the snapshot at {answer.snapshot} from {here}")
            case FetchResult.DIVERGED:
                self._reset_store(f"the controllers' history leaves the store's at {answer.diverging}")
            case FetchResult.NOT_READY:
                raise AssertionError("handled before")
            case _:
                assert_never(answer.result)

    def _on_fetch_failed(self, failed: FetchFailed, now_ms: int) -> None:
        text = f"fetch failed: {failed.code.name}: {failed.message}"
        if self._is_left_behind(failed):
            self._join_generation(failed.generation, text)
        elif failed.code in _NOT_REGISTERED:
            self._register_anew(text, now_ms)
        elif failed.code in _FATAL:
            self._exit(1, text)
        elif failed.code is ErrorCode.CHAIN_MISMATCH and self._work is None:
            self._ask_at_ms = now_ms
            self._reset_store(text)
        else:
            self._ask_again(now_ms, text, failed.leader)

    def _ask_again(self, now_ms: int, reason: str, leader: LeaderHint | None, *, find_controller: bool = True) -> None:
        """After a failure: with back-off, except that a hint is followed at once."""
        if self._fenced_while_stopping:
            self._exit(0, f"fenced and told to stop; {reason}")
            return
        self._failures += 1
        if find_controller:
            self._effects.append(FindController(leader, reason))
        if self._in_flight is None:
            # Two nodes that name each other must not be asked in turns without a pause.
            self._followed_hint = leader is not None and not self._followed_hint
            self._ask_at_ms = now_ms if self._followed_hint else now_ms + self._backoff(self._failures)

    # --- the store ---------------------------------------------------------------------------------------------------

    def _begin(self, work: _Work, effect: Effect) -> None:
        self._work = work
        self._effects.append(effect)
        if self._ask_at_ms is not None:
            self._ask_at_ms += self._config.contact_interval_ms

    def _reset_store(self, reason: str) -> None:
        self._resets += 1
        self._expected_digest = None
        self._begin(_Work.RESET, ResetStore(reason))

    def _on_applied(self, applied: Applied, now_ms: int) -> None:
        self._work = None
        self.position = applied.position
        if self._in_flight is None and self.broker_epoch is not None:
            # A store that had to be dropped again and again is not hammered on.
            again = applied.position.offset == 0 and self._resets > 1
            delay_ms = self._backoff(self._resets, self._config.reset_backoff_max_ms) if again else 0
            self._ask_at_ms = now_ms + delay_ms
        if self.broker_epoch is None and self._in_flight is None and self._ask_at_ms is None:
            self._begin_registering(now_ms)  # the first thing in a new generation
        self._compare_digests()
        self._maybe_go_online(now_ms)

    def _compare_digests(self) -> None:
        """F6: the image by deltas is the controller's image, or it is dropped."""
        if self._expected_digest is None or not self.position.digest:
            return
        offset, digest = self._expected_digest
        if offset != self.position.offset:
            return
        self._expected_digest = None
        if digest != self.position.digest:
            ours, theirs = self.position.digest.hex()[:16], digest.hex()[:16]
            self._reset_store(f"the image at {offset} has digest {ours}, the controller's has {theirs}")

    # --- lease and state ---------------------------------------------------------------------------------------------

    @property
    def _needs_lease(self) -> bool:
        """Whether clients are served as long as there is a lease."""
        return self.state in (BrokerState.ONLINE, BrokerState.STOPPING) and not self._fenced_while_stopping

    def _check_lease(self, now_ms: int) -> None:
        if self._needs_lease and self._lease.notice(now_ms):
            self._effects.append(LeaseLapsed(self._lease.until_ms))

    def _maybe_go_online(self, now_ms: int) -> None:
        ready = self._unfenced and self.is_caught_up and self._work is None and self._lease.holds(now_ms)
        if ready and self.state is BrokerState.FENCED:
            self._become(BrokerState.ONLINE, f"unfenced by the controller, applied up to {self.position.offset}")

    def _become(self, state: BrokerState, reason: str) -> None:
        self.reason = reason
        if state is self.state:
            return
        assert state in EDGES[self.state], f"{self.state.name} -> {state.name}: {reason}"
        self.state = state
        if state in (BrokerState.FENCED, BrokerState.OFFLINE):
            self._lease.end()
        self._effects.append(StateChanged(state, reason))

    # --- leaving -----------------------------------------------------------------------------------------------------

    def _on_stop(self, now_ms: int) -> None:
        if self.state is BrokerState.STOPPING:
            return
        if self._in_flight is not None:
            if self._in_flight.request is not None:
                self._effects.append(AbandonFetch(self._in_flight.number))
            self._in_flight = None
        if self.broker_epoch is None:
            self._exit(0, "told to stop while not registered")
            return
        self._fenced_while_stopping = self.state is BrokerState.FENCED
        self._become(BrokerState.STOPPING, "told to stop; leaders are to move away first")
        self._stop_until_ms = now_ms + self._config.shutdown_deadline_ms
        self._ask_at_ms = now_ms

    def _exit(self, code: int, reason: str) -> None:
        self._become(BrokerState.OFFLINE, reason)
        self.exited = True
        self._in_flight = None
        self._ask_at_ms = None
        self._effects.append(Exit(code, reason))

    # --- time --------------------------------------------------------------------------------------------------------

    def _run_deadlines(self, now_ms: int) -> None:
        if self.state is BrokerState.STOPPING and now_ms >= self._stop_until_ms:
            limit_ms = self._config.shutdown_deadline_ms
            self._exit(0, f"leaders did not move away within {limit_ms} ms (controlled.shutdown.deadline.ms)")
            return
        sent = self._in_flight
        if sent is not None and now_ms >= sent.timeout_at_ms:
            self._in_flight = None
            self._on_timeout(sent, now_ms)
        if not self.exited and self._in_flight is None and self._ask_at_ms is not None and now_ms >= self._ask_at_ms:
            self._ask(now_ms)

    def _on_timeout(self, sent: _InFlight, now_ms: int) -> None:
        waited = f"no answer within {sent.timeout_at_ms - sent.sent_ms} ms"
        if sent.request is None:
            self._on_register_failed(RegisterFailed(sent.number, ErrorCode.REQUEST_TIMED_OUT, waited), now_ms)
            return
        self._effects.append(AbandonFetch(sent.number))
        self._on_fetch_failed(FetchFailed(sent.number, ErrorCode.REQUEST_TIMED_OUT, waited), now_ms)

    def _ask(self, now_ms: int) -> None:
        self._ask_at_ms = None
        self._number += 1
        if self.broker_epoch is None:
            timeout_ms = self._config.register_timeout_ms
            self._in_flight = _InFlight(self._number, now_ms, now_ms + timeout_ms, None)
            # A predecessor that died between registering and noting it may be any of them: they take turns.
            previous = self._previous_incarnations
            named = previous[self._failures % len(previous)] if previous else None
            self._effects.append(Register(self._number, named, timeout_ms))
            return
        request = self._next_fetch(self.broker_epoch)
        timeout_at_ms = now_ms + request.max_wait_ms + self._config.request_timeout_ms
        self._in_flight = _InFlight(self._number, now_ms, timeout_at_ms, request)
        self._effects.append(Fetch(request))

    def _next_fetch(self, broker_epoch: int) -> FetchRequest:
        busy = self._work is not None
        stopping = self.state is BrokerState.STOPPING
        if busy:
            max_wait_ms = 0
        elif stopping:
            max_wait_ms = self._config.shutdown_interval_ms
        elif self.state is BrokerState.ONLINE:
            max_wait_ms = self._config.max_wait_ms
        else:
            max_wait_ms = self._config.fenced_max_wait_ms
        return FetchRequest(
            number=self._number,
            broker_epoch=broker_epoch,
            position=self.position,
            wants_fence=not self.is_caught_up,
            wants_shut_down=stopping,
            max_wait_ms=max_wait_ms,
            max_bytes=1 if busy else self._config.max_bytes,
        )

    def _backoff(self, failures: int, max_ms: int | None = None) -> int:
        doubled = self._config.backoff_ms << min(max(failures - 1, 0), 16)
        return self._jittered(min(doubled, max_ms or self._config.backoff_max_ms))

    def _jittered(self, interval_ms: int) -> int:
        """Between a half and the whole of it: brokers that lost one controller do not come back in step."""
        return max(1, round(interval_ms * self._rng.uniform(0.5, 1.0)))
