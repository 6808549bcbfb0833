"""A file that holds room for the day on which there is none.

A full disk must not keep a node from voting: a quorum that has lost two voters to their disks has lost its leader as well. A vote
is a small file that is written anew before the old one goes, so there must be room for it; giving this file up makes some.
"""

from contextlib import closing
from typing import Final

from metadata_log.disk.files import Directory, is_full

BALLAST_NAME: Final = "ballast"
BALLAST_BYTES: Final = 1 << 20


class Ballast:
    """The file `ballast` in a node's directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def take(self) -> bool:
        """Takes the room, if it is not taken; False if there is not as much.

        Raises:
            OSError: the disk is broken, not full.
        """
        try:
            with closing(self._directory.open(BALLAST_NAME, create=True)) as file:
                file.preallocate(BALLAST_BYTES)
        except OSError as e:  # some file systems have no room for an empty file, either
            if not is_full(e):
                raise
            return False
        return True

    def release(self) -> bool:
        """Gives the room to whoever writes next; False if it is given already."""
        is_there = self._directory.exists(BALLAST_NAME)
        if is_there:
            self._directory.remove(BALLAST_NAME)
        return is_there
