"""The log directory of each replica of this broker: the agent names it to the controllers until its own image shows it (KIP-858).

The embedding data plane says where each replica is (`assign`), and which directory has failed (`fail`). A failed directory is in
every fetch from then on; an assignment is a request of its own.

    1. The data plane of broker 101 creates its replica of orders-0 in directory A, and assigns it to A.
    2. The request gets no answer. The agent sends it again after a pause, until the image has A for the replica.
    3. The disk of A fails before the controllers have the assignment. They could not know that orders-0 is in A. So the agent
       assigns the replica to LOST_DIRECTORY, and the controllers take it out of the ISR.

*One request is in flight at a time*, with as many replicas as the controller takes. A replica that the image does not have any
more is forgotten. The agent sends everything again that it was told, if the process gets another broker epoch: the controllers
may have been recovered from an older log.

*A broker must not hide a failed disk.* If the image does not show the loss within `failure_timeout_ms`, or if the last directory
has failed, the process has to end (`end_reason`): the controllers fence the broker when its session is over.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, NodeId, Offset, Uuid, uuid_text
from metadata_log.format.partition_state import DIRECTORIES, REPLICAS
from metadata_log.format.records import PartitionChange, RegisterBroker
from metadata_log.format.records.levels import FIELD_LEVELS
from metadata_log.image.metadata_image import MetadataImage

Place: TypeAlias = tuple[Uuid, int]
"""Topic id and partition number."""

_LEVEL: Final = FIELD_LEVELS[PartitionChange]["directories"]
_FORGOTTEN: Final = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Answers of a controller that knows better than this broker's image: the replica is gone."""


@dataclass(frozen=True, slots=True)
class DirectoryLimits:
    """Limits of the size and the frequency of requests, and of the time to report a failure."""

    assignments_max: int = 2_250
    """Maximum number of replicas in one request: as many as a controller takes."""
    backoff_ms: int = 100
    backoff_max_ms: int = 5_000
    timeout_ms: int = 5_000
    """How long to wait for an answer."""
    failure_timeout_ms: int = 30_000
    """How long the image may take to show the loss of a directory (`log.dir.failure.timeout.ms`)."""


DIRECTORY_LIMITS: Final = DirectoryLimits()


class Assignment(NamedTuple):
    """A replica, and the directory that the controllers shall record for it."""

    topic_id: Uuid
    partition: int
    directory: Uuid


class AssignmentResult(NamedTuple):
    """The controller's answer to one assignment; NONE means that it was recorded."""

    topic_id: Uuid
    partition: int
    code: ErrorCode
    message: str


