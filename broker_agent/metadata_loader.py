"""The loader: does the session's work on the store off the event loop, and publishes the result to the cache.

One thread owns the store (applying, loading, flushing). A second thread writes snapshots, because a snapshot of millions of
partitions must delay neither applying nor the heartbeat. The threads report back to the event loop with inputs for the session.

The loader swaps the cache on the event loop before the session learns that the work is done. So a client that sees this broker
online also finds the broker unfenced in the cache.

The cache never goes back in time. After a store was dropped, clients see the old view until the new store has reached its offset:

    1. Clients of broker 101 have seen the view at offset 500. The broker finds damage and drops its store.
    2. The broker loads a snapshot at 480. The cache keeps the view at 500.
    3. The store applies up to 510. The cache swaps to the view at 510.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker_agent.cache import MetadataCache
from broker_agent.client import SnapshotPiece, SnapshotUnavailable
from broker_agent.own_disk.broker_log import BrokerLog
from broker_agent.problems import DISK_FULL, DiskFull
from broker_agent.publishing.publishers import Publishers
from broker_agent.session.lifecycle import (
    Applied,
    ApplyBatches,
    BatchesRefused,
    CannotFollow,
    Input,
    Position,
    SnapshotFailed,
    StoreBroken,
    StoreRecovered,
)
from broker_agent.store import BrokerStore, SnapshotJob, WrongHistory
from metadata_log.disk.failures import FlushFailed, is_full
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OffsetAndEpoch, Uuid
from metadata_log.format.records import Voters
from metadata_log.image.changes import Changes
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.packed_check import check_packed
from metadata_log.image.replay import AppliedSkipped, ReplayStopped
from service_kit.process.endpoints import HostPort
from service_kit.process.garbage import loading_for_good
from service_kit.process.switches import frequent_switches
from watches.core.watched_log import LogUnreadable

CHECKED_AT_ONCE: Final = 2_000
"""How many packed partitions are checked in one step in the background: about 4 ms."""
CHECK_REST_S: Final = 0.05
"""How long the check rests after each step: so it takes a tenth of a core."""

T = TypeVar("T")


class Log(Protocol):
    """A structured logger: an event and its fields."""

    def debug(self, event: str, **fields: object) -> object: ...

    def info(self, event: str, **fields: object) -> object: ...

    def warning(self, event: str, **fields: object) -> object: ...

    def error(self, event: str, **fields: object) -> object: ...


class _Step(NamedTuple):
    """The result of work on the store's thread."""

    position: Position
    image: MetadataImage
    changes: Changes
    voters: Voters | None
    snapshot: SnapshotJob | None


