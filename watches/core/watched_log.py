"""The view of a node that its watches need: the committed log, and the image at its end. Controllers and brokers implement it.

1. A watch continues at offset 1,244. `place_of` says what the log has there, and the verdict is that the log has this history.
2. `read` returns the batches from 1,244 on, up to the offset of `image`: the log above is not committed, or not applied, or it is
   an open transaction.
3. The watch awaits `changed`, which returns when the image has moved, or when the node may not serve any more.
"""

from typing import NamedTuple, Protocol

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from watches.core.position import Place, Position, Skips


class PositionLost(Exception):
    """The log does not have the position: it was trimmed above it, or has another history."""


class LogUnreadable(Exception):
    """The node's disk has lost this part of the log. Another node has it."""


class Unavailable(NamedTuple):
    """Why a node serves no watches now."""

    reason: str
    """The name of an error code."""
    text: str


class Stretch(NamedTuple):
    """Some batches that follow each other, and the records about skipped batches in the whole log."""

    batches: tuple[Batch, ...]
    skips: Skips = ()


class WatchedLog(Protocol):
    """The log of one node. All methods are called on the event loop."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def image(self) -> MetadataImage:
        """The newest image that is committed and applied. It lies never inside a metadata transaction."""

    def problem(self) -> Unavailable | None:
        """The reason for which this node may serve no watches; None: the node may."""

    async def changed(self) -> None:
        """Returns at the next change of `image` or `problem`."""

    async def place_of(self, offset: Offset) -> Place:
        """Returns what the log has at `offset`.

        Raises:
            LogUnreadable: the disk has lost this place.
        """

    async def read(self, position: Position, max_bytes: int, until: Offset) -> Stretch:
        """Reads batches from `position` on that end at or below `until`, a batch boundary: one, and then as many as fit into
        `max_bytes`. None, if the node does not have them yet.

        Raises:
            PositionLost: the log does not have the position.
            LogUnreadable: the disk has lost this place.
        """
