"""The images of the past that a node keeps: the last used, so many and so large at most. Pure.

1. A client reads all pages of a list at offset 1,244. The first page makes the image; the others find it here.
2. Another client reads at offset 1,300. Replay goes on from the image at 1,244, and no snapshot is loaded.
3. The images together have more records than allowed. The one that was not used for the longest time goes.
"""

from collections import OrderedDict
from typing import NamedTuple

from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from snapshots.history.wanted import Shown, Wanted


class PastConfig(NamedTuple):
    """The bounds of the memory that images of the past may take."""

    images_max: int = 4
    """Maximum number of kept images; 0: none is kept."""
    records_max: int = 2_000_000
    """Maximum number of canonical records in all kept images together, apart from the last used image."""
    waiting_max: int = 16
    """Maximum number of images that are being made or wait for that; further requests are refused."""


class KeptImages:
    """The images that were shown, by their ends, the last used one last."""

    def __init__(self, config: PastConfig) -> None:
        self._config = config
        self._by_end: OrderedDict[Offset, Shown] = OrderedDict()

    def all(self) -> tuple[Shown, ...]:
        """Return all kept images, for a replay that goes on from one of them."""
        return tuple(self._by_end.values())

    def find(self, wanted: Wanted, committed_end: Offset) -> Shown | None:
        """Return the image at `wanted`, if it is kept and still true in a log that is committed up to `committed_end`."""
        for shown in self._by_end.values():
            if shown.answers(wanted, committed_end):
                self._by_end.move_to_end(shown.end)
                return shown
        return None

    def keep(self, shown: Shown) -> list[MetadataImage]:
        """Keep an image, in place of an older one with the same end and of those that exceed the bounds. Return the others."""
        older = self._by_end.pop(shown.end, None)
        gone = [] if older is None or older.image is shown.image else [older.image]
        self._by_end[shown.end] = shown
        records = sum(each.image.record_count for each in self._by_end.values())
        while len(self._by_end) > self._config.images_max or (
            len(self._by_end) > 1 and records > self._config.records_max
        ):
            gone.append(self._by_end.popitem(last=False)[1].image)
            records -= gone[-1].record_count
        return gone

    def forget(self) -> list[MetadataImage]:
        """Keep nothing any more. Return the images that were kept."""
        gone = [each.image for each in self._by_end.values()]
        self._by_end.clear()
        return gone