class ReplicaDirectories:
    """One process's directories. Pure: the caller sends each request of `next`, and then calls `answered` or `failed`."""

    def __init__(self, broker_id: NodeId, log_dirs: Iterable[Uuid], limits: DirectoryLimits = DIRECTORY_LIMITS) -> None:
        self.limits = limits
        self._broker_id = broker_id
        self._log_dirs = tuple(log_dirs)
        self._said: dict[Place, Uuid] = {}
        """The directory of each replica, as the data plane has said."""
        self._untold: dict[Place, Uuid] = {}
        """Those that the image does not show yet."""
        self._failed_at_ms: dict[Uuid, int] = {}
        self._broker_epoch: int | None = None
        """The broker epoch under which the last request was made."""
        self._in_flight = False
        self._failures = 0
        self._not_before_ms = 0
        self._is_due = False
        """True if there is a request to make and only time keeps it back."""
        self._not_below: Offset = 0
        """The offset of the last recorded assignments. An image below it does not show them yet."""

    # --- the data plane ----------------------------------------------------------------------------------------------

    def assign(self, directory: Uuid, replicas: Iterable[Place]) -> None:
        """Notes that the replicas are in the directory now. `LOST_DIRECTORY`: their logs cannot be used, but the disk works.

        Raises:
            ValueError: the broker was not started with this directory.
        """
        if directory != LOST_DIRECTORY:
            self._check(directory)
        where = LOST_DIRECTORY if directory in self._failed_at_ms else directory
        for place in replicas:
            self._said[place] = self._untold[place] = where

    def fail(self, directory: Uuid, now_ms: int) -> None:
        """Notes that the directory has failed. It is offline until the next process.

        Raises:
            ValueError: the broker was not started with this directory.
        """
        self._check(directory)
        self._failed_at_ms.setdefault(directory, now_ms)
        for place, where in self._said.items():
            if where == directory:
                self._said[place] = LOST_DIRECTORY
                if place in self._untold:
                    self._untold[place] = LOST_DIRECTORY

    def _check(self, directory: Uuid) -> None:
        if directory not in self._log_dirs:
            shown = uuid_text(directory) if len(directory) == 16 else repr(directory)
            raise ValueError(
                f"broker {self._broker_id} was started without the log directory {shown}; nothing was noted"
            )

    @property
    def offline(self) -> tuple[Uuid, ...]:
        """The directories that have failed, for the next fetch."""
        return tuple(self._failed_at_ms)

    @property
    def online(self) -> tuple[Uuid, ...]:
        """The other directories, for the next registration."""
        return tuple([each for each in self._log_dirs if each not in self._failed_at_ms])

    @property
    def untold(self) -> int:
        """How many replicas the image does not show in their directories yet."""
        return len(self._untold)

    # --- requests ----------------------------------------------------------------------------------------------------

    def next(self, image: MetadataImage, broker_epoch: int | None, now_ms: int) -> tuple[Assignment, ...]:
        """Returns the next request; it may be empty. `broker_epoch` is None while the process is not registered."""
        self._is_due = False
        if self._in_flight or broker_epoch is None or _registration(image, self._broker_id, broker_epoch) is None:
            return ()
        if broker_epoch != self._broker_epoch:
            self._broker_epoch, self._not_below = broker_epoch, 0
            self._untold = dict(self._said)
        if not self._untold or image.offset < self._not_below or image.metadata_version < _LEVEL:
            return ()
        if now_ms < self._not_before_ms:
            self._is_due = True
            return ()
        wanted = tuple(islice(self._still_untold(image), self.limits.assignments_max))
        self._in_flight = bool(wanted)
        return wanted

    def _still_untold(self, image: MetadataImage) -> Iterator[Assignment]:
        """The replicas that the image has elsewhere. Forgets those that it shows, and those that it does not have any more."""
        for place, where in list(self._untold.items()):
            recorded = recorded_directory(image, place, self._broker_id)
            if recorded is None:
                self._forget(place)
            elif recorded == where or (where == LOST_DIRECTORY and recorded in self._failed_at_ms):
                del self._untold[place]  # the loss of the recorded directory tells the rest
            else:
                yield Assignment(*place, where)

    def _forget(self, place: Place) -> None:
        self._untold.pop(place, None)
        self._said.pop(place, None)

    def answered(self, offset: Offset, results: tuple[AssignmentResult, ...], now_ms: int) -> None:
        """Notes the controller's answer; every recorded assignment is below `offset`."""
        self._in_flight = False
        for result in results:
            if result.code in _FORGOTTEN:
                self._forget((result.topic_id, result.partition))
        if any(result.code is not ErrorCode.NONE and result.code not in _FORGOTTEN for result in results):
            self.failed(now_ms)
            return
        self._failures = 0
        self._not_below = offset

    def failed(self, now_ms: int) -> None:
        """Notes that the request had no answer, or was refused; the next one follows after a pause."""
        self._in_flight = False
        limits = self.limits
        self._not_before_ms = now_ms + min(limits.backoff_ms << min(self._failures, 16), limits.backoff_max_ms)
        self._failures += 1
        self._is_due = True

    def next_deadline_ms(self) -> int | None:
        """The latest time for the next call of `next` and `end_reason`; None if only news can bring something to do."""
        deadlines = [failed_ms + self.limits.failure_timeout_ms for failed_ms in self._failed_at_ms.values()]
        return min([*deadlines, *([self._not_before_ms] if self._is_due else [])], default=None)

    # --- the end -----------------------------------------------------------------------------------------------------

    def end_reason(self, image: MetadataImage, broker_epoch: int | None, now_ms: int) -> str | None:
        """Says why the process has to end; None if it may go on."""
        if not self._failed_at_ms:
            return None
        me = None if broker_epoch is None else _registration(image, self._broker_id, broker_epoch)
        known = self._log_dirs if me is None else me.log_dirs
        if me is not None and not known:
            return "the last log directory has failed"
        limit_ms = self.limits.failure_timeout_ms
        for directory, failed_ms in self._failed_at_ms.items():
            if directory not in known:
                self._failed_at_ms[directory] = (
                    now_ms  # reported: the time counts again if the registration has it again
                )
            elif now_ms >= failed_ms + limit_ms:
                return (
                    f"the failure of log directory {uuid_text(directory)} could not be reported within {limit_ms} ms "
                    f"(log.dir.failure.timeout.ms)"
                )
        return None


def _registration(image: MetadataImage, broker_id: NodeId, broker_epoch: int) -> RegisterBroker | None:
    """The registration of this process; None if the image does not have it yet."""
    brokers: Mapping[NodeId, RegisterBroker] = image.brokers
    found = brokers.get(broker_id)
    return found if found is not None and found.broker_epoch == broker_epoch else None


def recorded_directory(image: MetadataImage, place: Place, broker_id: NodeId) -> Uuid | None:
    """The directory that the image has for the broker's replica; None if the broker has no such replica."""
    topic = image.topic_by_id(place[0])
    state = None if topic is None else topic.state(place[1])
    if state is None or broker_id not in state[REPLICAS]:
        return None
    directories = state[DIRECTORIES]
    return directories[state[REPLICAS].index(broker_id)] if directories else UNASSIGNED_DIRECTORY
