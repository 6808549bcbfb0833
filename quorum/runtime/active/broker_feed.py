"""Answers the brokers' fetches on the active controller: with new records at once, or after a wait.

*Each broker waits with one fetch, and all brokers wait for the next commit.* Up to WAKE_AT_ONCE_MAX brokers are answered at the
commit. More brokers are answered together a little later, so that a burst of commits costs one answer for each broker. Example
with 100 waiting brokers and `broker_linger_ms` = 20:
    1. a commit at 0 ms begins the linger; the commits at 5 ms and 12 ms follow;
    2. at 20 ms each of the 100 brokers receives one answer with the batches of all three commits.

*Every answer carries the broker's standing*, and a lease if the broker may serve. The lease depends on the proposed image, too,
not only on the committed image (`Controller.may_serve`): a broker whose fencing is decided gets no lease, even before the commit.
"""

from dataclasses import replace

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import Epoch, Offset
from quorum.controller.controller import Controller
from quorum.core.protocol.deadlines import soonest
from quorum.runtime.active import metadata_feed
from quorum.runtime.active.waiting_room import ParkedFetch, ParkedFetches
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched, Refused
from quorum.runtime.protocol.world import BrokerFetch, ReplyTo

WAKE_AT_ONCE_MAX = 32
"""Maximum number of waiting brokers that are answered at the commit; more brokers are answered together after a linger."""


class BrokerFeed:
    """Serves fetches for an `ActiveController`, which notes the broker's contact first."""

    def __init__(self, parts: Parts, controller: Controller) -> None:
        self._config, self._core, self._time = parts.config, parts.core, parts.time
        self._log, self._state, self._world = parts.log, parts.state, parts.world
        self._found_damage = parts.found_damage
        self._controller = controller
        self._parked = ParkedFetches()
        self._epoch: Epoch = 0
        self._woken_at: Offset = 0
        """All records below this offset were offered to the waiting brokers."""
        self._wake_deadline_ms: int | None = None

    def begin(self, epoch: Epoch) -> None:
        """Starts to serve brokers in `epoch`."""
        self._epoch = epoch
        self._woken_at = self._state.applied

    def end(self, refusal: Refused) -> None:
        """Answers every waiting fetch with `refusal`, because the leadership has ended."""
        for parked in self._parked.wake_all():
            self._world.reply(parked.reply_to, refusal)
        self._wake_deadline_ms = None

    def serve(self, event: BrokerFetch, now_ms: int) -> None:
        """Answers a fetch with new records or with another position to fetch from; otherwise the fetch waits."""
        fetch = event.fetch
        try:
            verdict = metadata_feed.position_verdict(fetch, self._log, self._state.applied)
        except CorruptLog as e:
            self._step_down_damaged(e, event.reply_to)
            return
        if verdict is not None:
            self._world.reply(event.reply_to, self._with_standing(verdict, fetch))
            return
        parked = ParkedFetch(fetch, event.reply_to, now_ms + min(fetch.max_wait_ms, self._config.fetch_wait_max_ms))
        standing = self._controller.standing(self._state.committed, fetch.broker_id)
        if fetch.offset < self._state.applied or fetch.max_wait_ms <= 0 or standing.should_shut_down:
            self._answer(parked)
        else:
            earlier = self._parked.park(parked)
            if earlier is not None:
                self._answer(earlier)

    def _with_standing(self, verdict: MetadataFetched | Refused, fetch: MetadataFetch) -> MetadataFetched | Refused:
        if isinstance(verdict, Refused):
            return verdict
        standing = self._controller.standing(self._state.committed, fetch.broker_id)
        return replace(verdict, controller_epoch=self._epoch, standing=standing, lease_ms=self._lease_for(fetch))

    def _lease_for(self, fetch: MetadataFetch) -> int:
        """The lease that the broker may be given now; 0: none."""
        may_serve = self._controller.may_serve(self._state.proposed, fetch.broker_id, fetch.offset)
        return self._lease_ms() if may_serve else 0

    def _lease_ms(self) -> int:
        """The lease; 0 unless a majority has confirmed the leadership within `quorum_age_ms`.

        Counter-example without the rule:
            1. leader 1 is paused for a minute; node 2 is elected, and fences broker 101;
            2. leader 1 wakes up, does not know of the election, and answers a fetch of broker 101;
            3. the answer would grant a lease to a fenced broker, which would serve its clients on.
        """
        began_ms = self._core.last_quorum_round_began_ms
        if began_ms is None or self._time.now_ms - began_ms >= self._config.quorum_age_ms:
            return 0
        return self._config.lease_ms

    def _answer(self, parked: ParkedFetch) -> None:
        fetch = parked.fetch
        if fetch.offset < self._log.shape.start.offset:
            # The offset was in the log when the fetch arrived. During the linger, retention has deleted the beginning of the log.
            verdict = metadata_feed.position_verdict(fetch, self._log, self._state.applied)
            assert verdict is not None, f"offset {fetch.offset} is below the log's start"
            self._world.reply(parked.reply_to, self._with_standing(verdict, fetch))
            return
        standing = self._controller.standing(self._state.committed, fetch.broker_id)
        try:
            answer = metadata_feed.deltas(
                fetch,
                self._log,
                self._state,
                epoch=self._epoch,
                standing=standing,
                lease_ms=self._lease_for(fetch),
            )
        except CorruptLog as e:
            self._step_down_damaged(e, parked.reply_to)
            return
        self._world.reply(parked.reply_to, answer)

    def _step_down_damaged(self, error: CorruptLog, reply_to: ReplyTo) -> None:
        """Notes damage in the requested range, and refuses the fetch: the next leader can read the range."""
        self._found_damage(error)
        text = "this controller has found damage in its log, and resigns; nothing was done, ask the next leader"
        self._world.reply(reply_to, Refused(ErrorCode.NOT_CONTROLLER, text))

    # --- waking ----------------------------------------------------------------------------------------------------

    def settle(self, now_ms: int) -> bool:
        """Answers the waiting brokers, now or after a linger, if new records are committed. True if new records are committed."""
        if self._state.applied <= self._woken_at:
            return False
        if len(self._parked) <= WAKE_AT_ONCE_MAX:
            self._wake()
        elif self._wake_deadline_ms is None:
            self._wake_deadline_ms = now_ms + self._config.broker_linger_ms
        return True

    def fire_timers(self, now_ms: int) -> None:
        """Answers fetches past their deadline without records; after a linger, answers all fetches."""
        for parked in self._parked.expired(now_ms):
            self._answer(parked)
        if self._wake_deadline_ms is not None and self._wake_deadline_ms <= now_ms:
            self._wake()

    def _wake(self) -> None:
        self._wake_deadline_ms = None
        self._woken_at = self._state.applied
        for parked in self._parked.wake_all():
            self._answer(parked)

    def next_deadline_ms(self) -> int | None:
        return soonest(self._parked.deadlines.next_ms(), self._wake_deadline_ms)
