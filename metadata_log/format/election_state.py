"""`quorum-state` as bytes: the epoch, the vote and the leader of one controller, with a checksum. Pure.

The controllers keep the file (`quorum.runtime.disk.election_file`); tools read it beside a log. Example: controller 2 has
voted in epoch 5, and its log ends in epoch 4. So a leader of epoch 5 may exist whose log is somewhere else.
"""

import json
import zlib
from typing import Any, Final, NamedTuple

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import EPOCH_MAX, NODE_ID_MAX, Epoch, NodeId, ReplicaKey, parse_uuid, uuid_text

FILE_NAME: Final = "quorum-state"
FILE_BYTES_MAX: Final = 4_096
FORMAT_VERSION: Final = 1


class ElectionState(NamedTuple):
    """The durable part of an election: epoch, vote in this epoch, leader of this epoch. One atomic file."""

    epoch: Epoch
    voted_for: ReplicaKey | None
    leader_id: NodeId | None


class ForgottenVote(CorruptLog):
    """Raised if the file is damaged: the node's vote is unknown, so the node must not vote."""


def pack(state: ElectionState) -> bytes:
    """Returns the content of the file."""
    vote = None
    if state.voted_for is not None:
        vote = {"node_id": state.voted_for.node_id, "directory_id": uuid_text(state.voted_for.directory_id)}
    body = {"version": FORMAT_VERSION, "epoch": state.epoch, "voted_for": vote, "leader_id": state.leader_id}
    text = json.dumps(body, sort_keys=True)
    line = json.dumps({"crc32": zlib.crc32(text.encode()), "state": body}, sort_keys=True)
    return line.encode() + b"\n"


def unpack(data: bytes, where: str) -> ElectionState:
    """Returns the state in the file `where`.

    Raises:
        ForgottenVote: the bytes are damaged.
        CorruptLog: a later release has written them.
    """
    try:
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


def _key(vote: dict[str, Any]) -> ReplicaKey:
    return ReplicaKey(_number(vote["node_id"], NODE_ID_MAX), parse_uuid(vote["directory_id"]))


def _number(value: object, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"{value!r:.40} where a number from 0 to {largest} should be")
    return value
