"""What a running controller shows of itself without being asked by an operator: log lines and health.

All of it is read from the node's status, which costs microseconds. Changes are looked for a few times a second.
"""

import asyncio

from metadata_log.format.ids import NodeId
from quorum.core.roles import Role
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import DiskStatus, NodeStatus
from quorum.wire.role_lines import RoleLines
from service_kit.process.logs import Logs, get_logger
from service_kit.process.notify import notify
from service_kit.rpc.health import ADMIN, LIVE, QUORUM, Health

log = get_logger(__name__)

LOOK_INTERVAL_S = 0.2


async def watch(
    node: ControllerNode, health: Health, logs: Logs | None = None, interval_s: float = LOOK_INTERVAL_S
) -> None:
    """Until it is cancelled: keeps `health` true, and logs each concern, each change of the leader that is followed, and, on
    the leader, which voter falls silent.

    Each change of role is logged as it happens, also after this has ended, while the node hands over what it leads.
    """
    node.on_transition(RoleLines(logs).tell)
    before: tuple[object, ...] = ()
    was_ready = False
    concern = ""
    disk = DiskStatus()
    silent: frozenset[NodeId] = frozenset()
    await health.set(LIVE, None)
    while True:
        status = node.status()
        now = (status.role, status.epoch, status.leader.leader_id)
        if now != before:
            if now[2:] != before[2:]:
                reason = {"reason": status.no_leader_reason} if status.leader.leader_id is None else {}
                log.info("leader", leader_id=status.leader.leader_id, **reason)
            before = now
            if logs is not None:
                logs.bind(role=status.role, epoch=status.epoch)
            notify(f"STATUS={status.role} in epoch {status.epoch}, leader {status.leader.leader_id}")
        if status.concern != concern:
            concern = status.concern
            log.error("concern", reason=concern or "over")
        disk = _tell_of_disk(disk, status.disk)
        silent = _tell_of_voters(silent, status)
        trouble = trouble_of(status)
        await health.set(QUORUM, status.hindrance or trouble)  # who is hindered soon knows no leader, either
        await health.set(ADMIN, trouble)
        if trouble is None and not was_ready:
            was_ready = True
            notify("READY=1")
        await asyncio.sleep(interval_s)


def _tell_of_voters(before: frozenset[NodeId], status: NodeStatus) -> frozenset[NodeId]:
    """As leader, a line for each voter that falls silent, and one when it is heard again. Nobody else hears the voters."""
    if status.role != Role.LEADER.value:
        return frozenset()
    silent = frozenset(each.node_id for each in status.replicas if each.status == "silent")
    for node_id in sorted(silent - before):
        log.warning("voter silent", voter_id=node_id)
    for node_id in sorted(before - silent):
        log.info("voter heard again", voter_id=node_id)
    return silent


def _tell_of_disk(before: DiskStatus, now: DiskStatus) -> DiskStatus:
    """A line for damage that was found, and one for what was mended."""
    if now.damage_found > before.damage_found:
        log.error("damage found", what=now.last_damage, damaged_records=now.damaged_records)
    if now.damage_mended > before.damage_mended:
        log.info("damage mended", ranges=now.damage_mended, damaged_records=now.damaged_records)
    if now.is_full is not before.is_full:
        log.error("disk full", reason="no room to go on") if now.is_full else log.info("disk has room again")
    return now


def trouble_of(status: NodeStatus) -> str | None:
    """Why this node has nobody to follow, or to ask for others; None if it has."""
    if status.leader.leader_id is None:
        return status.no_leader_reason or "no leader is known"
    if status.high_watermark is None:
        return "the high watermark is not known yet"
    return None
