"""The progress of a snapshot download, as a value. The theory is in `quorum.core.download`."""

from dataclasses import dataclass

from metadata_log.format.ids import OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Download:
    """A snapshot download: all bytes before `position` are written. `size` is None until the first chunk has arrived."""

    snapshot: OffsetAndEpoch
    position: int = 0
    size: int | None = None
