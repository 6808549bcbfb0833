"""Reassignments in progress, and the brokers for which they wait.

Example: partition orders-0 moves from broker 101 to broker 104, so its target is 104,102,103. Broker 102 is fenced.
    1  Broker 104 has copied all records, and is in sync.
    2  The reassignment is finished only when 102 is in sync, too. `not_in_sync` is [102], and `waits_text` names broker 102.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from quorum.wire.words import counted, state_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient


def not_in_sync(move: admin_pb2.OngoingReassignment) -> list[int]:
    """The brokers of the target that are not in sync."""
    return [each for each in move.replicas if each not in move.removing_replicas and each not in move.isr]


async def inactive_brokers(client: AdminClient) -> dict[int, str]:
    """Returns the state of each registered broker that is not online: such a broker cannot come into sync."""
    return inactive_among([each async for each in client.brokers()])


def inactive_among(brokers: Iterable[admin_pb2.BrokerListing]) -> dict[int, str]:
    """Returns the state of each of these brokers that is not online."""
    from quorum_rpc.v1 import broker_pb2

    return {each.broker_id: state_text(each.state) for each in brokers if each.state != broker_pb2.ONLINE}


def waits_text(missing: Sequence[int], inactive: Mapping[int, str]) -> str | None:
    """Names the inactive brokers among those that are not in sync; None if all are active."""
    named = [f"broker {each} ({inactive[each]})" for each in missing if each in inactive]
    return f"waits for {' and '.join(named)}" if named else None


def held_up(moves: Iterable[admin_pb2.OngoingReassignment], inactive: Mapping[int, str]) -> list[str]:
    """For each inactive broker how many partitions wait for it."""
    waiting = Counter(each for move in moves for each in not_in_sync(move) if each in inactive)
    return [
        f"{counted(count, 'partition')} wait{'s' if count == 1 else ''} for broker {each} ({inactive[each]})"
        for each, count in sorted(waiting.items())
    ]
