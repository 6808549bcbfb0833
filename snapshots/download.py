"""A snapshot that arrives in chunks, over links that break and from nodes that change: what to ask for next.

Pure: chunks go in, requests come out; where the bytes are kept is the caller's business.

A download is for one snapshot, named by its end. All nodes hold the same bytes under that name, so after a broken link it
goes on at its position, from any node. It starts over where that cannot be: another size is named (somebody's file is not
the same), or a chunk does not continue what is here. Whether the whole is a snapshot, its own CRCs, chain and digest decide.
"""

from typing import Final, NamedTuple

from metadata_log.ids import OffsetAndEpoch

SNAPSHOT_BYTES_MAX: Final = 8 << 30
"""A size beyond this is not believed."""
CHUNK_BYTES: Final = 1 << 20
RESTARTS_MAX: Final = 3
"""So often a download may start over before it is given up: else two nodes of different bytes keep it going for ever."""


class ChunkRequest(NamedTuple):
    """Ask any node that has the snapshot."""

    end: OffsetAndEpoch
    position: int
    max_bytes: int


class DownloadFailed(Exception):
    """The download makes no sense any more; the caller drops what is here and asks anew which snapshot to load."""


class Download:
    """One download.

    Invariant: `position` bytes are with the caller, and they are the first ones of a file of `size` bytes (None: not told yet).
    """

    def __init__(self, end: OffsetAndEpoch, chunk_bytes: int = CHUNK_BYTES) -> None:
        assert end.offset > 0, "the bootstrap checkpoint is nobody else's"
        self.end = end
        self.position = 0
        self.size: int | None = None
        self.restarts = 0
        self._chunk_bytes = chunk_bytes

    @property
    def is_done(self) -> bool:
        return self.size is not None and self.position == self.size

    def next_request(self) -> ChunkRequest:
        """What to ask for now; the same again after a link broke."""
        assert not self.is_done
        return ChunkRequest(self.end, self.position, self._chunk_bytes)

    def feed(self, size: int, position: int, data: bytes) -> bool:
        """A chunk has come. True: write `data` at `position`. False: drop it, and what was kept if `position` is 0 again.

        Raises:
            DownloadFailed: the sender makes no sense, or the download has started over too often.
        """
        if not 0 < size <= SNAPSHOT_BYTES_MAX or position + len(data) > size:
            raise DownloadFailed(f"snapshot {self.end}: {len(data)} bytes at {position} of {size}")
        if self.size is not None and size != self.size:
            self._start_over(f"{size} bytes, where {self.size} were told before")
            return False
        if position != self.position:
            return False  # an answer to a request that was repeated
        if not data:
            raise DownloadFailed(f"snapshot {self.end}: nothing at {position} of {size} bytes")
        self.size = size
        self.position += len(data)
        return True

    def refused_position(self) -> None:
        """The node has the snapshot, but not as far as our position: it is not the file that we have the beginning of.

        Raises:
            DownloadFailed: the download has started over too often.
        """
        self._start_over(f"position {self.position} is out of range")

    def _start_over(self, reason: str) -> None:
        self.restarts += 1
        if self.restarts > RESTARTS_MAX:
            raise DownloadFailed(f"snapshot {self.end}: {reason}; started over {RESTARTS_MAX} times already")
        self.position, self.size = 0, None
