"""`quorum-state`: the epoch, the vote and the leader, in one file that is replaced whole.

This is where a vote is made durable. `save` returns only after write, fsync, rename and fsync of the directory
(`Directory.write_atomic`); the node carries out `SaveElectionState` before any message that speaks of it. Epoch and vote
share one write: in two, a crash between them leaves a vote of the old epoch under the new one, and a second vote is
given (hashicorp/raft #661).
"""

import json
import zlib
from typing import Any

from metadata_log.disk.bad_sectors import read_twice
from metadata_log.disk.files import Directory, is_unreadable
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import EPOCH_MAX, NODE_ID_MAX, ReplicaKey, parse_uuid, uuid_text
from quorum.core.protocol.effects import ElectionState

FILE_NAME = "quorum-state"
FILE_BYTES_MAX = 4_096
FORMAT_VERSION = 1

FIRST_STATE = ElectionState(epoch=0, voted_for=None, leader_id=None)


def save(directory: Directory, state: ElectionState) -> None:
    """Makes `state` durable before it returns."""
    vote = None
    if state.voted_for is not None:
        vote = {"node_id": state.voted_for.node_id, "directory_id": uuid_text(state.voted_for.directory_id)}
    body = {"version": FORMAT_VERSION, "epoch": state.epoch, "voted_for": vote, "leader_id": state.leader_id}
    text = json.dumps(body, sort_keys=True)
    line = json.dumps({"crc32": zlib.crc32(text.encode()), "state": body}, sort_keys=True)
    directory.write_atomic(FILE_NAME, line.encode() + b"\n")


class ForgottenVote(CorruptLog):
    """The file is not what `save` wrote: the node's vote is unknown, so it must not vote."""


def load(directory: Directory) -> ElectionState | None:
    """What was last saved, durable; None if nothing ever was.

    A process that was killed between the rename and the fsync of the directory has left a vote that only the page cache
    knows. The next one reads it, and would speak of it; and after a power cut the node would vote again.

    Raises:
        FlushFailed: stop the process.
        ForgottenVote: if the file is there but is not what `save` wrote. A node that has forgotten its vote must not
            guess: it could vote twice in one epoch.
        CorruptLog: if a later release has written it.
        OSError: if the disk cannot read it, asked twice. That is no forgotten vote: the next start may be given it, and where a
            majority's disks hang for a moment nobody must give up its vote.
    """
    directory.flush()
    if not directory.exists(FILE_NAME):
        return None
    where = f"{directory.path_text}/{FILE_NAME}"
    try:
        data = _read(directory, where)
        outer = json.loads(data)
        body = outer["state"]
        if zlib.crc32(json.dumps(body, sort_keys=True).encode()) != outer["crc32"]:
            raise ForgottenVote(f"{where}: its checksum does not fit")
        if body["version"] != FORMAT_VERSION:
            raise CorruptLog(f"{where}: format version {body['version']}; this code reads {FORMAT_VERSION}")
        vote = body["voted_for"]
        voted_for = None if vote is None else _key(vote)
        leader_id = None if body["leader_id"] is None else _number(body["leader_id"], NODE_ID_MAX)
        return ElectionState(_number(body["epoch"], EPOCH_MAX), voted_for, leader_id)
    except CorruptLog:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise ForgottenVote(f"{where}: unreadable ({e})") from e


def _read(directory: Directory, where: str) -> bytes:
    try:
        return read_twice(lambda: directory.read(FILE_NAME, FILE_BYTES_MAX))
    except OSError as e:
        if not is_unreadable(e):
            raise
        text = f"{where}: the disk cannot read this node's vote ({e.strerror}). If it never can again, remove the file: the "
        raise OSError(
            e.errno, f"{text}node goes on under another directory id, as an observer until that is admitted"
        ) from e


def _key(vote: dict[str, Any]) -> ReplicaKey:
    return ReplicaKey(_number(vote["node_id"], NODE_ID_MAX), parse_uuid(vote["directory_id"]))


def _number(value: object, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r:.40} where a number from 0 to {largest} should be")
    return value
