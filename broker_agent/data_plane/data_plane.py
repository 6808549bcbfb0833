"""The data plane of one broker: the tasks around `ReplicaManager`. It decides nothing.

    metadata, appends, fetches, ends of disk work, timer --inputs--> ReplicaManager --effects--> threads, other brokers, answers

The manager lives on the event loop. Its effects go to threads (`disk_work`), to other brokers (`fetch_client`), to the
controllers (`isr_sender`, and the agent), and to the calls that wait for an answer. Example: an append with acks=all.

    1. A producer calls Append. `append` gives the batch to the manager, with token 7, and waits for token 7.
    2. The manager has appended, and returns `Flush` and `Wake`. A thread flushes. The parked fetch of follower 102 is answered.
    3. The fetch of follower 102 comes again, from the next offset. The manager returns `Produced(7)`, and the call of step 1 is
       answered, if the broker still has its lease (`partition_service`).

*A turn is short*: assignments, ends of disk work and batches of one request are taken in slices.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final, Protocol, assert_never

from broker_agent.data_plane.append_messages import Outcome, Refused, WriteOrRefused
from broker_agent.data_plane.disk_work import DiskWorkers, Ended
from broker_agent.data_plane.fetch_messages import ANY_EPOCH, Fetch, FetchLimits
from broker_agent.data_plane.isr_sender import IsrSender
from broker_agent.data_plane.metadata_inputs import MetadataInputs
from broker_agent.data_plane.offset_messages import EpochQuestion, OffsetQuestion
from broker_agent.data_plane.own_fetches import OwnFetches, SourceBrokers
from broker_agent.data_plane.problems import DataProblems
from broker_agent.data_plane.tallies import DataPlaneTallies, bytes_of, keep_counting
from broker_agent.metadata_loader import Log
from broker_agent.partitions.effects import (
    AssignDirectory,
    BrokerFailed,
    DeleteLog,
    DirectoryFailed,
    Effect,
    Effects,
    FindTime,
    Flush,
    FoundOffset,
    OffsetFound,
    OpenLog,
    Produced,
    ReplicaFailed,
    SendFetch,
    SendProposal,
    Stopped,
    StrayLogs,
    TrimLog,
    Wake,
    WriteHighWatermarks,
)
from broker_agent.partitions.offset_questions import EpochEnd, OffsetWanted
from broker_agent.partitions.open_fetch import FetchSource, OpenFetch
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.publishing.assignment_feed import AssignmentFeed
from broker_agent.replica.fetch_sessions import SessionAnswer
from broker_agent.replica.isr import IsrAnswer
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.replica.purgatory import Acks
from broker_agent.session.isr_proposals import Place
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Uuid, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from service_kit.process.switches import frequent_switches
from service_kit.rpc.refusals import Refusal

TURN_MS: Final = 5
"""How long one call may append before other tasks of the event loop run."""


class HostingBroker(Protocol):
    """The view of the agent that the data plane needs."""

    @property
    def broker_id(self) -> NodeId: ...

    @property
    def broker_epoch(self) -> int | None: ...

    @property
    def image(self) -> MetadataImage: ...

    def may_serve(self) -> bool: ...

    def assign_directories(self, directory: Uuid, replicas: Iterable[Place]) -> None: ...

    def directory_failed(self, directory: Uuid) -> None: ...

    def give_up(self, reason: str) -> None: ...


class _Append:
    """One call that appends: the outcomes that are there, and how many are not."""

    def __init__(self, size: int) -> None:
        self.outcomes: list[Outcome | None] = [None] * size
        self.open = size
        self.done = asyncio.Event()

    def end(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        self.open -= 1
        if not self.open:
            self.done.set()


class DataPlane:
    """The data plane of one broker, for one event loop. `run` is its task; `stop` ends it in order, `close` in any case."""

    def __init__(
        self,
        broker: HostingBroker,
        manager: ReplicaManager,
        sources: SourceBrokers,
        feed: AssignmentFeed,
        fetch_limits: FetchLimits,
        isr_sender: Callable[[Callable[[SendProposal, IsrAnswer], None]], IsrSender],
        *,
        threads_per_directory: int,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        log: Log,
    ) -> None:
        """`isr_sender` makes the sender of proposals; it gets the function that takes the answers."""
        self._broker = broker
        self.manager = manager
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._log = log
        self._isr_sender = isr_sender(self._proposal_answered)
        self._workers = DiskWorkers(self._disk_ended, wall_ms, threads_per_directory)
        self.tallies = DataPlaneTallies()
        self.problems = DataProblems()
        self.inputs = MetadataInputs(broker, manager, feed, self._carry_out, now_ms)
        """`inputs.take` is a subscriber of `Publishers`."""
        self._own_fetches = OwnFetches(
            broker, manager, sources, fetch_limits, self._carry_out, self.tallies, now_ms, wall_ms, log
        )
        self._tokens = count(1)
        self._appends: dict[int, tuple[_Append, int, Place]] = {}
        """Token -> the call that waits for it, its batch in the call, and the partition."""
        self._searches: dict[int, asyncio.Future[FoundOffset]] = {}
        """Token -> the question for a time that waits."""
        self._parked: dict[OpenFetch, asyncio.Event] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._has_stopped = asyncio.Event()
        self._has_ended = False
        """True once nothing is served any more."""
        self._is_closed = False

    # --- running -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Looks at the log directories. Waits for the disk; call it once, before the broker registers."""
        self._carry_out(self.manager.start(self._now_ms()))
        for directory, reason in self.manager.notes.items():
            self._log.warning("high watermarks lost", directory=uuid_text(directory), reason=reason)

    async def run(self) -> None:
        """Carries out the assignments, and sends the proposals, until the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._isr_sender.run())
            tasks.create_task(self.inputs.follow_assignments())
            tasks.create_task(keep_counting(self.manager, self.tallies))

    async def stop(self) -> None:
        """Ends all leaderships here, and makes everything durable. The broker's leaderships have moved away."""
        self._end()
        self._carry_out(self.manager.stop(self._now_ms()))
        await self._has_stopped.wait()

    def close(self) -> None:
        """Ends everything at once, and closes the files."""
        if self._is_closed:
            return
        self._is_closed = True
        self._end()
        if self._timer is not None:
            self._timer.cancel()
        self._own_fetches.close()
        self._workers.close()
        self.manager.close()

    def _end(self) -> None:
        """Ends the fetches and questions that wait."""
        self._has_ended = True
        for news in self._parked.values():
            news.set()
        for each in self._searches.values():
            if not each.done():
                each.set_exception(_stopping())

    def _check_running(self) -> None:
        if self._has_ended:
            raise _stopping()

    # --- calls -------------------------------------------------------------------------------------------------------

    async def append(self, writes: Sequence[WriteOrRefused], acks: Acks, timeout_ms: int) -> list[Outcome]:
        """Appends batches; returns the outcome of each, in order. Raises Refusal if the broker stops."""
        self._check_running()
        begun_ms = turn_ms = self._now_ms()
        call = _Append(len(writes))
        for index, write in enumerate(writes):
            if isinstance(write, Refused):
                call.end(index, Outcome(write.place, write.code, text=write.text))
                continue
            token = next(self._tokens)
            self.tallies.records_in.add(write.records.record_count)
            self.tallies.bytes_in.add(len(write.records.packed))
            self._appends[token] = call, index, write.place
            now_ms = self._now_ms()
            self._carry_out(
                self.manager.append(
                    ReplicaPlace(*write.place),
                    _known(write.leader_epoch),
                    write.records,
                    write.stamp,
                    acks,
                    begun_ms + timeout_ms,
                    token,
                    now_ms,
                    self._wall_ms(),
                )
            )
            if now_ms - turn_ms >= TURN_MS:
                await asyncio.sleep(0)
                turn_ms = self._now_ms()
        if call.open:
            await call.done.wait()
        return [each for each in call.outcomes if each is not None]

    async def fetch(self, fetch: Fetch) -> SessionAnswer:
        """Reads for a follower or a consumer; waits until there are enough bytes, or the time is up.

        Raises:
            Refusal: the broker stops.
        """
        self._check_running()
        source = FetchSource(fetch.replica_id, fetch.broker_epoch) if fetch.is_follower else None
        opened, effects = self.manager.open_fetch(source, fetch.session, self._now_ms(), **fetch.limits._asdict())
        self._carry_out(effects)
        news = self._parked[opened] = asyncio.Event()
        answer: SessionAnswer | None = None
        try:
            while True:
                self._check_running()
                news.clear()
                answer, effects = self.manager.poll(opened, self._now_ms())
                self._carry_out(effects)
                if answer is not None:
                    out = self.tallies.replication_bytes_out if fetch.is_follower else self.tallies.bytes_out
                    out.add(bytes_of(answer))
                    return answer
                if news.is_set():  # there is more to look at: other tasks run before the next slice
                    await asyncio.sleep(0)
                await news.wait()
        finally:
            del self._parked[opened]
            if answer is None and not self._is_closed:
                self.manager.drop_fetch(opened)

    async def list_offset(self, question: OffsetQuestion) -> FoundOffset:
        """Answers a question for an offset. A question for a time waits for a thread. Raises Refusal if the broker stops."""
        self._check_running()
        place, leader_epoch, wanted = ReplicaPlace(*question.place), _known(question.leader_epoch), question.wanted
        if isinstance(wanted, OffsetWanted):
            return self.manager.list_offset(place, leader_epoch, wanted)
        token = next(self._tokens)
        waiting: asyncio.Future[FoundOffset] = asyncio.get_running_loop().create_future()
        self._searches[token] = waiting
        try:
            with frequent_switches():
                self._carry_out(self.manager.find_time(place, leader_epoch, wanted, token, self._now_ms()))
                return await waiting
        finally:
            del self._searches[token]

    def end_of_epoch(self, question: EpochQuestion) -> EpochEnd:
        """Answers a question for the end of a leader epoch. Raises Refusal if the broker stops."""
        self._check_running()
        place, current_leader_epoch, leader_epoch = question
        return self.manager.end_of_epoch(ReplicaPlace(*place), _known(current_leader_epoch), leader_epoch)

    @property
    def appends_waiting(self) -> int:
        """How many batches wait for their answer."""
        return len(self._appends)

    @property
    def fetches_waiting(self) -> int:
        """How many fetches wait for their answer."""
        return len(self._parked)

    @property
    def disk_work(self) -> int:
        """How many pieces of disk work are under way."""
        return self._workers.under_way

    @property
    def isr_requests_failed(self) -> int:
        """How many requests with ISR proposals had no answer."""
        return self._isr_sender.requests_failed

    # --- effects -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        assigned: defaultdict[Uuid, list[Place]] = defaultdict(list)
        for effect in effects:
            if isinstance(effect, AssignDirectory):
                assigned[effect.directory].append(effect.place)
            else:
                self._carry_out_one(effect)
        for directory, places in assigned.items():
            self._broker.assign_directories(directory, places)
        self._arm_timer()

    def _carry_out_one(self, effect: Effect) -> None:
        match effect:
            case Produced():
                self._answer(effect)
            case OffsetFound(token, found):
                waiting = self._searches.get(token)
                if waiting is not None and not waiting.done():  # else the caller went away
                    waiting.set_result(found)
            case Flush() | OpenLog() | DeleteLog() | TrimLog() | WriteHighWatermarks() | FindTime():
                self._workers.begin(effect)
            case Wake(fetch):
                if fetch in self._parked:
                    self._parked[fetch].set()
            case SendFetch():
                self._own_fetches.send(effect)
            case SendProposal():
                self._isr_sender.send(effect)
            case AssignDirectory():
                raise AssertionError("assignments are told together")
            case ReplicaFailed(place, reason):
                self.problems.replica_failed(effect)
                self._log.error("replica failed", replica=place.name, reason=reason, means="it serves no more")
            case DirectoryFailed(directory, reason):
                self.problems.directory_failed(effect)
                self._log.error("log directory failed", directory=uuid_text(directory), reason=reason)
                self._broker.directory_failed(directory)
            case BrokerFailed(reason):
                self._log.error("all log directories failed", reason=reason)
            case StrayLogs(logs):
                self.problems.stray_logs(effect)
                if logs:
                    self._log.warning("stray logs", logs=len(logs), first=logs[0][1].name)
            case Stopped():
                self._has_stopped.set()
            case _:
                assert_never(effect)

    def _answer(self, produced: Produced) -> None:
        call, index, place = self._appends.pop(produced.token)
        call.end(
            index, Outcome(place, produced.code, produced.base_offset, produced.log_start_offset, produced.message)
        )

    def _disk_ended(self, ended: Ended) -> None:
        now_ms, wall_ms = self._now_ms(), self._wall_ms()
        with self._ending_the_broker():
            if ended.error is None:
                self._carry_out(self.manager.disk_done(ended.work, ended.result, now_ms, wall_ms))
            else:
                self._carry_out(self.manager.disk_failed(ended.work, ended.error, now_ms, wall_ms))

    def _proposal_answered(self, proposal: SendProposal, answer: IsrAnswer) -> None:
        self._tally(proposal.place, answer)
        self._carry_out(self.manager.proposal_answered(proposal, answer, self._now_ms()))

    def _tally(self, place: ReplicaPlace, answer: IsrAnswer) -> None:
        """Counts a change of an ISR that the controllers have granted."""
        replica = self.manager.replicas.get(place)
        if answer.code is ErrorCode.NONE and replica is not None and replica.leader is not None:
            before, after = replica.leader.isr.committed, frozenset(answer.isr)
            self.tallies.isr_expands.add(bool(after - before))
            self.tallies.isr_shrinks.add(bool(before - after))

    # --- time --------------------------------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        deadline_ms = None if self._is_closed else self.manager.next_deadline_ms(self._now_ms())
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_s = max(0, deadline_ms - self._now_ms()) / 1_000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        with self._ending_the_broker():
            self._carry_out(self.manager.tick(self._now_ms(), self._wall_ms()))

    @contextmanager
    def _ending_the_broker(self) -> Iterator[None]:
        """Ends the broker after a mistake of this program in a callback of the event loop, which would only log it."""
        try:
            yield
        except Exception as e:
            self._log.error("mistake in the data plane", reason=repr(e), exc_info=e)
            self._broker.give_up(f"the data plane has made a mistake: {e!r}")


def _stopping() -> Refusal:
    return Refusal("BROKER_NOT_AVAILABLE", "this broker stops. Nothing was done; ask another broker")


def _known(epoch: Epoch) -> Epoch | None:
    return None if epoch == ANY_EPOCH else epoch
