"""The options of the data source; the head of `snapshots/offline/datasource.py` explains each of them."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_log.format.ids import Offset
from snapshots.offline.schema import SNAPSHOTS_MODE, TABLES
from snapshots.offline.typed.columns import CLASSES

COMMITTED: Final = "committed"
UNCOMMITTED: Final = "uncommitted"
FLUSHED: Final = "flushed"
END: Final = "end"
_UNTILS: Final = (COMMITTED, UNCOMMITTED, FLUSHED, END)


class Settings(NamedTuple):
    """The parsed options."""

    paths: tuple[str, ...]
    mode: str
    until: str
    since: Offset
    standing: Mapping[str, Offset]
    """By path: the end of the snapshot on which the job stands. The segments below are not read."""
    types: frozenset[int] | None
    invisible: tuple[tuple[Offset, Offset], ...]
    base: str | None
    first_ms: int
    bucket_ms: int
    wanted: frozenset[Offset]
    split_bytes: int
    """0: the default."""
    beside: tuple[str, ...]
    reads_archive: bool
    skips_damage: bool
    pushes_down: bool

    @property
    def is_typed(self) -> bool:
        """True if the mode is the name of a record type."""
        return self.mode in CLASSES

    @property
    def is_snapshots(self) -> bool:
        """True if the mode reads snapshots, and no log."""
        return self.mode == SNAPSHOTS_MODE


def parse_options(options: Mapping[str, str]) -> Settings:
    """Parse the options.

    Raises:
        ValueError: an option has an invalid value.
    """
    path = options.get("path")
    if not path:
        raise ValueError('metadata_log: no path given; name the log with .option("path", DIRECTORY)')
    mode = options.get("mode", "batches")
    if mode not in TABLES and mode not in CLASSES:
        raise ValueError(
            f"metadata_log: mode {mode!r}; there are {', '.join(TABLES)}, and the name of each record type"
        )
    until = options.get("until", COMMITTED)
    if until not in _UNTILS and not until.isdigit() and not until.startswith("{"):
        raise ValueError(
            f"metadata_log: until {until!r}; it can be {', '.join(_UNTILS)}, an offset, or a JSON object of offsets"
        )
    types = options.get("types")
    return Settings(
        paths=_paths(path),
        mode=mode,
        until=until,
        since=int(options.get("since", "0")),
        standing=json.loads(options.get("standing", "{}")),
        types=None if types is None else frozenset(map(int, types.split(","))),
        invisible=tuple((begin, end) for begin, end in json.loads(options.get("invisible", "[]"))),
        base=options.get("base"),
        first_ms=int(options.get("first_ms", "0")),
        bucket_ms=max(1, int(options.get("bucket_ms", "60000"))),
        wanted=frozenset(map(int, json.loads(options.get("wanted", "[]")))),
        split_bytes=max(0, int(options.get("split_bytes", "0"))),
        beside=_paths(options["beside"]) if "beside" in options else (),
        reads_archive=_choice(options, "archive", ("true", "false")) == "true",
        skips_damage=_choice(options, "damage", ("fail", "skip")) == "skip",
        pushes_down=_choice(options, "pushdown", ("false", "true")) == "true",
    )


def _paths(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text.startswith("[") else (text,)


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, str]) -> str:
    """Return the option; the first of the choices is the default."""
    given = options.get(name, choices[0])
    if given not in choices:
        raise ValueError(f"metadata_log: {name} {given!r}; it can be {choices[0]} or {choices[1]}")
    return given
