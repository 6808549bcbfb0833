"""Bugs of the work that moves leaderships of brokers, by itself or for an operator."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import ISR, LEADER, REPLICAS, PartitionState
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.leadership import balancing, elections
from quorum.controller.partitions.leadership.balancing import Balancing
from quorum.controller.protocol.topic_rules import Rejected
from tests.sim.mutants.patching import Mutant, patched


def _whoever_is_preferred(state: PartitionState, view: BrokerView) -> bool:
    preferred = state[REPLICAS][0]
    return state[LEADER] != preferred and preferred in view.active


def _never_again(self: Balancing, now_ms: int) -> None:
    self.end()


def _any_active(state: PartitionState, view: BrokerView, leader: NodeId, who: str, unavailable: ErrorCode) -> None:
    if state[LEADER] == leader or leader not in view.active:
        raise Rejected(unavailable, who)


def _out_of_sync_at_once(state: PartitionState, view: BrokerView, wanted: NodeId) -> NodeId:
    for each in state[REPLICAS]:
        if each in view.active and each not in state[ISR]:
            return each
    raise Rejected(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "")


LEADERSHIPS: dict[str, Mutant] = {
    "balanced-out-of-sync": Mutant(
        "a preferred replica gets its leadership back before it is in sync",
        lambda: patched(balancing, "may_return_to_preferred", _whoever_is_preferred),
    ),
    "designated-out-of-sync": Mutant(
        "an operator's broker is elected although it is not in sync",
        lambda: patched(elections, "_check_clean", _any_active),
    ),
    "unclean-beside-a-leader": Mutant(
        "an unclean election takes a partition away from a replica that is in sync and leads",
        lambda: patched(elections, "_uncleanly_elected", _out_of_sync_at_once),
    ),
    "balanced-until-failover": Mutant(
        "only the first active controller balances leaderships",
        lambda: patched(Balancing, "begin", _never_again),
    ),
    "balanced-for-ever": Mutant(
        "after one check that found every leader in place, no leader is looked at again",
        lambda: patched(balancing, "_are_same", lambda some, others: True),
    ),
}
