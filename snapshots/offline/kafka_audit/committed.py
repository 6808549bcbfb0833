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
  4. Node 1 led epoch 5 and has a tail of its own up to 300. Nodes 2 and 3 end at 275 and 270, of epoch 6: 270 is committed. The
     longer log of node 1 does not count, because node 1 holds nothing of epoch 6.
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


class _Voter(NamedTuple):
    """The end of a voter's log. In logs that agree, a voter whose last record is of the newest epoch has all records below."""

    epoch: Epoch
    end: Offset
    log: KafkaLog


def _by_majority(logs: Sequence[KafkaLog], walked: Walked) -> Committed | None:
    """Return the highest end that a majority holds in the newest epoch; None if there is none."""
    here: dict[NodeId, _Voter] = {}
    for log in logs:
        numbers = walked.nodes.get(log.node)
        if numbers is not None and log.node_id is not None:
            here[log.node_id] = _Voter(numbers.last_epoch, numbers.end_offset, log)
    if not here:
        return None
    newest = max(here.values(), key=lambda each: each[:2])
    voters = walked.voters[newest.log.node]
    # A voter that ends in an older epoch may have a longer tail that was never committed: it holds nothing of the newest epoch.
    holding = [here[voter] for voter in voters if voter in here and here[voter].epoch == newest.epoch]
    holding.sort(key=lambda each: each.end, reverse=True)
    majority = len(voters) // 2 + 1
    if not voters or len(holding) < majority:
        return None
    are_all_here = voters <= here.keys()
    if not are_all_here and any((_epoch(each.log) or newest.epoch + 1) > newest.epoch for each in here.values()):
        return None
    end = holding[majority - 1].end
    names = ", ".join(each.log.node for each in holding if each.end >= end)
    reason = f"a majority of the voters {sorted(voters)} hold it in the newest epoch, {newest.epoch}"
    return Committed(end, f"{names}: {reason}")


def _epoch(log: KafkaLog) -> Epoch | None:
    """Return the newest epoch that a node has heard of; None if the note is missing or unreadable."""
    if not log.directory.exists(_STATE_NAME):
        return None
    try:
        epoch = json.loads(log.directory.read(_STATE_NAME, _STATE_BYTES_MAX))["leaderEpoch"]
    except (ValueError, KeyError, TypeError, OSError):
        return None
    return epoch if isinstance(epoch, int) else None
