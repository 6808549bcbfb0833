"""The SHA-256 of snapshot files, for listings: operators and backups compare the files of several controllers.

A snapshot file never changes, so each is read once.
"""

import asyncio
import hashlib
from typing import Final

from metadata_log.format.errors import ErrorCode
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import Refused
from snapshots.store import SnapshotInfo

HASHED_BYTES_MAX: Final = 256 << 20
"""Maximum size of a file that is hashed. A listing shows a larger snapshot without its hash."""
HASH_CHUNK_BYTES: Final = 1 << 20
HASHES_MAX: Final = 1_000
"""How many hashes are kept."""


class SnapshotHashes:
    """The hashes of one node's snapshots."""

    def __init__(self, node: ControllerNode) -> None:
        self._node = node
        self._hashes: dict[SnapshotInfo, bytes] = {}

    async def hash_of(self, info: SnapshotInfo) -> bytes:
        """SHA-256 of the snapshot's file. Empty for a file that is too large, was deleted meanwhile, or was cut short on disk."""
        found = self._hashes.get(info)
        if found is None:
            if info.size > HASHED_BYTES_MAX:
                return b""
            try:
                found = await asyncio.to_thread(self._read_and_hash, info)
            except Refused:
                return b""
            if len(self._hashes) >= HASHES_MAX:
                self._hashes.clear()
            self._hashes[info] = found
        return found

    def _read_and_hash(self, info: SnapshotInfo) -> bytes:
        """Runs on a thread: each read opens the file for itself, and hashing lets the event loop run meanwhile."""
        digest, position = hashlib.sha256(), 0
        while position < info.size:
            _, data = self._node.read_snapshot_chunk(info.end, position, HASH_CHUNK_BYTES)
            if not data:
                text = f"the snapshot {info.end} has {position:,} bytes, and had {info.size:,}; it was not hashed"
                raise Refused(ErrorCode.STORAGE_ERROR, text)
            digest.update(data)
            position += len(data)
        return digest.digest()
