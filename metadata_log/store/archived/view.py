"""An archive as if no segment had been merged: a `Directory` in which the merged segments lie beside the others.

    on disk                                                       in the view
    00000000000000000000-00000000000000002500.merged              00000000000000000000.log  ...1244.log
    00000000000000002500.log                                      00000000000000002500.log

A segment that lies in both forms is read from its own file. Files may go meanwhile. Example:
  1. A reader lists the segments at 0, 1,244 and 2,500.
  2. `quorum-offline archive merge` puts the segments at 0 and 1,244 into one file, and deletes both.
  3. The reader opens the segment at 1,244. The file is gone; the view lists the merged files again, and opens the segment there.
"""

from collections.abc import Iterator
from contextlib import closing

from metadata_log.disk.files import Directory, File
from metadata_log.disk.read_only import ReadOnlyDirectory
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.errors import CorruptLog, LogFormatError
from metadata_log.format.ids import OFFSET_MAX, Offset
from metadata_log.store.archived.merged_file import MergedFile, range_of
from metadata_log.store.segment import (
    SEGMENT_HEADER_BYTES,
    BadBatch,
    base_offset_of,
    is_leftover,
    read_header,
    segment_name,
    segment_names,
    walk,
)


class ArchiveView(ReadOnlyDirectory):
    """The archive in `directory`, for reading. A damaged merged file has no segments here: see `damaged`."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._merged: dict[str, MergedFile] = {}
        """The merged files whose indexes were read; a merged file never changes."""
        self.damaged: dict[str, str] = {}
        """Names of merged files that cannot be read, with the reasons."""

    @property
    def path_text(self) -> str:
        return self._directory.path_text

    def names(self) -> list[str]:
        names = self._directory.names()
        inside = {segment_name(base) for each in self._merged_files(names) for base in each.index.bases}
        return sorted(inside.union(names))

    def exists(self, name: str) -> bool:
        return self._directory.exists(name) or self._holder(name) is not None

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file, or a segment in a merged file.

        Raises:
            FileNotFoundError: there is no such file, and no such segment.
            CorruptLog: the segment's merged file is damaged.
        """
        if create:
            self.write_atomic(name, b"")  # refused
        try:
            return self._directory.open(name)
        except FileNotFoundError:
            holder = self._holder(name)
            base = base_offset_of(name)
            if holder is None or base is None:
                raise
            return holder.open(base)

    def read(self, name: str, max_bytes: int) -> bytes:
        return self._directory.read(name, max_bytes)

    def subdirectory(self, name: str) -> Directory:
        return self._directory.subdirectory(name)

    def _holder(self, name: str) -> MergedFile | None:
        """Return the merged file with this segment."""
        base = base_offset_of(name)
        if base is None:
            return None
        near = [
            each for each in self._directory.names() if (found := range_of(each)) and found.base <= base < found.end
        ]
        return next((each for each in self._merged_files(near) if base in each.index.bases), None)

    def _merged_files(self, names: list[str]) -> Iterator[MergedFile]:
        for name in names:
            if range_of(name) is not None:
                found = self._merged_file(name)
                if found is not None:
                    yield found

    def _merged_file(self, name: str) -> MergedFile | None:
        try:
            if name not in self._merged:
                self._merged[name] = MergedFile(self._directory, name)
        except FileNotFoundError:
            return None  # deleted meanwhile
        except LogFormatError as e:
            self.damaged[name] = str(e)
            return None
        return self._merged[name]


def archived_batches(directory: Directory, since: Offset = 0, until: Offset = OFFSET_MAX) -> Iterator[Batch]:
    """Read the batches of an archive in order, from its segments and merged files: from the first batch that ends above `since`
    to the last batch that begins below `until`. CRC and chain are checked, also from segment to segment. The archive may have
    gaps.

    Raises:
        CorruptLog: a file is damaged, or a segment does not continue the segment before.
        FileNotFoundError: a file was deleted meanwhile.
    """
    view = ArchiveView(directory)
    names = [name for name in segment_names(view) if not is_leftover(view, name)]
    for reason in view.damaged.values():
        raise CorruptLog(reason)
    bases = [base_offset_of(name) or 0 for name in names]
    last: Batch | None = None
    for name, base, following in zip(names, bases, [*bases[1:], OFFSET_MAX], strict=True):
        if following <= since or base >= until:
            continue
        with closing(view.open(name)) as file:
            for batch in batches_in(file, f"{view.path_text}/{name}", base, last):
                last = batch
                if batch.end_offset > since and batch.base_offset < until:
                    yield batch


def batches_in(file: File, path: str, base: Offset, before: Batch | None) -> Iterator[Batch]:
    """Read the batches of a whole segment. The segment has to continue the batch `before`, if this batch ends at the base.

    Raises:
        CorruptLog: the segment is damaged, or continues another history.
    """
    try:
        header = read_header(file)
    except LogFormatError as e:
        raise CorruptLog.at(path, 0, base, str(e)) from e
    end, chain = base, header.previous_chain
    if header.start.offset != base or (before is not None and before.end_offset == base and before.chain != chain):
        raise CorruptLog.at(path, 0, base, "the segment's header does not continue the segment before")
    try:
        for at, batch in walk(file, SEGMENT_HEADER_BYTES, file.size()):
            if batch.base_offset != end or not verify_chain(batch, chain):
                raise BadBatch(at, "the batch does not continue the history")
            end, chain = batch.end_offset, batch.chain
            yield batch
    except BadBatch as e:
        raise CorruptLog.at(path, e.position, end, str(e)) from e
