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
_NAMES: Final = (
    "path", "mode", "since", "until", "beside", "archive", "pushdown", "damage", "bucket_ms", "first_ms", "split_bytes",
    "standing", "types", "invisible", "base", "wanted",
)  # fmt: skip
_FOR_PEOPLE: Final = _NAMES[:11]
"""The other options are for the jobs."""
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
        ValueError: an option has an invalid value, or there is no such option.
    """
    unknown = [name for name in options if name.lower() not in _NAMES and not name.startswith("__")]  # __: Spark's own
    if unknown:
        raise ValueError(f"metadata_log: there is no option {unknown[0]!r}; there are {', '.join(_FOR_PEOPLE)}")
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
        since=_number(options, "since", 0),
        standing=json.loads(options.get("standing", "{}")),
        types=None if types is None else frozenset(map(int, types.split(","))),
        invisible=tuple((begin, end) for begin, end in json.loads(options.get("invisible", "[]"))),
        base=options.get("base"),
        first_ms=_number(options, "first_ms", 0),
        bucket_ms=max(1, _number(options, "bucket_ms", 60_000)),
        wanted=frozenset(map(int, json.loads(options.get("wanted", "[]")))),
        split_bytes=_number(options, "split_bytes", 0),
        beside=_paths(options["beside"]) if "beside" in options else (),
        reads_archive=_choice(options, "archive", ("true", "false")) == "true",
        skips_damage=_choice(options, "damage", ("fail", "skip")) == "skip",
        pushes_down=_choice(options, "pushdown", ("false", "true")) == "true",
    )


def _paths(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text.startswith("[") else (text,)


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    given = options.get(name, str(default))
    if not (given.isascii() and given.isdigit()):
        raise ValueError(f"metadata_log: {name} {given!r}; it can be a whole number from 0 on")
    return int(given)


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, str]) -> str:
    """Return the option; the first of the choices is the default."""
    given = options.get(name, choices[0])
    if given not in choices:
        raise ValueError(f"metadata_log: {name} {given!r}; it can be {choices[0]} or {choices[1]}")
    return given
