"""Answers the brokers' fetches on the active controller: with new records at once, or after a wait.

*Each broker waits with one fetch, and all brokers wait for the next commit.* Up to `broker_wake_at_once_max` brokers are answered
at the commit. More brokers are answered in a wave a little later, so that a burst of commits costs one answer for each broker. A
wave has slices of `broker_answers_per_turn_max` answers, one in each turn. Between two turns the event loop sends the answers,
and takes what has arrived. Example with 100 waiting brokers and `broker_linger_ms` = 20:
    1. a commit at 0 ms begins the linger; the commits at 5 ms and 12 ms follow;
    2. at 20 ms the wave begins: the 64 brokers that have waited longest receive one answer with the batches of all three commits;
    3. a voter's fetch has arrived; the next turn answers the voter first, then the other 36 brokers.
A commit during a wave begins a new linger. A broker that was answered, and waits again, is not in the rest of the wave.

*After a wave the feed rests*, so that it gives `broker_answers_per_s_max` answers a second. A fetch that comes meanwhile waits
for the next wave, although there is news for it. Counter-example without the rest, when 1,000 brokers start together:
    1. each broker that comes online is a commit; 600 brokers are online, and each of them receives every commit by itself;
    2. the event loop takes 600 fetches, then one new stream, because gRPC's server accepts one stream in each of its rounds;
    3. that broker comes online: one more commit, 600 answers. The last brokers wait for 40 s; gRPC cancels a stream after 30 s.
With the rest, hundreds of streams are accepted between two waves, and the next wave tells of all these brokers.

*Every answer carries the broker's standing*, and a lease if the broker may serve. The lease depends on the proposed image, too,
not only on the committed image (`Controller.may_serve`): a broker whose fencing is decided gets no lease, even before the commit.
"""

import math
from dataclasses import replace
from itertools import chain, islice

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import Epoch, Offset
from quorum.controller.controller import Controller
from quorum.core.protocol.deadlines import soonest
from quorum.runtime.active import metadata_feed
from quorum.runtime.active.waiting_room import ParkedFetch, ParkedFetches
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched, Refused
from quorum.runtime.protocol.world import BrokerFetch, ReplyTo

ROUNDED_SHARE = 32
"""The share of its wait, as 1 / ROUNDED_SHARE, by which a broker is answered early at most, so that a turn answers many."""


class BrokerFeed:
    """Serves fetches for an `ActiveController`, which notes the broker's contact first."""

    def __init__(self, parts: Parts, controller: Controller) -> None:
        self._config, self._core, self._time = parts.config, parts.core, parts.time
        self._log, self._state, self._world = parts.log, parts.state, parts.world
        self._found_damage = parts.found_damage
        self._controller = controller
        self._parked = ParkedFetches()
        self._ranges = metadata_feed.Ranges(parts.log, parts.state)
        self._epoch: Epoch = 0
        self._offered: Offset = 0
        """The end of the last wave's records: all that is applied when a wave begins."""
        self._wave_at_ms: int | None = None
        """The end of the linger, or of the rest; None: no commit waits for it."""
        self._rests_until_ms = 0.0
        """No wave begins earlier. Each answer of a wave moves this time."""
        self.has_more_to_do = False
        """True if this turn may have left brokers without the answer that is due."""

    def begin(self, epoch: Epoch) -> None:
        """Starts to serve brokers in `epoch`."""
        self._epoch = epoch
        self._offered = self._state.applied
        self._rests_until_ms = 0.0

    def end(self, refusal: Refused) -> None:
        """Answers every waiting fetch with `refusal`, because the leadership has ended."""
        for parked in self._parked.drain():
            self._world.reply(parked.reply_to, refusal)
        self._wave_at_ms = None
        self.has_more_to_do = False

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
        wait_ms = min(fetch.max_wait_ms, self._config.fetch_wait_max_ms)
        parked = ParkedFetch(fetch, event.reply_to, _round_deadline_ms(now_ms, wait_ms))
        standing = self._controller.standing(self._state.committed, fetch.broker_id)
        # A broker that lacks only what the next wave brings waits for it.
        held_below = self._state.applied if self._wave_at_ms is None else self._offered
        if fetch.offset < held_below or fetch.max_wait_ms <= 0 or standing.should_shut_down:
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
                self._ranges,
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
        """Ends a turn: answers a slice of the brokers that have waited for a commit, or as long as they wanted.

        True if the waiting brokers were not offered all that is committed when the turn ended.
        """
        has_news = self._state.applied > self._offered
        if has_news and self._wave_at_ms is None:
            at_once = len(self._parked) <= self._config.broker_wake_at_once_max
            linger_ms = 0 if at_once else self._config.broker_linger_ms
            self._wave_at_ms = max(now_ms + linger_ms, math.ceil(self._rests_until_ms))
        if self._wave_at_ms is not None and self._wave_at_ms <= now_ms:
            self._begin_wave()
        slice_max, answered = self._config.broker_answers_per_turn_max, 0
        for parked in islice(chain(self._parked.picked(), self._parked.expired(now_ms)), slice_max):
            self._answer(parked)
            answered += 1
        rest_ms = answered * 1_000 / self._config.broker_answers_per_s_max
        self._rests_until_ms = max(self._rests_until_ms, now_ms) + rest_ms
        self.has_more_to_do = answered == slice_max
        return has_news

    def _begin_wave(self) -> None:
        self._wave_at_ms = None
        self._offered = self._state.applied
        self._parked.pick_below(self._offered)

    def next_deadline_ms(self) -> int | None:
        return soonest(self._parked.deadlines.next_ms(), self._wave_at_ms)


def _round_deadline_ms(now_ms: int, wait_ms: int) -> int:
    """The end of a wait, moved to a slightly earlier round time.

    Example with 1,000 brokers that wait for 2,000 ms, and come at any time: a turn at each multiple of 62 ms answers about 31 of
    them. These 31 fetch again together, and a turn or two take their fetches. Without round times, each would cost two turns.
    """
    deadline_ms = now_ms + wait_ms
    return deadline_ms - deadline_ms % max(1, wait_ms // ROUNDED_SHARE)
