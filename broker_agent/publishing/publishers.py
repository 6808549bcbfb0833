"""Publishers: named subscribers that learn of every swap of the metadata cache, each in order.

    1. The store of broker 101 applies [200, 202). The loader swaps the cache from the image at 200 to the image at 202.
    2. Each subscriber gets an `ImageUpdate` with the image at 200, the image at 202, and the changes between them.
    3. A subscriber that comes later gets the empty image and the image at 202 first. So nobody needs a second way to begin.

*A plain function* is called at the swap itself, in the order of the subscriptions, before the session learns of the new position.
A plain function gets each swap by itself, and has to return within milliseconds: the event loop waits for it.

*A coroutine function* never holds up the cache, nor another subscriber. Swaps during the work of the
subscriber are merged into its next update. So at most two updates exist for each subscriber, however slow it is.

Both have the same guarantee: `before` is the `after` of the last update that the subscriber has taken. A subscriber that raises
an exception has not taken the update. The update comes again, merged with later swaps: to a plain function at the next swap, to a
coroutine function after a pause that doubles. Meanwhile the subscriber is a `PublisherProblem`; all other subscribers go on.

A new generation of the cluster begins with the empty image as `before`: its history may lack records of the old one.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from broker_agent.problems import PUBLISHER_FAILED
from metadata_log.image.changes import Changes
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance

PAUSE_S: Final = 1.0
"""How long a coroutine function rests after its first failure in a row."""
PAUSE_MAX_S: Final = 60.0
"""How long it rests after many failures."""


@dataclass(frozen=True, slots=True)
class ImageUpdate:
    """One step of a subscriber from an image to a later image. Everything in it is for reading only."""

    before: MetadataImage
    after: MetadataImage
    changes: Changes
    """The entities that differ between the two images."""
    generation: int = 1
    """The generation of the cluster's history that `after` belongs to."""

    @property
    def provenance(self) -> Provenance:
        """The log prefix from which `after` was made: its end offset, and the epoch and time of its last batch."""
        return self.after.provenance

    def then(self, later: "ImageUpdate") -> "ImageUpdate":
        """Returns the two steps as one step."""
        if later.generation != self.generation:
            return later
        changes = Changes()
        changes.add(self.changes)
        changes.add(later.changes)
        return ImageUpdate(self.before, later.after, changes, later.generation)

    @classmethod
    def whole(cls, image: MetadataImage, generation: int) -> "ImageUpdate":
        """Returns the step from the empty image. O(topics and brokers)."""
        return cls(EMPTY_IMAGE, image, Changes.between(EMPTY_IMAGE, image), generation)


Subscriber: TypeAlias = Callable[[ImageUpdate], None] | Callable[[ImageUpdate], Awaitable[None]]


class PublisherProblem(NamedTuple):
    """A subscriber that has not taken the newest image, because it raised an exception."""

    name: str
    reason: str
    failures: int
    """How many times in a row the subscriber has failed."""

    @property
    def code(self) -> str:
        return PUBLISHER_FAILED

    @property
    def subject(self) -> str:
        return f"publisher {self.name}"

    @property
    def text(self) -> str:
        """The problem as a sentence for people, with what to do."""
        return (
            f"publisher {self.name!r} has not taken the newest metadata ({self.failures} failures in a row, the last: "
            f"{self.reason}). All others have taken it. Mend the subscriber of this name, or restart the process"
        )


class PublisherLog(Protocol):
    """The lines of a log that publishers write."""

    def info(self, event: str, **fields: object) -> object: ...

    def error(self, event: str, **fields: object) -> object: ...


class _Subscription:
    """One subscriber, and the update that it has not taken yet."""

    def __init__(self, name: str, take: Subscriber) -> None:
        self.name = name
        self.take = take
        self.is_slow = inspect.iscoroutinefunction(take) or inspect.iscoroutinefunction(type(take).__call__)
        self.pending: ImageUpdate | None = None
        self.is_working = False
        self.failures = 0
        """How many times in a row."""
        self.failures_total = 0
        self.reason = ""

    def add(self, update: ImageUpdate) -> None:
        self.pending = update if self.pending is None else self.pending.then(update)

    def put_back(self, update: ImageUpdate) -> None:
        """Keeps an update for the next try, merged with the newer one if there is one."""
        newer, self.pending = self.pending, update
        if newer is not None:
            self.add(newer)


