"""The fetches of followers and consumers, from their arrival to their answers.

A fetch is looked at in slices, so that a request for thousands of partitions does not hold up the broker. A request in a session
looks only at its named partitions, and at partitions with news (see `watchers`):

    1. Follower 102 opens session 77 with 5,000 partitions: 25 slices of 200, with a `Wake` after each, and a full answer.
    2. The next request names orders-3, whose new offset acknowledges a record. The high watermark of orders-3 moves.
    3. orders-3 is the only partition of the answer.

*Order.* Partitions without room in the answer are left over for the next answer, and come first then. The partitions in the
request come second. Each of these is judged in any case: a follower's offset is an acknowledgement.

*Memory.* A fetch that waits knows the sizes of its records, and keeps no records. Its answer reads them again, in slices.
"""

from broker_agent.partitions.agenda import Agenda
from broker_agent.partitions.consumer_rules import judge_consumer
from broker_agent.partitions.failures import Failures
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting
from broker_agent.partitions.leading import Leading
from broker_agent.partitions.open_fetch import FetchSource, OpenFetch, Watcher
from broker_agent.partitions.watchers import SHORT_MS, Watchers
from broker_agent.replica.divergence import Diverged, Refused, Verdict
from broker_agent.replica.fetch_sessions import NO_SESSION, SessionAnswer, SessionRequest
from broker_agent.replica.follower import LogStart, PartitionAnswer, PartitionFetch
from broker_agent.replica.leader import ReplicaFetch
from broker_agent.replica.producers import PartitionRefused
from broker_agent.replica.session_cache import SessionCache
from broker_agent.session.isr_proposals import Place
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId


class Serving:
    """All open fetches, and the sessions behind them."""

    def __init__(self, hosting: Hosting, watchers: Watchers, leading: Leading, failures: Failures) -> None:
        self._hosting = hosting
        self._watchers = watchers
        self._leading = leading
        self._failures = failures
        self._sessions = SessionCache(hosting.config.sessions, hosting.rng, self._session_ended)
        self._watcher_of: dict[int, Watcher] = {}
        """By session."""
        self._due: Agenda[OpenFetch] = Agenda()

    # --- beginning ---------------------------------------------------------------------------------------------------

    def open(
        self,
        source: FetchSource | None,
        request: SessionRequest,
        now_ms: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
    ) -> OpenFetch:
        """Begin to serve a fetch."""
        context = self._sessions.open(request, now_ms, privileged=source is not None)
        watcher = self._watcher(context.session_id, None if source is None else source.broker_id)
        named = {place: None for place, _ in context.named} if context.error is ErrorCode.NONE else {}
        if context.session_id != NO_SESSION:
            for place in context.forgotten:
                self._watchers.unwatch(place, watcher)
        for place in named:
            self._watchers.watch(place, watcher)
        enough = min(min_bytes, max_bytes)  # more bytes than the answer may have never come
        watcher.fetch = OpenFetch(source, context, watcher, now_ms + max_wait_ms, enough, max_bytes, named)
        return watcher.fetch

    def _watcher(self, session_id: int, follower_id: NodeId | None) -> Watcher:
        if session_id == NO_SESSION:
            return Watcher(follower_id)
        return self._watcher_of.setdefault(session_id, Watcher(follower_id))

    def _session_ended(self, session_id: int) -> None:
        watcher = self._watcher_of.pop(session_id, None)
        if watcher is not None:
            self._watchers.end(watcher)

    def drop(self, fetch: OpenFetch) -> None:
        """Forget a fetch whose caller went away. Its session, if any, is in doubt: the next request will be full."""
        self._end(fetch)

    def _end(self, fetch: OpenFetch) -> None:
        fetch.is_done = True
        self._due.drop(fetch)
        if fetch.watcher.fetch is fetch:
            fetch.watcher.fetch = None
        fetch.answers, fetch.named = {}, {}  # their records must not stay in memory as long as the caller's token
        if fetch.context.session_id == NO_SESSION:
            self._watchers.end(fetch.watcher)

    # --- answering ---------------------------------------------------------------------------------------------------

    def poll(self, fetch: OpenFetch, now_ms: int) -> SessionAnswer | None:
        """Return the answer, or None. After None, a `Wake` follows."""
        assert not fetch.is_done, "an answered fetch is polled again"
        if fetch.watcher.fetch is not fetch:  # a later request of the same session has come
            self._end(fetch)
            return SessionAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        fetch.is_woken = True  # this call needs no wake-up
        is_complete = self._look(fetch, now_ms)
        fetch.is_woken = False
        if not is_complete:
            self._watchers.wake(fetch)
            return None
        is_first, fetch.was_looked_at = not fetch.was_looked_at, True
        if is_first and self._watchers.is_awaited(fetch.watcher.follower_id, now_ms):
            fetch.deadline_ms = min(fetch.deadline_ms, now_ms + SHORT_MS)
        if not self._is_ready(fetch, is_first=is_first) and now_ms < fetch.deadline_ms:
            _let_go(fetch)
            self._due.set(fetch, fetch.deadline_ms)
            return None
        if len(fetch.held) < len(fetch.sizes):
            fetch.named.update((place, None) for place in fetch.sizes if place not in fetch.held)
            self._watchers.wake(fetch)
            return None
        answers = fetch.answers
        self._hosting.leader_quota.used(sum(fetch.sizes[place] for place in fetch.throttled & fetch.held), now_ms)
        self._end(fetch)
        fetch.watcher.todo.update(fetch.later)
        for place, answer in answers.items():
            if answer.batches or answer.diverged is not None or answer.error is not ErrorCode.NONE:
                # The fetcher may drop the answer, and then ask for the same place again without a word in its request.
                fetch.watcher.todo[place] = None
        return fetch.context.answer(answers)

    def _is_ready(self, fetch: OpenFetch, *, is_first: bool) -> bool:
        """True if the fetch is to be answered before its deadline."""
        if fetch.context.error is not ErrorCode.NONE or fetch.has_news or fetch.size_bytes >= fetch.min_bytes:
            return True
        return (
            is_first and fetch.source is not None and fetch.context.is_full and fetch.context.session_id != NO_SESSION
        )

    def _look(self, fetch: OpenFetch, now_ms: int) -> bool:
        """Look at one slice of the partitions. Return True if all that the answer needs has been looked at."""
        todo, named = fetch.watcher.todo, fetch.named
        for _ in range(self._hosting.config.slice_max):
            if todo and fetch.size_bytes < fetch.max_bytes:
                place = next(iter(todo))
            elif named:
                place = next(iter(named))
            else:
                return True
            named.pop(place, None)
            has_more = self._look_at(fetch, place, now_ms)
            todo.pop(place, None)
            if has_more:
                todo[place] = None
        return not named and (not todo or fetch.size_bytes >= fetch.max_bytes)

    def _look_at(self, fetch: OpenFetch, place: Place, now_ms: int) -> bool:
        """Find the answer of one partition. Return True if records had no room in the answer."""
        asked = fetch.context.fetch_of(place)
        before = fetch.answers.pop(place, None)
        fetch.size_bytes -= fetch.sizes.pop(place, 0)
        fetch.held.discard(place)
        if asked is None:
            return False
        answer, has_more = self._read(fetch, place, asked, now_ms)
        fetch.answers[place] = answer
        if answer.batches:
            fetch.sizes[place] = size = sum(len(each.data) for each in answer.batches)
            fetch.size_bytes += size
            fetch.held.add(place)
        if answer.error is not ErrorCode.NONE or answer.diverged is not None:
            fetch.has_news = True
        elif fetch.source is not None:
            fetch.has_news |= fetch.context.is_news(place, answer) if not fetch.context.is_full else before is not None
        return has_more

    # --- one partition -----------------------------------------------------------------------------------------------

    def _read(self, fetch: OpenFetch, place: Place, asked: PartitionFetch, now_ms: int) -> tuple[PartitionAnswer, bool]:
        replica = self._hosting.replicas.get(place)
        if replica is None or replica.leader is None or replica.log is None:
            is_broken = replica is not None and replica.failure is not None
            return PartitionAnswer(ErrorCode.STORAGE_ERROR if is_broken else ErrorCode.NOT_LEADER_OR_FOLLOWER), False
        verdict = self._judge(fetch, replica, asked, now_ms)
        leader, start = replica.leader, replica.log.start
        begin_at = LogStart(start.start.offset, start.start.epoch, start.chain)
        news = PartitionAnswer(ErrorCode.NONE, leader.high_watermark, start.start.offset)
        if isinstance(verdict, Refused):
            is_outside = verdict.code is ErrorCode.OFFSET_OUT_OF_RANGE
            return news._replace(error=verdict.code, begin_at=begin_at if is_outside else None), False
        if isinstance(verdict, Diverged):
            return news._replace(diverged=verdict.end, begin_at=begin_at), False
        until = leader.high_watermark if fetch.source is None else leader.shape.end
        if asked.offset >= until:
            return news, False
        is_throttled = self._is_throttled(fetch, replica)
        if is_throttled and self._hosting.leader_quota.wait_ms(now_ms):
            fetch.later[place] = None
            return news, False
        room = min(fetch.max_bytes - fetch.size_bytes, max(1, asked.max_bytes))
        if room <= 0:
            return news, True
        try:
            batches = replica.log.read(asked.offset, room, until)
        except PartitionRefused as e:
            return news._replace(error=e.code), False
        except Exception as e:
            self._failures.failed(replica, e)
            return PartitionAnswer(ErrorCode.STORAGE_ERROR), False
        self._hosting.directory_of(replica).logs.used(replica.log)
        if is_throttled:
            fetch.throttled.add(place)
        return news._replace(batches=batches), False

    def _is_throttled(self, fetch: OpenFetch, replica: HostedReplica) -> bool:
        """True for a follower outside of the ISR whose copy an operator has throttled (KIP-73)."""
        leader, place = replica.leader, replica.place
        if fetch.source is None or leader is None or fetch.source.broker_id in leader.isr.committed:
            return False
        return self._hosting.topic(place.topic_id).leader_throttled.has(place.partition)

    def _judge(self, fetch: OpenFetch, replica: HostedReplica, asked: PartitionFetch, now_ms: int) -> Verdict:
        leader = replica.leader
        assert leader is not None
        if fetch.source is None:
            return judge_consumer(leader, asked)
        follower = ReplicaFetch(*fetch.source, asked.leader_epoch, asked.offset, asked.last_fetched_epoch)
        known = leader.followers.get(fetch.source.broker_id)
        before = None if known is None else known.end
        verdict, effects = leader.fetched(follower, now_ms)
        if before is not None and known is not None and known.end is not None and known.end < before:
            # A late request of the same follower, perhaps. Its present session does not name this partition again by itself.
            self._watchers.doubted(replica.place, fetch.watcher)
        self._leading.carry(replica, effects)
        return verdict

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Wake the fetches whose deadline has come."""
        while (fetch := self._due.due(now_ms)) is not None:
            self._watchers.wake(fetch)

    def next_deadline_ms(self) -> int | None:
        """When `tick` is due."""
        return self._due.next_ms()


def _let_go(fetch: OpenFetch) -> None:
    """Keep the sizes of the records, and not the records."""
    for place in fetch.held:
        fetch.answers[place] = fetch.answers[place]._replace(batches=())
    fetch.held.clear()
