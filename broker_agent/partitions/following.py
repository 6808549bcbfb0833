"""The partitions that this broker follows: the fetchers' requests, and the work on the logs that the answers bring.

    1. `Follow(leader=101, epoch 5)` arrives: orders-0 joins the fetcher of broker 101, which sends its next request.
    2. The answer has batches for orders-0 and orders-1. They are appended, in slices, and their flushes begin.
    3. The flush of orders-0 ends. The fetcher waits for orders-1, because a request without it would wait at the source, and
       the acknowledgement of orders-1 with it.
    4. Both flushes have ended: the next request acknowledges both.

A fetcher waits at most `HOLD_MS` for the work of its partitions. So a slow disk does not stop the partitions on other disks.

A truncation waits until the file of high watermarks has no higher one than the new end; see `hosted_directory`.
"""

from collections import deque
from typing import Final, NamedTuple, assert_never

from broker_agent.partitions.agenda import Agenda
from broker_agent.partitions.effects import SendFetch
from broker_agent.partitions.flushes import Flushes
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.hosting import Hosting
from broker_agent.publishing.assignments import Follow
from broker_agent.replica.fetch_sessions import SessionAnswer
from broker_agent.replica.fetchers import FetcherKey, Fetchers, Request
from broker_agent.replica.follower import (
    AppendBatches,
    BeginAt,
    FollowerEffect,
    FollowerEffects,
    FollowerHighWatermarkMoved,
    PartitionFollower,
    RaiseLogStart,
    StopReplica,
    TruncateLog,
)
from broker_agent.replica.log_work import carry_out

HOLD_MS: Final = 200
"""How long a fetcher waits at most for appends and flushes before its next request."""


class Stumbled(NamedTuple):
    """The work on a replica's log has failed: an error of the log, or a decision of the follower to stop."""

    replica: HostedReplica
    reason: Exception | StopReplica


