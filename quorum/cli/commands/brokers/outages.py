"""Partitions without a leader: those that a fence would cause, and those that a drained broker leaves.

Example. Broker 101 leads orders-0 and orders-1. The ISR of orders-0 is 101 and 102, the ISR of orders-1 is 101 alone.

    fence 101     orders-0 is led by broker 102. orders-1 would have no leader: the command asks before the fence
    drain 101     orders-0 is led by broker 102. Broker 101 still leads orders-1, until another replica is in sync
    101 is killed, and then drained      broker 101 leads nothing, but orders-1 has no leader: broker 101 is not drained
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.wire.words import state_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

NAMED_MAX: Final = 5
"""Maximum number of partitions that a line names."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Partitions without a leader: how many, and the names of the first few."""

    count: int = 0
    first: tuple[str, ...] = ()

    def with_one(self, listing: admin_pb2.PartitionListing) -> Outage:
        """Adds a partition."""
        name = f"{listing.topic}-{listing.partition.partition}"
        return Outage(self.count + 1, self.first if len(self.first) == NAMED_MAX else (*self.first, name))

    def with_all(self, other: Outage) -> Outage:
        """Adds the partitions of another outage."""
        return Outage(self.count + other.count, (*self.first, *other.first)[:NAMED_MAX])

    def text(self, would_have: str) -> str:
        """For example `2 partitions have no leader (orders-0, orders-1)`, where `would_have` is `have`."""
        verb = "has" if self.count == 1 and would_have == "have" else would_have
        more = f" and {self.count - len(self.first):,} more" if self.count > len(self.first) else ""
        noun = "partition" if self.count == 1 else "partitions"
        return f"{self.count:,} {noun} {verb} no leader ({', '.join(self.first)}{more})"


async def of_fence(client: AdminClient, brokers: Collection[admin_pb2.BrokerListing], fenced: frozenset[int]) -> Outage:
    """The partitions that would have no leader without a loss if these brokers were fenced together."""
    able = others_in_work(brokers, fenced, modes=("", "maintenance"))
    outage = Outage()
    for broker in brokers:
        if broker.broker_id not in fenced or not broker.led_partitions:
            continue
        async for listing in client.partitions(led_by=broker.broker_id):
            partition = listing.partition
            if not able.difference(partition.offline_replicas).intersection((*partition.isr, *partition.elr)):
                outage = outage.with_one(listing)
    return outage


async def of_drained(client: AdminClient, broker_id: int) -> Outage:
    """The partitions that have no leader and wait for this broker, because it is in their ISR or in their ELR."""
    from metaquorum import admin_pb2

    outage = Outage()
    async for listing in client.partitions(admin_pb2.UNAVAILABLE, replica_on=broker_id):
        partition = listing.partition
        if broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr):
            outage = outage.with_one(listing)
    return outage


def others_in_work(
    brokers: Collection[admin_pb2.BrokerListing], without: frozenset[int], modes: tuple[str, ...] = ("",)
) -> frozenset[int]:
    """The other brokers that are online and in one of these modes."""
    return frozenset(
        broker.broker_id
        for broker in brokers
        if broker.broker_id not in without and broker.mode in modes and state_text(broker.state) == "online"
    )


def confirm_fence(outage: Outage) -> None:
    """Asks the operator before partitions lose their leader. Without a terminal nobody can answer: the command is refused."""
    if not outage.count:
        return
    text = f"{outage.text('would have')}: no other replica in sync is online"
    if not sys.stdin.isatty():
        raise CliError(f"{text}; nobody can be asked here; nothing was done: add --yes", EXIT_USAGE)
    if not click.confirm(f"{text}. Fence all the same?", err=True):
        raise CliError("nothing was done")
