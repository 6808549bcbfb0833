"""The snapshots on the disks of the voters, each asked for itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from quorum.wire.words import endpoint_text, time_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient


async def rows_of(client: AdminClient, status: admin_pb2.DescribeQuorumResponse) -> list[dict[str, Any]]:
    """One row per voter in `status` and snapshot; one row with the reason for a voter without an answer or without a snapshot."""
    voters = {
        voter.node_id: endpoint_text(voter.endpoint) if voter.HasField("endpoint") else None for voter in status.voters
    }
    found = await asyncio.gather(*(_of_node(client, node_id, target) for node_id, target in sorted(voters.items())))
    return [row for rows in found for row in rows]


async def _of_node(client: AdminClient, node_id: int, target: str | None) -> list[dict[str, Any]]:
    from metaquorum import AdminError

    names = ("end_offset", "epoch", "bytes", "log_time", "sha256", "error")
    nothing: dict[str, Any] = {"node_id": node_id, **dict.fromkeys(names)}
    if target is None:
        return [{**nothing, "error": "its address is not known"}]
    try:
        response = await client.list_snapshots(target)
    except AdminError as e:
        return [{**nothing, "error": " ".join(e.message.split())}]
    rows = [
        {
            **nothing,
            "end_offset": each.snapshot.end_offset,
            "epoch": each.snapshot.epoch,
            "bytes": each.size,
            "log_time": time_text(each.timestamp_ms),
            "sha256": each.sha256.hex() or None,
        }
        for each in response.snapshots
    ]
    return rows or [nothing]
