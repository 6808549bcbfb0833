"""The brokers that an active controller feeds: a fetch is answered with news at once, or waits for some.

*Each broker waits with one fetch, and all for the same thing: the next commit.* A few are woken by it at once. Many are woken
together after a linger, so that a burst of commits costs one answer each, not one for each commit.

*With every answer the broker is told its standing*, and is given a lease if it may serve: not by what is committed alone, but
also by what is decided and on its way (`Controller.may_serve`).
"""

from collections.abc import Callable
from dataclasses import replace

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import Epoch, Offset
from metadata_log.store.log_view import LogView
from quorum.controller.controller import Controller
from quorum.core.protocol.deadlines import soonest
from quorum.runtime.active import metadata_feed
from quorum.runtime.active.waiting_room import ParkedFetch, ParkedFetches
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched, Refused
from quorum.runtime.protocol.world import BrokerFetch, ReplyTo, World

WAKE_AT_ONCE_MAX = 32
"""Up to so many waiting brokers are woken at once; more are woken together after a linger."""


class BrokerFeed:
    """Lives inside an `ActiveController`, which notes the contact before it hands the fetch on."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        controller: Controller,
        log: LogView,
        state: StateMachine,
        world: World,
        lease_ms: Callable[[], int],
        found_damage: Callable[[CorruptLog], None],
    ) -> None:
        self._config = config
        self._controller = controller
        self._log = log
        self._state = state
        self._world = world
        self._lease_ms = lease_ms
        self._found_damage = found_damage
        self._parked = ParkedFetches()
        self._epoch: Epoch = 0
        self._woken_at: Offset = 0
        """All below it was offered to who waited."""
        self._wake_deadline_ms: int | None = None

    def begin(self, epoch: Epoch) -> None:
        """This node is the active controller of `epoch`."""
        self._epoch = epoch
        self._woken_at = self._state.applied

    def end(self, refusal: Refused) -> None:
        """It is so no more; who waits is told."""
        for parked in self._parked.wake_all():
            self._world.reply(parked.reply_to, refusal)
        self._wake_deadline_ms = None

    def serve(self, event: BrokerFetch, now_ms: int) -> None:
        """News, or another position to fetch from; or the fetch waits."""
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

    def _answer(self, parked: ParkedFetch) -> None:
        fetch = parked.fetch
        if fetch.offset < self._log.shape.start.offset:
            # It was there when the fetch came. Before a linger was over, a mark's snapshot has let retention drop it.
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
        """What was asked for is damaged here; others have it."""
        self._found_damage(error)
        text = "this controller has found damage in its log, and will not lead until it is mended"
        self._world.reply(reply_to, Refused(ErrorCode.NOT_CONTROLLER, text))

    # --- waking ----------------------------------------------------------------------------------------------------

    def settle(self, now_ms: int) -> bool:
        """Wakes who waits, now or soon, if there is news. Returns whether there was."""
        if self._state.applied <= self._woken_at:
            return False
        if len(self._parked) <= WAKE_AT_ONCE_MAX:
            self._wake()
        elif self._wake_deadline_ms is None:
            self._wake_deadline_ms = now_ms + self._config.broker_linger_ms
        return True

    def fire_timers(self, now_ms: int) -> None:
        """Who has waited for long enough is answered without news; after a linger all are woken."""
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
