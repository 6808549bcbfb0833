"""The sources of answers for a shell. `DirectorySource` reads the files of a node, stopped or running, and changes nothing.

1. An operator opens the shell on the directory of controller 1, which runs. The note `flushed` says 2,600.
2. `at 1246` loads the image of 1,246 from a snapshot, archive and log.
3. Controller 1 goes on. `at end` reads the note again at each command, which says 2,740 now.

`quorum.cli.shell.live_source` asks a running cluster the same queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from metadata_log.disk.identity import IDENTITY_NAME, read_identity
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import ReplayStopped
from metadata_log.tree.queries import Differences, History, Query, QueryRefused, Row, Seen, answer
from quorum.cli.errors import EXIT_NOT_FOUND, EXIT_USAGE, CliError
from snapshots.history.kept import KeptImages, PastConfig
from snapshots.history.past import Change, Past, finished
from snapshots.history.wanted import HistoryDamaged, OutOfReach, Wanted

METADATA = "@metadata"


class Refusal(Exception):
    """A command that cannot be carried out, or not to the end; `exit_code` is that of quorumctl."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Answer(NamedTuple):
    """The answer to a query. The rows may be read once, and raise Refusal."""

    offset: Offset
    """The offset of the image that the query looked at."""
    rows: Iterator[Row]


class Source(Protocol):
    """The metadata of one cluster, at any offset or time."""

    @property
    def title(self) -> str:
        """One line about the source: where the answers come from, and how far they can be believed."""
        ...

    def ask(self, query: Query, at: Wanted | None = None, before: Wanted | None = None) -> Answer:
        """Answers a query at a position; None: the newest image. `before`: the other position of `Differences`.

        Raises:
            Refusal: there is no image at the position.
        """
        ...


class DirectorySource:
    """The history in a data directory of a controller or a broker, or in its `@metadata` directory alone."""

    def __init__(self, path: Path) -> None:
        """Raises CliError: there is no log."""
        inner = path / METADATA
        self._metadata = LocalDirectory(inner if inner.is_dir() else path)
        self._past = Past(self._metadata)
        self._kept = KeptImages(PastConfig(images_max=8))
        self._path = path
        try:
            names = self._metadata.names()
        except OSError as e:
            raise CliError(f"{path} cannot be read: {e}", EXIT_NOT_FOUND) from e
        if not any(name.endswith((".log", ".checkpoint")) for name in names):
            raise CliError(f"{path} is no directory of a node: it has no {METADATA} with a log", EXIT_NOT_FOUND)

    @property
    def title(self) -> str:
        end = self._past.durable_end()
        try:
            identity = read_identity(LocalDirectory(self._path)) if (self._path / IDENTITY_NAME).exists() else None
        except LogFormatError:
            identity = None
        if identity is None:
            return f"{self._path}: records up to {end}"
        doubt = "" if identity.role == "broker" else "; the last ones are durable here, and perhaps not committed"
        return f"{identity.role} {identity.node_id} of cluster {identity.cluster_id}: records up to {end}{doubt}"

    def ask(self, query: Query, at: Wanted | None = None, before: Wanted | None = None) -> Answer:
        with told():
            image = self._image(at)
            earlier = self._image(before) if isinstance(query, Differences) else None
            changes = self._changes(query.since) if isinstance(query, History) else ()
        return Answer(image.offset, _told_rows(answer(query, Seen(image, earlier, changes))))

    def _image(self, wanted: Wanted | None) -> MetadataImage:
        end = self._past.durable_end()
        wanted = Wanted(offset=end) if wanted is None else wanted
        found = self._kept.find(wanted, end)
        if found is None:
            found = self._past.shown(wanted, end, self._kept.all())
            self._kept.keep(found)
        return found.image

    def _changes(self, since: Offset | None) -> Iterator[Change]:
        end = self._past.durable_end()
        first = finished(self._past.reach(end)).lowest if since is None else since
        yield from self._past.changes(first, end)


@contextmanager
def told() -> Iterator[None]:
    """Raises Refusal instead of all that files can do to a reader, and instead of QueryRefused."""
    try:
        yield
    except QueryRefused as e:
        raise Refusal(str(e), EXIT_NOT_FOUND if e.is_missing else EXIT_USAGE) from e
    except (OutOfReach, HistoryDamaged, ReplayStopped, OSError) as e:
        raise Refusal(str(e), EXIT_NOT_FOUND) from e


def _told_rows(rows: Iterator[Row]) -> Iterator[Row]:
    with told():
        yield from rows
