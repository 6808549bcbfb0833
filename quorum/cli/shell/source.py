"""The sources of images for a shell. `DirectorySource` reads the files of a node, stopped or running, and changes nothing.

1. An operator opens the shell on the directory of controller 1, which runs. The note `flushed` says 2,600.
2. `at 1246` loads the image of 1,246 from a snapshot, archive and log.
3. Controller 1 goes on. `at end` reads the note again, which says 2,740 now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from metadata_log.disk.identity import IDENTITY_NAME, read_identity
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import ReplayStopped
from quorum.cli.errors import EXIT_NOT_FOUND, CliError
from snapshots.history.kept import KeptImages, PastConfig
from snapshots.history.past import Change, Past, finished
from snapshots.history.wanted import HistoryDamaged, OutOfReach, Wanted

METADATA = "@metadata"


class NoImage(Exception):
    """The image cannot be shown. The text says why, and what to do."""


class Source(Protocol):
    """Images of one cluster, by offset or time."""

    @property
    def title(self) -> str:
        """One line about the source: where the images come from, and how far they can be believed."""
        ...

    def image(self, wanted: Wanted | None) -> MetadataImage:
        """Returns the image at a position; None: the newest. Raises NoImage."""
        ...

    def changes(self, since: Offset | None) -> Iterator[Change]:
        """Returns the batches from an offset on, or all that there are, with the images around each. Raises NoImage."""
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

    def image(self, wanted: Wanted | None) -> MetadataImage:
        with _told():
            end = self._past.durable_end()
            wanted = Wanted(offset=end) if wanted is None else wanted
            found = self._kept.find(wanted, end)
            if found is None:
                found = self._past.shown(wanted, end, self._kept.all())
                self._kept.keep(found)
            return found.image

    def changes(self, since: Offset | None) -> Iterator[Change]:
        with _told():
            end = self._past.durable_end()
            first = finished(self._past.reach(end)).lowest if since is None else since
            yield from self._past.changes(first, end)


@contextmanager
def _told() -> Iterator[None]:
    """Raises NoImage instead of all that files can do to a reader."""
    try:
        yield
    except (OutOfReach, HistoryDamaged, ReplayStopped, OSError) as e:
        raise NoImage(str(e)) from e
