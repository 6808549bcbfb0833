"""Bugs of the placement of new partitions."""

import random
from collections.abc import Iterable

from metadata_log.format.ids import NodeId
from quorum.controller.partitions.placement import Placer, UsableBroker
from tests.sim.mutants.patching import Mutant, patched

_make, _place = Placer.__init__, Placer.place


def _in_no_rack(self: Placer, brokers: Iterable[UsableBroker], rng: random.Random) -> None:
    _make(self, [broker._replace(rack=None) for broker in brokers], rng)


def _on_online_brokers(self: Placer, partition_count: int, replication_factor: int) -> list[tuple[NodeId, ...]]:
    return _place(self, partition_count, min(replication_factor, self.online_count))


PLACEMENT: dict[str, Mutant] = {
    "racks-ignored": Mutant(
        "replicas are placed as if all brokers were in one rack",
        lambda: patched(Placer, "__init__", _in_no_rack),
    ),
    "fewer-replicas-while-fenced": Mutant(
        "a partition gets no more replicas than there are online brokers",
        lambda: patched(Placer, "place", _on_online_brokers),
    ),
}
