"""The status of one node as it is now, leader or not, for people and tools. Reading a status asks no other node."""

from collections.abc import Mapping

from metadata_log.format.ids import NodeId, ReplicaKey
from metadata_log.format.records import Endpoint
from quorum.core.protocol.disk_trust import DiskTrust
from quorum.core.protocol.problem import Problem, ProblemCode, found
from quorum.core.protocol.progress import ReplicaStatus
from quorum.runtime.node import Node
from quorum.runtime.protocol.requests import NodeStatus, ReplicaView


def node_status(node: Node, now_ms: int, outside: tuple[Problem, ...] = ()) -> NodeStatus:
    """The status of `node`, and the status of the other replicas if `node` leads. `outside`: problems outside of the node.

    Ages are in milliseconds. A value is None if the node does not know the value.
    """
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
        voted_for=core.voted_for,
        disk=node.disk.status(),
        generation=node.identity.generation,
        bootstrap=node.bootstrap,
        problems=(*problems_of(node, now_ms), *outside),
        no_leader_reason=followed.reason,
        no_leader_for_ms=None if followed.leader_id is not None else max(0, now_ms - followed.since_ms),
        features=tuple(node.state.committed.features.items()),
        failed_decisions=node.active.accidents.count,
    )


def problems_of(node: Node, now_ms: int) -> tuple[Problem, ...]:
    """The problems of the node, and its problems with other nodes, as of now."""
    is_full, stopped, differing = node.disk.space.is_short, node.state.stopped, node.state.digests.differing()
    stopped_code = ProblemCode.IMAGE_DIFFERS if node.has_odd_image else ProblemCode.REPLAY_STOPPED
    own = found(
        (ProblemCode.DISK_FULL, "the disk is full" if is_full else ""),
        (ProblemCode.LOG_DAMAGED, _damage(node) if node.log.damage else ""),
        (ProblemCode.LOG_END_LOST, _lost_end(node.core.disk_trust)),
        (stopped_code, stopped),
        (ProblemCode.IMAGES_DISAGREE, f"the image of {differing} differs from this node's image" if differing else ""),
        (ProblemCode.DECISION_FAILED, node.active.accidents.problem(now_ms)),
    )
    return (*own, *node.core.problems)


def _damage(node: Node) -> str:
    records = sum(each.end - each.start for each in node.log.damage)
    return f"{records:,} records of the log cannot be read; this node votes, and does not lead until they are repaired"


def _lost_end(trust: DiskTrust) -> str:
    if trust.lost is None:
        return ""
    return (
        f"the log lacks records below offset {trust.lost.end} that this node may have acknowledged; the node does not vote until "
        "its log has these records again"
    )


def _replicas(node: Node, leader_id: NodeId | None, now_ms: int) -> tuple[ReplicaView, ...]:
    """All voters, known to every node, then the observers, known to the leader only."""
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
    """The status of a replica as far as this node knows. Only a leader knows the status of other followers and observers.

    A voter is `silent` if the leader has received no fetch from the voter for the check-quorum timeout. A new leader waits for
    the whole timeout before it calls a voter silent.
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
