"""The common parts of the commands of `quorum-offline`: options, exit codes, and the error of a job."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

EXIT_FINDINGS: Final = 10
EXIT_FAILED: Final = 1
SCHEMA_VERSION: Final = 1

_OF_A_NODE: Final = ("@metadata", "__cluster_metadata-0", "meta.properties", "log-start")
"""Names in a node's directory, metaquorum's or Kafka's."""

F = TypeVar("F", bound=Callable[..., Any])


def common_options(command: F) -> F:
    output = click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="For people or for machines."
    )
    return output(command)


def spark_options(command: F) -> F:
    master = click.option("--master", help="A Spark master; default: what spark-submit says, else local[*].")
    partitions = click.option("--shuffle-partitions", type=click.IntRange(1), default=8, show_default=True)
    return master(partitions(command))


def proof_options(command: F) -> F:
    beside = click.option(
        "--beside", multiple=True, metavar="DIRECTORY",
        help="Another controller's directory, to prove what is committed. Can be given several times.",
    )  # fmt: skip
    uncommitted = click.option(
        "--uncommitted", is_flag=True, help="Read also what is durable here and perhaps not committed."
    )
    return beside(uncommitted(command))


def format_option(command: F) -> F:
    log_format = click.option(
        "--format", "log_format", type=click.Choice(["auto", "own", "kafka"]), default="auto", show_default=True,
        help="Whose log it is: metaquorum's own, or Apache Kafka's. auto: as its first bytes say.",
    )  # fmt: skip
    return log_format(command)


def refuse_unwritable(*files: str | None) -> None:
    """Refuse local files that cannot be written, before a job works an hour for them. Of a URL only the store knows.

    Example: `--report /srv/pages/audit.html` while /srv/pages does not exist.
    """
    for file in files:
        local = "" if file is None else file.removeprefix("file://")
        if not local or "://" in local:
            continue
        path = Path(local)
        if path.is_dir():
            raise click.UsageError(f"{file} is a directory; name a file in it")
        if not path.parent.is_dir():
            raise click.UsageError(f"there is no directory {path.parent}; make it, or name another file")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise click.UsageError(f"this user may not write {file}; allow it, or name another file")


def place_of_results(context: click.Context, parameter: click.Parameter, value: str | Path | None) -> str | Path | None:
    """Refuse a local place of results in the directory of a node, where no job writes, or where no directory can be. So no job
    works an hour for results that it cannot write.

    Example: `compact /var/lib/metaquorum/controller --out /var/lib/metaquorum/controller/@metadata`.
    """
    if value is None or "://" in str(value).removeprefix("file://"):
        return value
    path = Path(str(value).removeprefix("file://")).absolute()
    for each in (path, *path.parents, *path.resolve().parents):
        if each.name in _OF_A_NODE or any(os.access(each / name, os.F_OK) for name in _OF_A_NODE):
            raise click.BadParameter(f"{each} is the directory of a node, where no job writes; name another directory")
    reason = _why_unusable(path)
    if reason is not None:
        raise click.BadParameter(f"{value} cannot be used: {reason}")
    return value


def is_history(directory: str) -> bool:
    """Return True for a directory that `quorum-offline history` has written."""
    from snapshots.offline.history.output import BASELINE_NAME, place_of

    with _readable(directory):
        return place_of(directory).exists(BASELINE_NAME)


def _why_unusable(path: Path) -> str | None:
    """Return the reason why no job can write into the directory, or make it; None if it seems to be possible."""
    place = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not place.exists():
        return (
            f"{place} is a link to {place.readlink()}, which does not exist; make that directory, or name another one"
        )
    if not place.is_dir():
        return f"{place} is a file; name a directory"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"this user may not write into {place}; allow it, or name another directory"
    return None


def refuse_unusable_tables(out_dir: str | None) -> None:
    """Refuse a directory where no history can be made or continued, before Spark starts."""
    from snapshots.offline.history.output import place_of, read_baseline

    if out_dir is None:
        return
    with _readable(out_dir):
        read_baseline(place_of(out_dir))


@contextmanager
def _readable(out_dir: str) -> Iterator[None]:
    """Turn an error of the tables' directory into one line."""
    from snapshots.offline.history.output import HistoryRefused

    try:
        yield
    except HistoryRefused as e:
        raise Failed(str(e)) from None
    except OSError as e:
        raise Failed(
            f"{out_dir} cannot be read: {e}. Nothing was written. Allow this user to read it, or choose another directory"
        ) from None


class Failed(click.ClickException):
    """The job failed: one line, exit code 1."""

    exit_code = EXIT_FAILED
