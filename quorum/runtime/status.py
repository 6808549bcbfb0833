"""A node as it is now, for people and tools; leader or not, and without asking anybody."""

from collections.abc import Mapping

from metadata_log.format.ids import NodeId, ReplicaKey
from metadata_log.format.records import Endpoint
from quorum.core.protocol.disk_trust import DiskTrust
from quorum.core.protocol.progress import ReplicaStatus
from quorum.runtime.node import Node
from quorum.runtime.protocol.requests import NodeStatus, ReplicaView


def node_status(node: Node, now_ms: int) -> NodeStatus:
    """What `node` knows of itself and, where it leads, of the others. Ages are milliseconds; None where unknown."""
    core, shape = node.core, node.log.shape
    followed = core.followed(now_ms)
    return NodeStatus(
        cluster_id=node.identity.cluster_id,
        node_id=node.me.node_id,
        directory_id=node.me.directory_id,
        role=core.role.value,
        epoch=core.epoch,
        leader=node.addresses.leader_hint(now_ms),
        is_active=node.active.on,
        high_watermark=core.high_watermark,
        log_start_offset=shape.start.offset,
        log_end_offset=shape.end,
        flushed_end_offset=shape.flushed_end,
        applied_offset=node.state.applied,
        chain=shape.chain,
        digest=node.state.committed.digest_bytes,
        snapshot=shape.snapshot,
        replicas=_replicas(node, followed.leader_id, now_ms),
        disk=node.disk.status(),
        generation=node.identity.generation,
        bootstrap=node.bootstrap,
        concern=_concern(node, now_ms),
        hindrance=_hindrance(node),
        no_leader_reason=followed.reason,
        no_leader_for_ms=None if followed.leader_id is not None else max(0, now_ms - followed.since_ms),
        failed_decisions=node.active.accidents.count,
    )


def _concern(node: Node, now_ms: int) -> str:
    """What is wrong with this node, or between it and another, in a line; empty while nothing is known to be."""
    standing, differing = node.core.disk_trust, node.state.digests.differing()
    only_full = node.disk.space.is_short and not node.log.damage
    images = f"images differ: that of {differing} is not this one's" if differing else ""
    return _line(
        _log(standing._replace(damaged=False) if only_full else standing),
        _full(node),
        node.core.stall,
        node.core.complaint,
        node.state.stopped,
        images,
        node.active.accidents.concern(now_ms),
    )


def _hindrance(node: Node) -> str:
    """What of it keeps the node from doing its part.

    Damage inside the log does not: the node votes, acknowledges and serves, and lets others lead.
    """
    return _line(_log(DiskTrust(lost=node.core.disk_trust.lost)), _full(node), node.core.stall, node.state.stopped)


def _line(*known: str | None) -> str:
    return "; ".join(text for text in known if text)


def _log(standing: DiskTrust) -> str:
    return f"the log is {standing}" if str(standing) else ""


def _full(node: Node) -> str:
    return "the disk is full" if node.disk.space.is_short else ""


def _replicas(node: Node, leader_id: NodeId | None, now_ms: int) -> tuple[ReplicaView, ...]:
    """The voters, of whom every node knows, then the observers, of whom only the leader does."""
    core = node.core
    known = {ReplicaKey(replica.node_id, replica.directory_id): replica for replica in core.replicas()}
    reached = node.addresses.endpoints()
    endpoints = {key: reached.get(key.node_id) for key in core.voters.keys}
    observers = [key for key in known if key not in endpoints]
    return tuple(
        _view(node, key, endpoints.get(key), known.get(key), now_ms, _standing(node, key, leader_id, known, now_ms))
        for key in (*endpoints, *observers)
    )


def _standing(
    node: Node,
    key: ReplicaKey,
    leader_id: NodeId | None,
    known: Mapping[ReplicaKey, ReplicaStatus],
    now_ms: int,
) -> str:
    """What that replica is to the best of this node's knowledge. Only a leader knows of others than itself and the leader.

    `silent`: a voter that the leader has not heard for as long as it gives its quorum; a new leader waits that long first.
    """
    if key.node_id == leader_id:
        return "leader"
    if key == node.me:
        return "unconfirmed" if node.core.is_leading else node.core.role.value
    replica = known.get(key)
    if replica is None:
        return "unknown"
    if not replica.is_voter:
        return "observer"
    return "silent" if now_ms >= replica.silent_at_ms else "follower"


def _view(
    node: Node, key: ReplicaKey, endpoint: Endpoint | None, replica: ReplicaStatus | None, now_ms: int, standing: str
) -> ReplicaView:
    end = node.log.shape.end if key == node.me else replica.log_end_offset if replica else None
    return ReplicaView(
        node_id=key.node_id,
        directory_id=key.directory_id,
        endpoint=endpoint,
        is_voter=key in node.core.voters.keys,
        status=standing,
        log_end_offset=end,
        last_fetch_age_ms=_age_ms(replica.last_fetch_ms, now_ms) if replica else None,
        last_caught_up_age_ms=_age_ms(replica.last_caught_up_ms, now_ms) if replica else None,
        lag=replica.lag if replica else None,
        behind_for_ms=_age_ms(replica.behind_since_ms, now_ms) if replica else None,
    )


def _age_ms(then_ms: int | None, now_ms: int) -> int | None:
    return None if then_ms is None else now_ms - then_ms