class Publishers:
    """The subscribers of one agent. All methods are called on its event loop, or before the loop runs."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        log: PublisherLog,
        generation: int,
        *,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`spawn` starts a watched task; `generation` is the generation of the first image; `rest` waits for some seconds."""
        self._rest = rest
        self._spawn = spawn
        self._log = log
        self._generation = generation
        self._image = EMPTY_IMAGE
        self._subscriptions: dict[str, _Subscription] = {}

    def subscribe(self, name: str, subscriber: Subscriber) -> None:
        """Adds a subscriber behind the others. If there is an image, a plain function gets the image before this call returns.

        Raises:
            ValueError: another subscriber has this name. Nothing was done.
        """
        if not name or name in self._subscriptions:
            raise ValueError(
                f"no subscription: {name!r} is empty or the name of another publisher. Choose another name"
            )
        subscription = self._subscriptions[name] = _Subscription(name, subscriber)
        if self._image is not EMPTY_IMAGE:
            self._tell(subscription, ImageUpdate.whole(self._image, self._generation))

    def unsubscribe(self, name: str) -> None:
        """Removes a subscriber. An update that the subscriber works on is not interrupted."""
        self._subscriptions.pop(name).pending = None

    def publish(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> None:
        """Tells every subscriber of a swap of the cache. Never raises an exception of a subscriber."""
        self._image = after
        update = ImageUpdate(before, after, changes, self._generation)
        for subscription in tuple(self._subscriptions.values()):
            self._tell(subscription, update)

    def begin_generation(self, generation: int) -> None:
        """Notes that the next image belongs to another history. Subscribers keep what they have until that image comes."""
        self._generation = generation
        self._image = EMPTY_IMAGE

    @property
    def problems(self) -> tuple[PublisherProblem, ...]:
        """The subscribers that fail now, in the order of their subscriptions."""
        failing = (each for each in self._subscriptions.values() if each.failures)
        return tuple(PublisherProblem(each.name, each.reason, each.failures) for each in failing)

    @property
    def failures(self) -> dict[tuple[str, ...], int]:
        """How many times each subscriber has failed, by name, since its subscription."""
        return {(each.name,): each.failures_total for each in self._subscriptions.values()}

    # --- one subscriber ----------------------------------------------------------------------------------------------

    def _tell(self, subscription: _Subscription, update: ImageUpdate) -> None:
        subscription.add(update)
        if not subscription.is_slow:
            self._call(subscription)
        elif not subscription.is_working:
            subscription.is_working = True
            self._spawn(self._work(subscription))

    def _call(self, subscription: _Subscription) -> None:
        update, subscription.pending = subscription.pending, None
        assert update is not None
        try:
            subscription.take(update)
        except Exception as e:  # an embedder's code: it may raise anything, and must stop nothing else
            subscription.put_back(update)
            self._failed(subscription, e)
        else:
            self._worked(subscription)

    async def _work(self, subscription: _Subscription) -> None:
        """Gives the subscriber its updates until none is left."""
        take = cast(Callable[[ImageUpdate], Awaitable[None]], subscription.take)
        try:
            while subscription.pending is not None:
                update, subscription.pending = subscription.pending, None
                try:
                    await take(update)
                except Exception as e:  # as in `_call`
                    subscription.put_back(update)
                    self._failed(subscription, e)
                    await self._rest(min(PAUSE_MAX_S, PAUSE_S * 2 ** (subscription.failures - 1)))
                else:
                    self._worked(subscription)
        finally:
            subscription.is_working = False

    def _failed(self, subscription: _Subscription, error: Exception) -> None:
        subscription.failures += 1
        subscription.failures_total += 1
        subscription.reason = f"{type(error).__name__}: {error}"
        if subscription.failures == 1:
            self._log.error(
                "publisher failed",
                publisher=subscription.name,
                reason=subscription.reason,
                means="it has not taken this change of the metadata; all others have. It gets the change again",
                todo="mend the subscriber of this name, or restart the process",
                exc_info=error,
            )

    def _worked(self, subscription: _Subscription) -> None:
        if subscription.failures:
            self._log.info("publisher works again", publisher=subscription.name, failures=subscription.failures)
        subscription.failures = 0