class Following:
    """All partitions that this broker follows."""

    def __init__(self, hosting: Hosting, flushes: Flushes) -> None:
        self._hosting = hosting
        self._flushes = flushes
        self._fetchers = Fetchers(hosting.config.fetchers, hosting.rng)
        self._key_of: dict[HostedReplica, FetcherKey] = {}
        self._working: dict[FetcherKey, dict[HostedReplica, None]] = {}
        """The replicas whose logs work on the last answer of the fetcher."""
        self._hold_until_ms: dict[FetcherKey, int] = {}
        self._ready: dict[FetcherKey, None] = {}
        """The fetchers that may have something to send."""
        self._due: Agenda[FetcherKey] = Agenda()
        self._queue: deque[HostedReplica] = deque()
        """The replicas with work that may be done now."""

    # --- roles -------------------------------------------------------------------------------------------------------

    def follow(self, replica: HostedReplica, assignment: Follow, now_ms: int) -> None:
        """Follow the leader of the assignment; a new leader epoch drops the work for the old one."""
        log, follower = replica.log, replica.follower
        assert log is not None and assignment.leader is not None
        is_later = follower is not None and assignment.leader_epoch > follower.leader_epoch
        if follower is not None and follower.stopped is None:
            known = (follower.leader_id, follower.leader_epoch)
            if known == (assignment.leader, assignment.leader_epoch):
                return
            self._drop_work(replica)
        if follower is not None and follower.stopped is None and is_later:
            follower.follow(assignment.leader, assignment.leader_epoch)
        else:  # a recovered history of the cluster may have an earlier leader epoch
            directory = self._hosting.directory_of(replica)
            high_watermark = directory.high_watermarks.get(replica.place, 0)
            follower = PartitionFollower(assignment.leader, assignment.leader_epoch, log.shape, high_watermark)
            replica.follower = follower
            directory.note_high_watermark(replica.place, follower.high_watermark)
        self._key_of[replica] = self._fetchers.follow(replica.place, follower)
        self._flushes.need(replica)
        self.log_changed(replica, now_ms)

    def stop(self, replica: HostedReplica) -> None:
        """Follow no more."""
        if replica.follower is None:
            return
        self._drop_work(replica)
        replica.follower = None
        del self._key_of[replica]
        self._fetchers.stop(replica.place)

    def _drop_work(self, replica: HostedReplica) -> None:
        replica.work.clear()
        key = self._key_of[replica]
        self._working.get(key, {}).pop(replica, None)
        self._ready[key] = None

    # --- answers -----------------------------------------------------------------------------------------------------

    def answered(self, sent: SendFetch, answer: SessionAnswer, now_ms: int) -> None:
        """Take the answer to a request. `work` carries out what the followers decide."""
        self._ready[sent.key] = None
        for place, effect in sent.fetcher.answered(sent.request.number, answer, now_ms):
            replica = self._hosting.replicas[place]
            if not replica.work:
                self._queue.append(replica)
                self._working.setdefault(sent.key, {})[replica] = None
            replica.work.append(effect)
        self._hold_until_ms[sent.key] = now_ms + HOLD_MS
        self._throttle(answer, now_ms)

    def _throttle(self, answer: SessionAnswer, now_ms: int) -> None:
        """Count the bytes of throttled replicas, which are left out of the requests while their quota is used up."""
        quota = self._hosting.follower_quota
        for place, each in answer.answers:
            if each.batches and place in self._hosting.replicas and self._is_throttled(self._hosting.replicas[place]):
                quota.used(sum(len(batch.data) for batch in each.batches), now_ms)
        self.hold_throttled(now_ms)

    def hold_throttled(self, now_ms: int) -> None:
        """Leave the throttled replicas out while the quota is used up."""
        pause_ms = self._hosting.follower_quota.wait_ms(now_ms)
        if pause_ms:
            for replica in self._hosting.follower_throttled():
                key = self._key_of.get(replica)
                fetcher = None if key is None else self._fetchers.fetcher(key)
                if fetcher is not None and self._is_throttled(replica):
                    fetcher.leave_out(replica.place, now_ms, pause_ms)

    def _is_throttled(self, replica: HostedReplica) -> bool:
        """True for a replica outside of the ISR whose copy an operator has throttled (KIP-73)."""
        place, known = replica.place, replica.assignment
        if known is None or self._hosting.me in known.isr:
            return False
        return self._hosting.topic(place.topic_id).follower_throttled.has(place.partition)

    def failed(self, sent: SendFetch, now_ms: int) -> None:
        """Note that a request had no answer."""
        sent.fetcher.failed(sent.request.number, now_ms)
        self._ready[sent.key] = None

    # --- the logs ----------------------------------------------------------------------------------------------------

    def work(self, now_ms: int, wall_ms: int) -> list[Stumbled]:
        """Do one slice of the work on the logs; return the failures.

        Work that waits for the disk ends the slice: after a failover one answer may truncate hundreds of logs. Each costs two
        fsyncs, and the owner's thread also keeps the lease.
        """
        stumbled: list[Stumbled] = []
        for _ in range(min(len(self._queue), self._hosting.config.slice_max)):
            replica = self._queue.popleft()
            waits = any(isinstance(each, TruncateLog | BeginAt | RaiseLogStart) for each in replica.work)
            if replica.work:
                stumbled += self._work_on(replica, now_ms, wall_ms)
            if waits:
                break
        return stumbled

    def _work_on(self, replica: HostedReplica, now_ms: int, wall_ms: int) -> list[Stumbled]:
        log = replica.log
        assert log is not None and replica.follower is not None
        while replica.work:
            effect = replica.work[0]
            if self._must_wait(replica, effect):
                return []
            del replica.work[0]
            match effect:
                case FollowerHighWatermarkMoved(high_watermark):
                    self._note(replica, high_watermark)
                case StopReplica():
                    return [Stumbled(replica, effect)]
                case AppendBatches() | TruncateLog() | BeginAt() | RaiseLogStart():
                    try:
                        if isinstance(effect, RaiseLogStart):
                            self._hosting.begin_trim(replica, log.begin_trim(effect.offset))
                        else:
                            carry_out(log, effect, wall_ms)
                    except Exception as e:
                        return [Stumbled(replica, e)]
                case _:
                    assert_never(effect)
        self._hosting.directory_of(replica).logs.used(log)
        self._flushes.need(replica)
        self.log_changed(replica, now_ms)
        return []

    def _must_wait(self, replica: HostedReplica, effect: FollowerEffect) -> bool:
        """True if the file of high watermarks must be written before a truncation, or if an earlier trim is under way."""
        if isinstance(effect, RaiseLogStart | BeginAt) and replica.job is not None:
            return True
        if not isinstance(effect, TruncateLog | BeginAt):
            return False
        end = effect.end if isinstance(effect, TruncateLog) else effect.start.offset
        directory = self._hosting.directory_of(replica)
        if directory.may_be_in_file(replica.place) <= end:
            return False
        assert replica.follower is not None and replica.follower.high_watermark <= end
        directory.note_high_watermark(replica.place, replica.follower.high_watermark)
        directory.wait_for_write(replica)
        work = directory.write()
        if work is not None:
            self._hosting.emit(work)
        return True

    def go_on(self, replicas: list[HostedReplica]) -> None:
        """Go on with the work that has waited for the disk."""
        self._queue.extend(replica for replica in replicas if replica.work)

    def no_room(self, replica: HostedReplica, now_ms: int) -> None:
        """Drop the work of an answer for which the disk had no room, and fetch again later."""
        self._drop_work(replica)
        fetcher = self._fetchers.fetcher(self._key_of[replica])
        assert fetcher is not None
        fetcher.leave_out(replica.place, now_ms)
        self._flushes.need(replica)
        self.log_changed(replica, now_ms)

    def log_changed(self, replica: HostedReplica, now_ms: int) -> None:
        """Note the new shape of the log after work or a flush."""
        assert replica.follower is not None and replica.log is not None
        if replica.work:
            return  # its work is not done
        self._carry(replica, replica.follower.log_changed(replica.log.shape))
        key = self._key_of[replica]
        if replica.follower.is_active:
            self._working.get(key, {}).pop(replica, None)
        self._ready[key] = None

    def _carry(self, replica: HostedReplica, effects: FollowerEffects) -> None:
        for effect in effects:
            assert isinstance(effect, FollowerHighWatermarkMoved), effect
            self._note(replica, effect.high_watermark)

    def _note(self, replica: HostedReplica, high_watermark: int) -> None:
        self._hosting.directory_of(replica).note_high_watermark(replica.place, high_watermark)

    # --- requests ----------------------------------------------------------------------------------------------------

    def ask(self, now_ms: int) -> None:
        """Send the requests that may be sent now."""
        while (due := self._due.due(now_ms)) is not None:
            self._ready[due] = None
        for key in self._ready:
            self._ask(key, now_ms)
        self._ready.clear()

    def _ask(self, key: FetcherKey, now_ms: int) -> None:
        fetcher = self._fetchers.fetcher(key)
        if fetcher is None:
            self._due.drop(key)
            self._working.pop(key, None)
            self._hold_until_ms.pop(key, None)
            return
        hold_until_ms = self._hold_until_ms.get(key, now_ms)
        if self._working.get(key) and now_ms < hold_until_ms:
            self._due.set(key, hold_until_ms)
            return
        wanted = fetcher.next(now_ms)
        if isinstance(wanted, Request):
            self._due.drop(key)
            self._hosting.emit(SendFetch(key, fetcher, wanted))
        elif wanted.until_ms is None:
            self._due.drop(key)
        else:
            self._due.set(key, wanted.until_ms)

    def ask_no_more(self) -> None:
        """Drop the requests that may be sent: this broker stops."""
        self._ready.clear()

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `work` and `ask` are due."""
        return now_ms if self._queue or self._ready else self._due.next_ms()
