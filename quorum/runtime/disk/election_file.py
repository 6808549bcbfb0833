"""`quorum-state`: the epoch, the vote and the leader, in a single file that is always replaced as a whole.

`save` makes a vote durable: it returns after write, fsync, rename and fsync of the directory (`Directory.write_atomic`). The node
carries out `SaveElectionState` before any message about the vote. Epoch and vote share one write. Counter-example with two writes
(hashicorp/raft #661):
    1. node 1 has voted for 2 in epoch 4; now candidate 3 asks for a vote in epoch 5;
    2. node 1 writes the epoch 5, and crashes before it writes the vote for 3;
    3. node 1 restarts with epoch 5 and the old vote for 2, and would answer candidate 2 of epoch 5 with yes.
"""

import json
import zlib
from typing import Any

from metadata_log.disk.failures import is_unreadable
from metadata_log.disk.files import Directory
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
    """Raised if the file is damaged: the node's vote is unknown, so the node must not vote."""


def load(directory: Directory) -> ElectionState | None:
    """Reads the last saved state, and makes the state durable first; None if the file does not exist.

    Counter-example without the flush of the directory:
        1. node 1 saves its vote for 2, and is killed between the rename and the fsync of the directory;
        2. node 1 restarts, reads its vote from the page cache, and repeats its answer to candidate 2;
        3. the power fails: the vote is lost, and node 1 could vote for 3 in the same epoch.

    Raises:
        FlushFailed: the process must stop.
        ForgottenVote: the file is damaged. A node that has forgotten its vote could vote twice in one epoch.
        CorruptLog: a later release has written the file.
        OSError: the disk cannot read the file. The vote is not forgotten: the next start may read the file. If the disks of a
            majority hang for a moment, no voter must give up its vote.
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
        return directory.read(FILE_NAME, FILE_BYTES_MAX)
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
