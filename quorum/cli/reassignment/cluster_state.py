"""The brokers and partitions of a cluster, as the planner wants them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from quorum.cli.errors import EXIT_NOT_FOUND, CliError
from quorum.cli.reassignment.ongoing import inactive_among
from quorum.controller.partitions.reassignment.rebalancing import (
    Assignments,
    Impossible,
    Place,
    PlannedBroker,
    Replicas,
    plan,
)

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_NAMES_MAX = 1_000
"""Maximum number of topics in one request."""


class ClusterState(NamedTuple):
    """The brokers, and the replicas that each partition has, or shall have after a reassignment in progress."""

    brokers: tuple[PlannedBroker, ...]
    partitions: dict[Place, Replicas]
    moves: dict[Place, frozenset[int]]
    """The partitions in reassignment, each with the brokers that lose or get a replica."""
    inactive: dict[int, str]
    """The state of each broker that is not online."""

    def moves_of(self, broker_ids: Set[int]) -> set[Place]:
        """Returns the partitions that are moving off or onto one of these brokers; without a broker, all that are moving."""
        return {place for place, ids in self.moves.items() if not broker_ids or ids & broker_ids}


async def load(
    client: AdminClient, topics: Sequence[str] | None = None, *, may_be_absent: bool = False
) -> ClusterState:
    """Asks for the brokers, and for the partitions of some topics; None: of all.

    Raises AdminError for a topic in `topics` that does not exist, unless `may_be_absent`.
    """
    from metaquorum import AdminError

    listed = [each async for each in client.brokers()]
    names = [topic.name async for topic in client.topics()] if topics is None else list(dict.fromkeys(topics))
    partitions: dict[Place, Replicas] = {}
    moves: dict[Place, frozenset[int]] = {}
    for first in range(0, len(names), _NAMES_MAX):
        async for topic in client.described_topics(names[first : first + _NAMES_MAX]):
            if topic.error.code and topics is not None and not may_be_absent:
                raise AdminError.of(topic.error)
            for each in topic.partitions:
                target = tuple([broker for broker in each.replicas if broker not in each.removing_replicas])
                partitions[topic.name, each.partition] = target
                if moved := frozenset((*each.adding_replicas, *each.removing_replicas)):
                    moves[topic.name, each.partition] = moved
    return ClusterState(tuple(map(_planned_broker, listed)), partitions, moves, inactive_among(listed))


def _planned_broker(broker: admin_pb2.BrokerListing) -> PlannedBroker:
    from quorum_rpc.v1 import broker_pb2

    is_usable = broker.state == broker_pb2.ONLINE and not broker.mode
    return PlannedBroker(broker.broker_id, broker.rack if broker.HasField("rack") else None, is_usable)


def planned(cluster: ClusterState, *, off: Set[int], onto: Set[int]) -> dict[Place, Replicas]:
    """Returns the plan. Raises CliError if a broker is unknown or cannot get replicas, or if there is no plan."""
    known = {broker.broker_id: broker for broker in cluster.brokers}
    for broker_id in sorted(onto):
        if broker_id not in known:
            raise CliError(f"broker {broker_id} is not registered; nothing was changed", EXIT_NOT_FOUND)
        if not known[broker_id].is_usable:
            text = f"broker {broker_id} is not online, or has a mode, so it gets no replicas"
            raise CliError(f"{text}; nothing was changed: start it, or end its mode")
    try:
        return plan(cluster.brokers, cluster.partitions, off=off, onto=onto)
    except Impossible as e:
        raise CliError(f"there is no such plan: {e}; nothing was changed: add a broker, or name more") from e


def broker_lines(cluster: ClusterState, plan: Assignments) -> list[str]:
    """One line for each broker whose replicas or preferred leaderships change."""
    after = {**cluster.partitions, **plan}
    held, led = _counts(cluster.partitions)
    held_after, led_after = _counts(after)
    ids = sorted({broker.broker_id for broker in cluster.brokers} | held.keys())
    return [
        f"broker {each}: {held[each]} -> {held_after[each]} replicas, preferred leader of {led[each]} -> {led_after[each]}"
        for each in ids
        if (held[each], led[each]) != (held_after[each], led_after[each])
    ]


def _counts(partitions: Assignments) -> tuple[Counter[int], Counter[int]]:
    held = Counter(each for replicas in partitions.values() for each in replicas)
    return held, Counter(replicas[0] for replicas in partitions.values())


def replica_moves(cluster: ClusterState, plan: Assignments) -> int:
    """How many replicas have to be copied."""
    return sum(len(set(replicas) - set(cluster.partitions[place])) for place, replicas in plan.items())
