"""`recovery-plan`: the unfinished plan of `quorumctl quorum recover` for this directory.

A recovery writes several things: a new generation, an epoch, records of another directory, a voter set. The plan becomes durable
before the first write, and is removed after the last write. While the plan exists, no controller starts on the directory, and the
same command carries out the rest of exactly this plan. Every step may be repeated. Counter-example without the file:
    1. the operator recovers from the directories of 1 and 2; node 1 survives and needs records of node 2;
    2. the command writes the new generation into the directory of node 1, and is killed;
    3. the operator repeats the command: node 2 now has an older generation than node 1 and would be refused, so the records of
       node 2 would be lost.
"""

import json
import shlex
from typing import Final, NamedTuple

import google_crc32c

from metadata_log.disk.failures import FileTooLarge
from metadata_log.disk.files import Directory
from metadata_log.disk.identity import ROLES
from metadata_log.format.batch import CHAIN_BYTES
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch, Uuid, parse_uuid, uuid_text
from metadata_log.format.records import Endpoint

FILE_NAME: Final = "recovery-plan"
DIRECTORIES_MAX: Final = 64
"""Maximum number of directories in a plan."""
PATH_CHARS_MAX: Final = 4096
"""Maximum length of a path, and of any other text in a plan."""
ENDPOINTS_MAX: Final = 16
FILE_BYTES_MAX: Final = 8 << 20
"""Maximum size of the file: the maximum number of directories and endpoints, with names of which JSON writes each character as
twelve bytes."""
_VERSION: Final = 1
_RESTORE_VERSION: Final = 2
"""The version of a plan that undoes records. A release that does not know how to keep them aside must not carry it out."""
_NUMBER_MAX: Final = (1 << 63) - 1


class PlannedDirectory(NamedTuple):
    """A directory that the operator has named."""

    path: str
    role: str
    node_id: NodeId
    directory_id: Uuid


class RecoveryPlan(NamedTuple):
    """The plan of one recovery; see the head of the file."""

    directories: tuple[PlannedDirectory, ...]
    survivor: PlannedDirectory
    """The directory with this plan: the only voter after the recovery."""
    source: PlannedDirectory | None
    """The directory with the records that the survivor lacks; None if the survivor lacks no record."""
    base: Offset
    """The survivor keeps its records below `base`; the records [base, end) are copied from the source."""
    base_chain: bytes
    snapshot: OffsetAndEpoch | None
    """The end of the source's snapshot at which the survivor's log begins anew, equal to `base`; None: the log goes on."""
    end: OffsetAndEpoch
    """The end of the recovered log (exclusive)."""
    end_chain: bytes
    committed_end: Offset
    """All records below this offset are known to be committed."""
    generation: int
    epoch: Epoch
    endpoints: tuple[Endpoint, ...]
    """The addresses of the survivor after the recovery."""
    wall_ms: int
    accepts_loss: bool
    """True if the survivor's log may be opened although it has lost its durable end."""
    undone_end: Offset = 0
    """The end of the records behind `end` that a restore to a point in time undoes, and keeps aside; 0 without a restore."""

    @property
    def command(self) -> str:
        """The command that completes the recovery."""
        options = (
            (("--directory" if each.role == "controller" else "--from-broker"), shlex.quote(each.path))
            for each in self.directories
        )
        return " ".join(["quorumctl quorum recover", *(word for option in options for word in option), "--yes"])


class UnfinishedRecovery(CorruptLog):
    """Raised when a controller must not start on a directory. The message names the command that finishes the recovery."""


def save(directory: Directory, plan: RecoveryPlan) -> None:
    """Makes `plan` durable before returning."""
    assert plan.survivor in plan.directories, plan
    fields = {
        "version": _RESTORE_VERSION if plan.undone_end else _VERSION,
        "directories": [
            [each.path, each.role, each.node_id, uuid_text(each.directory_id)] for each in plan.directories
        ],
        "survivor": plan.directories.index(plan.survivor),
        "source": None if plan.source is None else plan.directories.index(plan.source),
        "base": plan.base,
        "base_chain": plan.base_chain.hex(),
        "snapshot": plan.snapshot,
        "end": plan.end,
        "end_chain": plan.end_chain.hex(),
        "committed_end": plan.committed_end,
        "generation": plan.generation,
        "epoch": plan.epoch,
        "endpoints": plan.endpoints,
        "wall_ms": plan.wall_ms,
        "accepts_loss": plan.accepts_loss,
    } | ({"undone_end": plan.undone_end} if plan.undone_end else {})
    text = json.dumps(fields).encode()
    data = b"%s\n%08x\n" % (text, google_crc32c.value(text))
    assert len(data) <= FILE_BYTES_MAX and _parse(data) == plan, plan
    assert plan.snapshot is None or plan.source is not None, plan
    directory.write_atomic(FILE_NAME, data)


