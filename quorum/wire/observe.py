"""What a running controller shows of itself without being asked by an operator: log lines, health, metrics.

All of it is read from the node's status, which costs microseconds. Changes are looked for a few times a second.
"""

import asyncio
from collections.abc import Sequence

from metadata_log.format.ids import NodeId
from quorum.core.roles import Role
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import DiskStatus, NodeStatus
from quorum.wire.role_lines import RoleLines
from service_kit.process.logs import Logs, get_logger
from service_kit.process.metrics import Metrics
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


def add_turn_metrics(metrics: Metrics, buckets_us: Sequence[int], turns: Sequence[int]) -> None:
    """How long turns are: of this process's own work, whatever else the machine does meanwhile."""
    metrics.gauge_of("turns", "Turns so far", lambda: sum(turns))
    for index, limit_us in enumerate(buckets_us):
        what = f"Turns that took more than {limit_us / 1_000:g} ms of work"
        metrics.gauge_of(f"turns_over_{limit_us}_us", what, lambda index=index: sum(turns[index + 1 :]))  # type: ignore[misc]


def add_metrics(metrics: Metrics, node: ControllerNode) -> None:
    """Kafka's raft and controller metrics, read when the page is asked for. NaN where this node does not know."""

    def number(value: int | None) -> float:
        return float("nan") if value is None else float(value)

    metrics.gauge_of("current_epoch", "The epoch that this node is in", lambda: node.status().epoch)
    metrics.gauge_of("current_leader", "The leader's node id", lambda: number(node.status().leader.leader_id))
    metrics.gauge_of("active_controller", "1 where this node is active", lambda: float(node.status().is_active))
    metrics.gauge_of("high_watermark", "All below is committed", lambda: number(node.status().high_watermark))
    metrics.gauge_of("log_start_offset", "The first offset in the log", lambda: node.status().log_start_offset)
    metrics.gauge_of("log_end_offset", "One past the last record", lambda: node.status().log_end_offset)
    metrics.gauge_of("flushed_end_offset", "All below is durable here", lambda: node.status().flushed_end_offset)
    metrics.gauge_of("last_applied_offset", "All below is in the image", lambda: node.status().applied_offset)
    metrics.gauge_of("damage_found", "Damaged places that were found", lambda: node.status().disk.damage_found)
    metrics.gauge_of("damage_mended", "Damaged ranges that were mended", lambda: node.status().disk.damage_mended)
    metrics.gauge_of("damaged_records", "Records missing in the log now", lambda: node.status().disk.damaged_records)
    metrics.gauge_of("scrubbed_bytes", "Read again and found intact", lambda: node.status().disk.scrubbed_bytes)
    metrics.gauge_of("disk_full", "1 while there is no room to go on", lambda: float(node.status().disk.is_full))
    metrics.gauge_of("failed_decisions", "Decisions that a mistake ended", lambda: node.status().failed_decisions)
