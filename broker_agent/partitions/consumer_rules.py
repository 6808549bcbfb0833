"""The rules for clients that read: leader epochs, offsets, and logs that have diverged (KIP-320). Pure.

A consumer names the leader epoch that it knows, and the epoch of its last record. Example:

    1. Consumer 7 has read up to 9 from leader 101 in epoch 5. An unclean election makes 102 leader of epoch 6; its log ends at 4.
    2. Broker 102 appends records up to 12. Offset 9 is in its log, but it is another record.
    3. Consumer 7 fetches at 9 with last epoch 5: epoch 5 ends at 4 in this log, so the logs have diverged at 4.
"""

from typing import Final

from broker_agent.replica.divergence import Diverged, Refused, Valid, Verdict
from broker_agent.replica.follower import PartitionFetch
from broker_agent.replica.leader import PartitionLeader
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch

NO_EPOCH: Final = -1
"""The epoch that a client leaves out: any leader epoch, or no last record."""


def refusal_of_epoch(leader: PartitionLeader, known: Epoch | None) -> ErrorCode:
    """Compare the leader epoch that a client knows with the leader's."""
    if known is None or known == NO_EPOCH or known == leader.leader_epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if known < leader.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def judge_consumer(leader: PartitionLeader, asked: PartitionFetch) -> Verdict:
    """Judge a consumer's fetch. A valid one may be above the high watermark: then there is nothing to read yet."""
    refusal = refusal_of_epoch(leader, asked.leader_epoch)
    if refusal is not ErrorCode.NONE:
        return Refused(refusal)
    shape = leader.shape
    if asked.last_fetched_epoch != NO_EPOCH and asked.last_fetched_epoch >= shape.start.epoch:
        end = shape.end_of_epoch(asked.last_fetched_epoch)
        if end.offset < asked.offset:
            return Diverged(end)
    if not shape.start.offset <= asked.offset <= shape.end:
        return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    return Valid()
