"""The option `--format` of commands that take whole directories: are they metaquorum's own, or Apache Kafka's?"""

from collections.abc import Sequence

import click

from metadata_log.disk.files import Directory
from snapshots.offline.commands import running
from snapshots.offline.dump_source import place_of
from snapshots.offline.kafka.log_files import is_kafka


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
