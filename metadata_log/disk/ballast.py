"""`ballast`: a file that reserves room, to be deleted when the disk is full.

A node with a full disk must still be able to vote. Example: voters 2 and 3 have full disks, and leader 1 dies. If 2 and
3 cannot save a vote, the cluster has no leader until an operator makes room. A vote is a small file that is written
beside the old one, and deleting the ballast makes enough room for it.
"""

from contextlib import closing
from typing import Final

from metadata_log.disk.failures import is_full
from metadata_log.disk.files import Directory

BALLAST_NAME: Final = "ballast"
BALLAST_BYTES: Final = 1 << 20


class Ballast:
    """The file `ballast` in a node's directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def take(self) -> bool:
        """Reserve the room, if it is not reserved yet. Returns False if the disk has not enough room.

        Raises:
            OSError: the disk is broken, not full.
        """
        try:
            with closing(self._directory.open(BALLAST_NAME, create=True)) as file:
                file.preallocate(BALLAST_BYTES)
        except OSError as e:  # some file systems have no room even for an empty file
            if not is_full(e):
                raise
            return False
        return True

    def release(self) -> bool:
        """Free the reserved room. Returns False if it was free already."""
        is_there = self._directory.exists(BALLAST_NAME)
        if is_there:
            self._directory.remove(BALLAST_NAME)
        return is_there
