"""Reading a log beside its owner: a long search on another thread, while the log is appended to.

A `SideReader` knows the files and how far each was written. Bytes below that end never change while the owner truncates nothing.

    1. The owner makes a reader for the records from 40 on; the log ends at 90. A thread begins to read.
    2. The owner appends 90 to 99. The reader ends at 90 all the same.
    3. The owner retires the file of 0 to 59. If the thread has not opened that file yet, it gets FileNotFoundError.
"""

from collections.abc import Generator
from contextlib import closing
from typing import NamedTuple

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.store.segment import BadBatch, walk


class Part(NamedTuple):
    """Adjacent batches in one file: [position, end_position)."""

    name: str
    position: int
    end_position: int


class SideReader(NamedTuple):
    """The rest of a log from a batch boundary on, as it was when its owner made this object."""

    directory: Directory
    parts: tuple[Part, ...]

    def batches(self) -> Generator[Batch, None, None]:
        """Read the batches in order, from an index entry at or below the boundary on. May run on any thread.

        Raises:
            CorruptLog: the disk no longer holds what was written.
            FileNotFoundError: a file was retired meanwhile.
        """
        for name, position, end_position in self.parts:
            with closing(self.directory.open(name)) as file:
                try:
                    for _, batch in walk(file, position, end_position):
                        yield batch
                        position += len(batch.data)
                    if position < end_position:
                        raise BadBatch(position, "the file ends, or is zero, where a batch was written")
                except BadBatch as e:
                    raise CorruptLog.at(f"{self.directory.path_text}/{name}", e.position, None, str(e)) from e
