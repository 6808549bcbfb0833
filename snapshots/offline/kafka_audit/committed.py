"""How far the records of Kafka's logs are committed, as the files prove it. A history reads no further.

Kafka notes no high watermark in a file that a copy could trust. Two things prove the records below an offset:

    snapshot   a node writes a snapshot only when its end is committed
    majority   a majority of the voters hold the same records, the last of them in the newest epoch, and no voter that is there
               has heard of a later epoch (`quorum-state`; with the directories of all voters it is not needed)

Example. Controllers 1, 2 and 3; each has a snapshot at 240.
  1. The logs end at 275, 275 and 270, all of epoch 6, and agree. Two of three hold [0, 275): 275 is committed.
  2. Only the directory of node 1 is there: its log alone proves nothing, and the snapshot proves 240.
  3. The logs of 1 and 2 are there, and node 2 has heard of epoch 7. A leader of epoch 7 may exist that has another record at 270:
     only the snapshot proves anything.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.format.ids import Epoch, NodeId, Offset
from snapshots.offline.kafka.log_files import KafkaLog
from snapshots.offline.kafka_audit.walk import Walked

_STATE_NAME: Final = "quorum-state"
_STATE_BYTES_MAX: Final = 64 << 10


class Committed(NamedTuple):
    """The proven end of the committed records."""

    end: Offset
    """All records below are committed. 0: nothing is proven."""
    proof: str
    """The reason, for people."""


def committed_end(logs: Sequence[KafkaLog], walked: Walked) -> Committed:
    """Return how far the records of these logs are committed. `walked` has no findings about differing histories."""
    by_snapshot = max(
        ((each.end.offset, f"the snapshot {each.name} of {log.node}") for log in logs for each in log.snapshots),
        default=(0, "there is no snapshot"),
    )
    by_majority = _by_majority(logs, walked)
    if by_majority is not None and by_majority.end > by_snapshot[0]:
        return by_majority
    return Committed(*by_snapshot)


def _by_majority(logs: Sequence[KafkaLog], walked: Walked) -> Committed | None:
    ends: dict[NodeId, tuple[Offset, Epoch, KafkaLog]] = {}
    for log in logs:
        numbers = walked.nodes.get(log.node)
        if numbers is not None and log.node_id is not None:
            ends[log.node_id] = numbers.end_offset, numbers.last_epoch, log
    if not ends:
        return None
    newest = max(epoch for _, epoch, _ in ends.values())
    longest = max(ends.values(), key=lambda each: (each[1], each[0]))[2]
    voters = walked.voters[longest.node]
    held = sorted(((ends[voter][:2], ends[voter][2].node) for voter in voters if voter in ends), reverse=True)
    majority = len(voters) // 2 + 1
    if not voters or len(held) < majority:
        return None
    (end, epoch), _ = held[majority - 1]
    if epoch != newest:
        return None
    if len(held) < len(voters) and any((_epoch(each[2]) or newest + 1) > newest for each in ends.values()):
        return None
    names = ", ".join(node for (offset, _), node in held if offset >= end)
    return Committed(end, f"{names}: a majority of the voters {sorted(voters)} hold it in the newest epoch, {newest}")


def _epoch(log: KafkaLog) -> Epoch | None:
    """Return the newest epoch that a node has heard of; None if the note is missing or unreadable."""
    if not log.directory.exists(_STATE_NAME):
        return None
    try:
        epoch = json.loads(log.directory.read(_STATE_NAME, _STATE_BYTES_MAX))["leaderEpoch"]
    except (ValueError, KeyError, TypeError, OSError):
        return None
    return epoch if isinstance(epoch, int) else None
