"""A node as it is now, for people and tools; leader or not, and without asking anybody."""

from quorum.runtime.node import Node
from quorum.runtime.requests import NodeStatus, ReplicaView


def node_status(node: Node, now_ms: int) -> NodeStatus:
    """What `node` knows of itself and, where it leads, of the others. Ages are milliseconds; None where unknown."""
    core, shape = node.core, node.log.shape
    return NodeStatus(
        cluster_id=node.identity.cluster_id,
        node_id=node.me.node_id,
        directory_id=node.me.directory_id,
        role=core.role.value,
        epoch=core.epoch,
        leader=node.leader_hint(),
        is_active=node.active.on,
        high_watermark=core.high_watermark,
        log_start_offset=shape.start.offset,
        log_end_offset=shape.end,
        flushed_end_offset=shape.flushed_end,
        applied_offset=node.state.applied,
        chain=shape.chain,
        digest=node.state.committed.digest_bytes,
        snapshot=shape.snapshot,
        replicas=_replicas(node, now_ms),
    )


def _replicas(node: Node, now_ms: int) -> tuple[ReplicaView, ...]:
    core = node.core
    known = {(replica.node_id, replica.directory_id): replica for replica in core.replicas()}
    views: list[ReplicaView] = []
    for voter in core.voters.voters:
        replica = known.pop((voter.node_id, voter.directory_id), None)
        is_me = voter.node_id == node.me.node_id
        views.append(
            ReplicaView(
                node_id=voter.node_id,
                directory_id=voter.directory_id,
                endpoint=voter.endpoints[0] if voter.endpoints else None,
                is_voter=True,
                status="leader" if voter.node_id == core.leader_id else "follower",
                log_end_offset=node.log.shape.end if is_me else replica.log_end_offset if replica else None,
                last_fetch_age_ms=_age_ms(replica.last_fetch_ms, now_ms) if replica else None,
                last_caught_up_age_ms=_age_ms(replica.last_caught_up_ms, now_ms) if replica else None,
            )
        )
    for replica in known.values():
        views.append(
            ReplicaView(
                node_id=replica.node_id,
                directory_id=replica.directory_id,
                endpoint=None,
                is_voter=False,
                status="observer",
                log_end_offset=replica.log_end_offset,
                last_fetch_age_ms=_age_ms(replica.last_fetch_ms, now_ms),
                last_caught_up_age_ms=_age_ms(replica.last_caught_up_ms, now_ms),
            )
        )
    return tuple(views)


def _age_ms(then_ms: int | None, now_ms: int) -> int | None:
    return None if then_ms is None else now_ms - then_ms
