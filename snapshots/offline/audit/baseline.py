"""The baseline of a nightly audit: the newest part of the log that an audit has proven, in a small JSON file.

    {"format": "metaquorum-audit-baseline", "version": 1, "cluster_id": "4L6g...", "offset": 3575, "epoch": 3,
     "chain": "5fef...", "digest": "09ab...", "records": 812,
     "holders": [{"node": "controller 1", "directory_id": "AQEB..."}],
     "snapshots": [{"offset": 3000, "epoch": 3, "sha256": "77c1..."}]}

The chain at an offset is a hash of all batches below. So one chain, kept where the nodes cannot write, is enough to see that a
history was rewritten, even if all nodes agree about the new history. Example:
  1. on Monday the audit notes offset 3575 and its chain;
  2. on Tuesday somebody changes record 1200 on all three nodes, and makes all checksums and chains right;
  3. the nodes agree, and the log is sound. But the chain at 3575 is another one than on Monday.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from metadata_log.disk.failures import FileTooLarge
from metadata_log.disk.files import FILE_MODE
from metadata_log.format.batch import CHAIN_BYTES
from metadata_log.format.ids import OFFSET_MAX, Epoch, Offset, OffsetAndEpoch
from metadata_log.image.digest import DIGEST_BYTES
from snapshots.offline.inputs import NodeLog, lies_in
from snapshots.offline.readonly import ReadOnlyDirectory, location_of
from snapshots.offline.writable import write_text

FORMAT: Final = "metaquorum-audit-baseline"
VERSION: Final = 1
BYTES_MAX: Final = 1 << 20
"""Maximum size of the file."""
SNAPSHOTS_MAX: Final = 1_000
"""Maximum number of proven snapshots that the file remembers, the newest ones."""
_NODES_MAX: Final = 10_000
_TEXT_MAX: Final = 300
_SHA256_BYTES: Final = 32

T = TypeVar("T", int, str, list[Any], dict[str, Any])


class Holder(NamedTuple):
    """A node that had the log up to the baseline."""

    node: str
    directory_id: str | None
    """A new disk has a new id. A node with a new disk may have a shorter log."""


class ProvenSnapshot(NamedTuple):
    """A snapshot whose state an audit has compared with the log."""

    end: OffsetAndEpoch
    sha256: bytes


class Baseline(NamedTuple):
    """The result of an audit that a later audit builds on: the log below `end` was proven."""

    cluster_id: str | None
    end: Offset
    epoch: Epoch
    chain: bytes
    """The chain at `end`."""
    digest: bytes
    """The digest of the state at `end`, with `records` canonical records."""
    records: int
    holders: tuple[Holder, ...]
    snapshots: tuple[ProvenSnapshot, ...]

    def to_text(self) -> str:
        """Return the content of the file."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "offset": self.end,
            "epoch": self.epoch,
            "chain": self.chain.hex(),
            "digest": self.digest.hex(),
            "records": self.records,
            "holders": [each._asdict() for each in self.holders],
            "snapshots": [{**each.end._asdict(), "sha256": each.sha256.hex()} for each in self.snapshots],
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class CannotUseBaseline(Exception):
    """The file cannot serve as the baseline of this audit. The message says what to do."""


def read_baseline(path: str, logs: Iterable[NodeLog]) -> Baseline | None:
    """Return the baseline in the file at `path`; None if there is no file yet.

    Raises:
        CannotUseBaseline: the file is no baseline of the cluster that `logs` belong to, or lies at a wrong place.
        OSError: the file cannot be read.
    """
    named = tuple(logs)
    _check_place(path, named)
    text = read_text(path)
    if text is None:
        return None
    found = _parse(path, text)
    for log in named:
        if log.identity is not None and found.cluster_id not in (None, log.identity.cluster_id):
            raise CannotUseBaseline(
                f"{path} is the baseline of cluster {found.cluster_id}, and {log.path} belongs to cluster "
                f"{log.identity.cluster_id}; nothing was audited: give each cluster a file of its own"
            )
    return found


