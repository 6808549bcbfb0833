"""The option `--format` of commands that take whole directories: are they metaquorum's own, or Apache Kafka's?"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from metadata_log.disk.files import Directory, RealDirectory
from metadata_log.format.errors import LogFormatError
from snapshots.offline.commands import running
from snapshots.offline.commands.shared import Failed
from snapshots.offline.dump_source import place_of
from snapshots.offline.kafka.log_files import is_kafka
from snapshots.offline.progress import shown_progress

if TYPE_CHECKING:
    from snapshots.offline.audit.result import AuditResult


class OwnLogs(NamedTuple):
    """The directories that a job reads: those that were named, or the transcription of the first one."""

    paths: tuple[str, ...]
    uncommitted: bool
    proof: str | None = None
    """For Kafka, the reason why the records are committed."""
    audited: "AuditResult | None" = None
    """For Kafka, the audit of all directories, if it was asked for."""


@contextmanager
def as_own_logs(
    paths: Sequence[str], log_format: str, *, uncommitted: bool, with_audit: bool = False
) -> Iterator[OwnLogs]:
    """Return the directories for a job that reads our own logs. A log of Kafka is transcribed, as far as it is committed, into a
    directory that exists until the block ends.

    Raises:
        Failed: the log cannot be transcribed, or nothing is proven to be committed.
    """
    kafkas = kafka_directories(paths, log_format)
    if kafkas is None:
        yield OwnLogs(tuple(paths), uncommitted)
        return
    with running.needing("spark"):
        from snapshots.offline.kafka_audit.run import audit_kafka
        from snapshots.offline.kafka_audit.transcribing import CannotProve, transcribe
    with tempfile.TemporaryDirectory(prefix="metaquorum-kafka-") as scratch:
        try:
            with shown_progress() as step:
                audited = audit_kafka(kafkas, step) if with_audit else None
                step("transcribing the log of Kafka")
                proof = transcribe(kafkas, RealDirectory(Path(scratch) / "log"), uncommitted=uncommitted)
        except CannotProve as e:
            raise Failed(str(e)) from None
        except (LogFormatError, OSError) as e:
            raise Failed(f"{e}. `quorum-offline audit` lists all that is wrong; nothing was written") from None
        yield OwnLogs((str(Path(scratch) / "log"),), True, proof, audited)


def kafka_directories(paths: Sequence[str], log_format: str) -> list[Directory] | None:
    """Return the directories if they have logs of Kafka; None if they have logs of metaquorum.

    Raises:
        UsageError: the paths are of both kinds, or one is a file.
    """
    if log_format == "own":
        return None
    with running.needing("spark"):  # for the URL of an object store
        places = [place_of(path) for path in paths]
    if log_format == "auto" and not any(_is_kafka(directory) for directory, _ in places):
        return None
    for path, (directory, name) in zip(paths, places, strict=True):
        if name is not None:
            raise click.UsageError(f"{path} is one file: name the directory")
        if log_format == "auto" and not _is_kafka(directory):
            raise click.UsageError(
                f"{path} has no log of Apache Kafka, and others of the directories have: audit them apart"
            )
    return [directory for directory, _ in places]


def _is_kafka(directory: Directory) -> bool:
    try:
        return is_kafka(directory)
    except OSError:
        return False  # the job's own reader says what is wrong
