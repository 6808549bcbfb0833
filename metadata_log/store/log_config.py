"""The sizes and limits of a log."""

from typing import NamedTuple

from metadata_log.format.batch import FORMAT_VERSION


class LogConfig(NamedTuple):
    segment_bytes: int = 64 << 20
    """Maximum size of a segment. The log seals a segment that would grow larger, and creates the next one."""
    tail_bytes: int = 8 << 20
    """How many bytes of the newest batches the log keeps in memory."""
    archive: bool = True
    """True: retired segments are moved to `archive/`. False: they are deleted."""
    archive_max_bytes: int = 1 << 30
    archive_max_age_ms: int = 30 * 24 * 3_600_000
    """Maximum age of an archived segment, measured by the timestamps in the log, not by a clock."""
    open_files_max: int = 8
    """Maximum number of sealed segments whose files are kept open."""
    format_version: int = FORMAT_VERSION
    """The format version of all batches of the log."""
    notes_first_start: bool = True
    """False: a new log that begins at 0 is created without `log-start`, for a third of the fsyncs. The header of the first
    segment says the same. If the disk then loses that header, the log cannot go on behind the damage."""
