"""Images of the past for readers: made on a thread of their own, one at a time, and kept for a while.

    reader at 1,244 --+
    reader at 1,244 --+--> one build --> [thread: load, replay, rest] --> kept --> both readers
    reader at 1,300 ------ waits -------> goes on from the image at 1,244

*The thread rests after each short piece of work*, for as long as the piece took. A thread that computes takes the interpreter
from the event loop (`quorum.runtime.worker`), and nobody's lease depends on an image of the past. Example with controller 1:
    1. Controller 1 leads; an operator asks for the image of yesterday. The thread loads a snapshot of 1,000,000 partitions.
    2. A vote arrives. The event loop gets the interpreter within a switch interval, and a whole core in the thread's rests.
    3. The operator's call has a timeout of 2 s, and the build takes 5 s. The call ends with NOT_READY; the build goes on. The
       operator asks again, waits for the same build, and gets the image.
    4. Nobody reads the past for five minutes: the kept images go, slice by slice (`leftovers`).
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from metadata_log.disk.files import Directory
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from metadata_log.image.replay import ReplayStopped
from quorum.runtime.image.leftovers import Leftovers
from quorum.runtime.protocol.requests import Refused
from service_kit.process.switches import frequent_switches
from snapshots.history.kept import KeptImages, PastConfig
from snapshots.history.past import Past
from snapshots.history.wanted import HistoryDamaged, OutOfReach, Shown, Wanted

WORK_US: Final = 2_000
"""How long the thread works at a time."""
REST_S: Final = 0.002
"""How long the thread rests after each piece of work: so a build takes half of a core at most."""
KEPT_FOR_S: Final = 300.0
"""How long images are kept after the last read of the past."""
RELEASE_REST_S: Final = 0.005
"""How long the event loop has between two slices of images that go."""
STOPS: Final = "this controller stops; nothing was read, ask another controller"
_Key: TypeAlias = tuple[Wanted, Offset]
"""A position; for a time with the committed end, because a later batch may have the same time."""


class PastImages:
    """The images of the past of one node. Use on the event loop's thread."""

    def __init__(self, metadata: Directory, config: PastConfig, elapsed_us: Callable[[], int]) -> None:
        self._past = Past(metadata)
        self._config = config
        self._elapsed_us = elapsed_us
        self._kept = KeptImages(config)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="past")
        self._builds: dict[_Key, asyncio.Task[Shown]] = {}
        self._ended = threading.Event()
        self._turn = asyncio.Lock()
        """Held by the build that the thread works on; the others wait in the order in which they came."""
        self._leftovers = Leftovers()
        self._forgetting: asyncio.TimerHandle | None = None
        self._releasing: asyncio.TimerHandle | None = None

    async def image(self, wanted: Wanted, committed_end: Offset, timeout_ms: int) -> MetadataImage:
        """Returns the image at `wanted`; `committed_end` is how far the node has applied its log.

        Raises:
            Refused: OFFSET_OUT_OF_RANGE, NOT_READY, THROTTLING_QUOTA_EXCEEDED or STORAGE_ERROR, as RequestContext of the wire
                describes them.
        """
        return (await self.shown(wanted, committed_end, timeout_ms)).image

    async def shown(self, wanted: Wanted, committed_end: Offset, timeout_ms: int | None = None) -> Shown:
        """Returns the same image with its place in the log. Without a timeout the caller waits as long as the build takes."""
        if wanted.offset is not None and wanted.offset > committed_end:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, str(OutOfReach.above(wanted, committed_end)))
        self._forget_later()
        kept = self._kept.find(wanted, committed_end)
        if kept is not None:
            return kept
        key = (wanted, 0 if wanted.time_ms is None else committed_end)
        build = self._builds.get(key) or self._begin(key, committed_end)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1_000):
                return await asyncio.shield(build)
        except TimeoutError as e:
            text = (
                f"the image at {wanted} is still being made; nothing was read. Ask again in a moment: the work goes on"
            )
            raise Refused(ErrorCode.NOT_READY, text) from e
        except OutOfReach as e:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, str(e)) from e
        except (HistoryDamaged, ReplayStopped, OSError) as e:
            raise Refused(ErrorCode.STORAGE_ERROR, f"the image at {wanted} cannot be made here: {e}") from e

    async def stop(self) -> None:
        """Ends all builds, and waits for the thread. Waiting readers are refused."""
        self._ended.set()
        await asyncio.gather(*self._builds.values(), return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown, wait=True)
        for each in (self._forgetting, self._releasing):
            if each is not None:
                each.cancel()

    def _begin(self, key: _Key, committed_end: Offset) -> asyncio.Task[Shown]:
        if len(self._builds) >= self._config.waiting_max or self._ended.is_set():
            text = (
                f"nothing was read: this controller makes {len(self._builds)} images of the past already, one after the other; "
                "ask again in a moment, or ask another controller"
            )
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        build = asyncio.get_running_loop().create_task(self._build(key[0], committed_end))
        self._builds[key] = build

        def done(task: asyncio.Task[Shown]) -> None:
            del self._builds[key]
            if not task.cancelled():
                task.exception()  # the readers were told, or have gone

        build.add_done_callback(done)
        return build

    async def _build(self, wanted: Wanted, committed_end: Offset) -> Shown:
        async with self._turn:
            kept = self._kept.find(wanted, committed_end)
            if kept is not None:  # the build before has made it
                return kept
            if self._ended.is_set():
                raise HistoryDamaged(STOPS)
            loop, known = asyncio.get_running_loop(), self._kept.all()
            shown = await loop.run_in_executor(self._thread, self._work, wanted, committed_end, known)
            self.release(self._kept.keep(shown))
            self._forget_later()
            return shown

    def _work(self, wanted: Wanted, committed_end: Offset, known: Sequence[Shown]) -> Shown:
        """Makes an image, on the thread."""
        with frequent_switches():
            steps = self._past.steps(wanted, committed_end, known)
            until_us = 0
            while True:
                if self._elapsed_us() >= until_us:
                    if self._ended.wait(REST_S):
                        raise HistoryDamaged(STOPS)
                    until_us = self._elapsed_us() + WORK_US
                try:
                    next(steps)
                except StopIteration as e:
                    shown: Shown = e.value
                    return shown

    # --- images that go ----------------------------------------------------------------------------------------------

    def _forget_later(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(KEPT_FOR_S, self._forget)

    def _forget(self) -> None:
        self.release(self._kept.forget())

    def release(self, gone: list[MetadataImage]) -> None:
        """Lets go of images slice by slice: Python would free a large image in one long moment."""
        for image in gone:
            self._leftovers.keep(image, EMPTY_IMAGE)
        if self._leftovers and self._releasing is None:
            self._release_slice()

    def _release_slice(self) -> None:
        self._releasing = None
        self._leftovers.release()
        if self._leftovers:
            self._releasing = asyncio.get_running_loop().call_later(RELEASE_REST_S, self._release_slice)