class MetadataLoader:
    """One store and its threads. Raises only OSError and FlushFailed: the disk has failed, and the process has to end."""

    def __init__(
        self,
        store: BrokerStore,
        cache: MetadataCache,
        publishers: Publishers,
        *,
        feed: Callable[[Input], None],
        announce: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        flush_interval_ms: int,
        log: Log,
    ) -> None:
        """`publishers` learn of each swap of the cache, `feed` takes inputs for the session, `announce` is called after each
        change of the cache, and `spawn` starts a watched task."""
        self.stores_dropped = 0
        self.snapshots_loaded = 0
        self.controllers: tuple[HostPort, ...] = ()
        """The voters' addresses from the log; kept when the store is dropped."""
        self._store = store
        self._cache = cache
        self._publishers = publishers
        self._feed = feed
        self._announce = announce
        self._spawn = spawn
        self._flush_interval_ms = flush_interval_ms
        self._log = log
        self.disk_full: DiskFull | None = None
        """The problem while the disk has no room for the store; None otherwise."""
        self._is_closed = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self._room_timer: asyncio.TimerHandle | None = None
        self._store_thread = ThreadPoolExecutor(1, "store")
        self._snapshot_thread = ThreadPoolExecutor(1, "snapshot")

    # --- the session's work ------------------------------------------------------------------------------------------

    async def recover(self, incarnation: Uuid) -> None:
        """Reads the store, and notes this process (`incarnation`) in it before the broker can register."""
        recovered = await self._in_store_to_load(self._store.recover)
        if recovered.dropped is not None:
            self._tell_of_drop(recovered.dropped)
        await self._in_store(lambda: self._store.note_attempt(incarnation))
        self._tell_of_room()
        self._log.info("store recovered", offset=recovered.position.offset, image=repr(recovered.image))
        self._learn(recovered.voters)
        self._publish(recovered.image, Changes.between(self._cache.current.image, recovered.image))
        others = tuple(each for each in recovered.previous_incarnations if each != incarnation)
        self._feed(StoreRecovered(recovered.position, others, recovered.clean_broker_epoch))
        self._spawn(self._check(recovered.image))

    async def note_registered(self, incarnation: Uuid) -> None:
        """Notes that earlier processes of this store are no longer registered."""
        await self._in_store(lambda: self._store.note_registered(incarnation))
        self._tell_of_room()

    async def note_clean_shutdown(self, broker_epoch: int) -> None:
        """Leaves the proof of a controlled shutdown for the next process, if the disk has room for it."""
        try:
            await self._in_store(lambda: self._store.note_clean_shutdown(broker_epoch))
        except OSError as e:
            if not is_full(e):
                raise
            self._log.warning("no proof of the clean shutdown", reason=str(e))

    async def apply(self, effect: ApplyBatches) -> None:
        try:
            step = await self._in_store(lambda: self._apply_in_store(effect))
        except WrongHistory as e:
            self._feed(StoreBroken(str(e)))
        except AppliedSkipped as e:
            self._feed(StoreBroken(e.reason))
        except ReplayStopped as e:
            self._feed(CannotFollow(f"{e}; a newer release of this broker may know what to do"))
        except LogFormatError as e:
            self._feed(BatchesRefused(str(e)))
        else:
            self._settle(step)

    def _apply_in_store(self, effect: ApplyBatches) -> _Step:
        """Applies batches on the store's thread."""
        published = self._cache.current.image
        result = self._store.apply(effect.batches, effect.previous_chain, effect.skips)
        follows = result.before is published
        changes = result.changed if follows else Changes.between(published, result.image)
        return _Step(self._store.position, result.image, changes, self._store.voters, self._store.take_snapshot_job())

    async def install(self, end: OffsetAndEpoch, pieces: AsyncIterator[SnapshotPiece]) -> None:
        """Writes the pieces of a snapshot as they arrive, and loads the snapshot."""
        try:
            async for piece in pieces:
                await self._in_store(partial(self._write_part, end, piece))
            step = await self._in_store_to_load(lambda: self._install_in_store(end))
        except (SnapshotUnavailable, LogFormatError) as e:
            self._tell_of_room()
            self._feed(SnapshotFailed(str(e)))
            return
        self.snapshots_loaded += 1
        self._log.info("snapshot loaded", snapshot=str(end), image=repr(step.image))
        self._settle(step)
        self._spawn(self._check(step.image))

    def _write_part(self, end: OffsetAndEpoch, piece: SnapshotPiece) -> None:
        """Writes one piece on the store's thread. Raises SnapshotUnavailable: the disk has no room for it."""
        try:
            self._store.write_part(end, piece.position, piece.data)
        except OSError as e:
            if not is_full(e):
                raise
            self._store.snapshot_has_no_room(end, str(e))
            raise SnapshotUnavailable(f"the disk is full: {e}") from e

    def _install_in_store(self, end: OffsetAndEpoch) -> _Step:
        """Loads a complete snapshot on the store's thread."""
        self._store.install(end)
        changes = Changes.between(self._cache.current.image, self._store.image)
        return _Step(self._store.position, self._store.image, changes, self._store.voters, None)

    async def _check(self, image: MetadataImage) -> None:
        """Checks the packed partitions of an image that was just loaded, a few at a time, and drops the store if one is wrong."""
        runs = check_packed(image)

        def step() -> bool:
            checked = 0
            for partitions in runs:
                checked += partitions
                if checked >= CHECKED_AT_ONCE:
                    return True
            return False

        loop = asyncio.get_running_loop()
        try:
            while await loop.run_in_executor(self._snapshot_thread, step):
                await asyncio.sleep(CHECK_REST_S)
        except LogFormatError as e:
            self._feed(StoreBroken(f"a partition in the snapshot is wrong, although its bytes are whole: {e}"))

    async def reset(self, reason: str) -> None:
        self._tell_of_drop(reason)
        await self._in_store(self._store.reset)
        self._feed(Applied(self._store.position))

    def _tell_of_drop(self, reason: str) -> None:
        self.stores_dropped += 1
        self._log.error("store dropped", reason=reason, now="fetching everything anew")

    async def join_generation(self, generation: int) -> None:
        """Empties store and cache: the new history may lack records that clients have seen. The caller tells the session."""
        self.stores_dropped += 1
        self._log.warning("new generation", generation=generation, now="dropping the store, fetching everything anew")
        await self._in_store(lambda: self._store.join_generation(generation))
        self._cache.begin_anew()
        self._publishers.begin_generation(generation)

    @property
    def position(self) -> Position:
        """The store's position, for use while the store has no work."""
        return self._store.position

    # --- after the work ----------------------------------------------------------------------------------------------

    def _settle(self, step: _Step) -> None:
        """Publishes the result on the event loop: first to clients, then to the session."""
        self._tell_of_room()
        self._learn(step.voters)
        self._publish(step.image, step.changes)
        if step.snapshot is not None:
            self._spawn(self._write_snapshot(step.snapshot))
        if self._flush_timer is None:
            delay_s = self._flush_interval_ms / 1_000
            self._flush_timer = asyncio.get_running_loop().call_later(delay_s, self._flush)
        self._feed(Applied(step.position))

    def _learn(self, voters: Voters | None) -> None:
        if voters is not None:
            first = [voter.endpoints[0] for voter in voters.voters if voter.endpoints]
            self.controllers = tuple(HostPort(endpoint.host, endpoint.port) for endpoint in first)

    def _publish(self, image: MetadataImage, changes: Changes) -> None:
        before = self._cache.current
        if image.offset < before.offset or image is before.image:
            return
        swapped = self._cache.swap(image, changes)
        if swapped.deleted:
            self._log.info("partitions deleted", count=len(swapped.deleted), first=swapped.deleted[0].topic)
        for listener, lacking in swapped.listeners_that_differ.items():
            self._log.warning("brokers without a listener that others have", listener=listener, brokers=lacking)
        self._publishers.publish(before.image, image, changes)
        self._announce()

    def _flush(self) -> None:
        self._flush_timer = None
        self._spawn(self._in_store(self._store.flush))

    # --- a full disk -------------------------------------------------------------------------------------------------

    def _tell_of_room(self) -> None:
        """Shows or ends the problem after work on the store. While the problem lasts, a timer looks for room."""
        reason = self._store.why_full
        if reason and self.disk_full is None:
            self.disk_full = DiskFull(reason)
            self._log.error("problem", code=DISK_FULL, text=self.disk_full.text)
            self._announce()
        elif not reason and self.disk_full is not None:
            self.disk_full = None
            self._log.info("problem solved", code=DISK_FULL)
            self._announce()
        if reason and self._room_timer is None:
            loop = asyncio.get_running_loop()
            self._room_timer = loop.call_later(self._flush_interval_ms / 1_000, self._look_for_room)

    def _look_for_room(self) -> None:
        async def look() -> None:
            await self._in_store(self._store.look_for_room)
            self._room_timer = None
            self._tell_of_room()

        self._spawn(look())

    async def _write_snapshot(self, job: SnapshotJob) -> None:
        loop = asyncio.get_running_loop()
        try:
            with frequent_switches():
                await loop.run_in_executor(self._snapshot_thread, job.run)
        except OSError as e:
            self._log.warning("snapshot not written", snapshot=str(job.meta.end), reason=str(e))
            if is_full(e):  # what there is of it would keep the room from the log
                await self._in_store(lambda: self._store.drop_part(job.meta.end))
            return
        retired = await self._in_store(lambda: self._store.snapshot_written(job))
        self._log.info("snapshot written", snapshot=str(job.meta.end), retired=len(retired))

    async def in_log(self, work: Callable[[BrokerLog], T]) -> T:
        """Returns the result of `work`, which only reads, on the store's thread. Damage drops the store.

        Raises:
            LogUnreadable: the disk has lost what was to be read, or the broker stops.
        """

        def read() -> T:
            log = self._store.log
            if log is None:
                raise LogUnreadable("this broker stops")
            return work(log)

        if self._is_closed:
            raise LogUnreadable("this broker stops")
        try:
            return await self._in_store(read)
        except CorruptLog as e:
            self._feed(StoreBroken(str(e)))
            raise LogUnreadable("the disk of this broker has lost a part of its log") from e

    async def _in_store(self, work: Callable[[], T]) -> T:
        """Runs `work` on the store's thread, after all earlier work."""
        return await asyncio.get_running_loop().run_in_executor(self._store_thread, work)

    async def _in_store_to_load(self, work: Callable[[], T]) -> T:
        """Runs work of seconds that loads an image on the store's thread."""
        with frequent_switches(), loading_for_good():
            return await self._in_store(work)

    # --- the end -----------------------------------------------------------------------------------------------------

    def stop_timers(self) -> None:
        """Stops the timers of the next flush and of the next look for room."""
        for timer in (self._flush_timer, self._room_timer):
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """Waits for the work in progress, flushes the store, and ends the threads."""
        self._is_closed = True
        try:
            await self._in_store(self._store.close)
        except (OSError, FlushFailed) as e:
            self._log.error("store not flushed", reason=str(e))
        self._snapshot_thread.shutdown()
        self._store_thread.shutdown()
