"""Bugs of the work that moves leaderships of brokers, by itself or for an operator."""

from metadata_log.format.partition_state import LEADER, REPLICAS, PartitionState
from quorum.controller.partitions import balancing
from quorum.controller.partitions.balancing import Balancing
from quorum.controller.partitions.broker_view import BrokerView
from tests.sim.mutants.patching import Mutant, patched


def _whoever_is_preferred(state: PartitionState, view: BrokerView) -> bool:
    preferred = state[REPLICAS][0]
    return state[LEADER] != preferred and preferred in view.active


def _never_again(self: Balancing, now_ms: int) -> None:
    self.end()


LEADERSHIPS: dict[str, Mutant] = {
    "balanced-out-of-sync": Mutant(
        "a preferred replica gets its leadership back before it is in sync",
        lambda: patched(balancing, "may_return_to_preferred", _whoever_is_preferred),
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