def load(directory: Directory) -> RecoveryPlan | None:
    """Reads the unfinished plan; None if the directory has none.

    Raises:
        UnfinishedRecovery: an older release has made the plan, and only that release can carry out the plan.
        CorruptLog: the file is damaged. `save` writes the file atomically, so a crash is not the cause.
    """
    if not directory.exists(FILE_NAME):
        return None
    where = f"{directory.path_text}/{FILE_NAME}"
    try:
        plan = _parse(directory.read(FILE_NAME, FILE_BYTES_MAX))
    except (FileTooLarge, ValueError, KeyError, TypeError, IndexError, RecursionError) as e:
        raise CorruptLog(
            f"{where}: unreadable ({e!r:.100}). A recovery was begun here and is not finished: put back the copy of this "
            "directory that was made before it, and begin anew"
        ) from e
    if (
        plan.source is None and plan.snapshot is not None
    ):  # the older release dropped all records above the survivor's own snapshot
        raise UnfinishedRecovery(
            f"{where}: a recovery was begun here by an older release and is not finished: finish it with that one "
            f"({plan.command}). Or put back the copy of this directory that was made before it, and begin anew"
        )
    return plan


def remove(directory: Directory) -> None:
    """Removes the plan after the last step."""
    directory.remove(FILE_NAME)
    directory.flush()


def refuse_unfinished(directory: Directory) -> None:
    """Checks that no recovery of `directory` is unfinished, before a controller starts.

    Raises:
        UnfinishedRecovery: the directory has a plan.
        CorruptLog: the directory has a plan that cannot be read.
    """
    plan = load(directory)
    if plan is not None:
        raise UnfinishedRecovery(
            f"{directory.path_text}: a recovery was begun here and is not finished. Run the same command again, it completes "
            f"what it began: {plan.command}"
        )


def _parse(data: bytes) -> RecoveryPlan:
    text, crc, _ = data.split(b"\n")
    if google_crc32c.value(text) != int(crc, 16):
        raise ValueError("CRC-32C mismatch")
    fields = json.loads(text)
    if fields["version"] not in (_VERSION, _RESTORE_VERSION):
        raise ValueError(f"version {fields['version']!r:.20}; this code reads {_VERSION} and {_RESTORE_VERSION}")
    directories = tuple(_directory(*each) for each in _list(fields["directories"], DIRECTORIES_MAX))
    source = fields["source"]
    if not fields["endpoints"]:
        raise ValueError("no endpoint")
    return RecoveryPlan(
        directories=directories,
        survivor=directories[_whole(fields["survivor"])],
        source=None if source is None else directories[_whole(source)],
        base=_whole(fields["base"]),
        base_chain=_chain(fields["base_chain"]),
        snapshot=None if fields["snapshot"] is None else _place(*fields["snapshot"]),
        end=_place(*fields["end"]),
        end_chain=_chain(fields["end_chain"]),
        committed_end=_whole(fields["committed_end"]),
        generation=_whole(fields["generation"]),
        epoch=_whole(fields["epoch"]),
        endpoints=tuple(_endpoint(*each) for each in _list(fields["endpoints"], ENDPOINTS_MAX)),
        wall_ms=_whole(fields["wall_ms"]),
        accepts_loss=fields["accepts_loss"] is True,
        undone_end=_whole(fields["undone_end"]) if fields["version"] == _RESTORE_VERSION else 0,
    )


def _directory(path: object, role: object, node_id: object, directory_id: object) -> PlannedDirectory:
    if role not in ROLES:
        raise ValueError(f"role {role!r:.40}")
    return PlannedDirectory(_text(path), str(role), _whole(node_id), parse_uuid(_text(directory_id)))


def _endpoint(listener: object, host: object, port: object) -> Endpoint:
    return Endpoint(_text(listener), _text(host), _whole(port))


def _place(offset: object, epoch: object) -> OffsetAndEpoch:
    return OffsetAndEpoch(_whole(offset), _whole(epoch))


def _chain(value: object) -> bytes:
    chain = bytes.fromhex(_text(value))
    if len(chain) != CHAIN_BYTES:
        raise ValueError(f"a chain of {len(chain)} bytes")
    return chain


def _list(value: object, items_max: int) -> list[list[object]]:
    if not isinstance(value, list) or len(value) > items_max:
        raise ValueError(f"{value!r:.40} where a list of at most {items_max} should be")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > PATH_CHARS_MAX:
        raise ValueError(f"{value!r:.40} where a text of at most {PATH_CHARS_MAX} characters should be")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(f"{value!r:.40} where a number from 0 to {_NUMBER_MAX} should be")
    return value