def read_text(path: str) -> str | None:
    """Return the content of the file; None if there is no file."""
    directory, name = _split(path)
    place = ReadOnlyDirectory(directory)
    if not place.exists(name):
        return None
    try:
        return place.read(name, BYTES_MAX).decode()
    except (FileTooLarge, UnicodeDecodeError) as e:
        raise _unusable(path, str(e)) from None
    except OSError:
        if "://" in path or Path(path).is_file():
            raise
        raise _unusable(path, "it is no regular file") from None  # a directory, or a pipe


def write_baseline(path: str, baseline: Baseline) -> None:
    """Replace the file, atomically and durably.

    Raises:
        OSError, FlushFailed: the file could not be written. The old one is left as it was.
    """
    write_text(path, baseline.to_text(), mode=FILE_MODE)


def _split(path: str) -> tuple[str, str]:
    """Return the directory and the name of a path or URL."""
    if "://" in path:
        directory, _, name = path.rpartition("/")
        return directory, name
    return str(Path(path).parent), Path(path).name


def _check_place(path: str, logs: Iterable[NodeLog]) -> None:
    place = location_of(path)
    if any(lies_in(path, log) for log in logs):
        raise CannotUseBaseline(
            f"{path} lies in a directory that is audited; nothing was audited: keep the baseline where no node writes"
        )
    if "://" not in place and not Path(place).parent.is_dir():
        raise CannotUseBaseline(
            f"{path}: there is no directory {Path(place).parent}; nothing was audited: make the directory"
        )


def _unusable(path: str, reason: str) -> CannotUseBaseline:
    return CannotUseBaseline(
        f"{path} is no baseline of an audit: {reason}; nothing was audited, and the file was left as it is: name another "
        "file, or move this one away to begin anew"
    )


def _parse(path: str, text: str) -> Baseline:
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"it does not say format {FORMAT}")
        version = _field(document, "version", int)
        if version != VERSION:
            raise ValueError(f"it has version {version}, and this release knows version {VERSION}")
        cluster_id = document.get("cluster_id")
        return Baseline(
            None if cluster_id is None else _field(document, "cluster_id", str),
            _number(document, "offset", low=1),
            _number(document, "epoch"),
            _bytes(document, "chain", CHAIN_BYTES),
            _bytes(document, "digest", DIGEST_BYTES),
            _number(document, "records"),
            tuple(map(_holder, _list(document, "holders", _NODES_MAX))),
            tuple(map(_snapshot, _list(document, "snapshots", SNAPSHOTS_MAX))),
        )
    except (ValueError, RecursionError) as e:
        raise _unusable(path, " ".join(str(e).split())) from None


def _field(document: dict[str, Any], name: str, kind: type[T]) -> T:
    value = document.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r:.40}")
    if isinstance(value, str) and len(value) > _TEXT_MAX:
        raise ValueError(f"{name} is too long")
    return value


def _number(document: dict[str, Any], name: str, low: int = 0) -> int:
    value = _field(document, name, int)
    if not low <= value <= OFFSET_MAX:
        raise ValueError(f"{name} is out of range")
    return value


def _bytes(document: dict[str, Any], name: str, size: int) -> bytes:
    found = bytes.fromhex(_field(document, name, str))
    if len(found) != size:
        raise ValueError(f"{name} has {len(found)} bytes instead of {size}")
    return found


def _list(document: dict[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    found = _field(document, name, list)
    if len(found) > most or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{name} is not a list of up to {most} objects")
    return found


def _holder(document: dict[str, Any]) -> Holder:
    has_id = document.get("directory_id") is not None
    return Holder(_field(document, "node", str), _field(document, "directory_id", str) if has_id else None)


def _snapshot(document: dict[str, Any]) -> ProvenSnapshot:
    end = OffsetAndEpoch(_number(document, "offset", low=1), _number(document, "epoch"))
    return ProvenSnapshot(end, _bytes(document, "sha256", _SHA256_BYTES))
