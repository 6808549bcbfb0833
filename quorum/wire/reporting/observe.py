"""The log lines and the health of a running controller.

`watch` reads the node's status a few times a second, which costs microseconds, and logs what has changed.
"""

import asyncio

from metadata_log.format.ids import NodeId
from quorum.core.protocol.problem import Problem, texts
from quorum.core.roles import Role
from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import DiskStatus, NodeStatus
from quorum.wire.reporting.happening_lines import HappeningLines
from quorum.wire.reporting.role_lines import RoleLines
from service_kit.process.logs import Logs, get_logger
from service_kit.process.notify import notify
from service_kit.rpc.health import ADMIN, LIVE, QUORUM, Health

log = get_logger(__name__)

LOOK_INTERVAL_S = 0.2


async def watch(
    node: ControllerNode, health: Health, logs: Logs | None = None, interval_s: float = LOOK_INTERVAL_S
) -> None:
    """Keeps `health` true, and logs problems, changes of the leader, and silent voters, until it is cancelled.

    Each change of role and each happening is logged at once, and still after `watch` was cancelled, while a leader hands over.
    """
    node.on_transition(RoleLines(logs).tell)
    happening_lines = HappeningLines()
    node.on_happening(happening_lines.tell)
    before: tuple[object, ...] = ()
    was_ready = False
    problems: tuple[Problem, ...] = ()
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
        happening_lines.look()
        problems = _tell_of_problems(problems, status.problems)
        disk = _tell_of_disk(disk, status.disk)
        silent = _tell_of_voters(silent, status)
        without_leader = why_without_leader(status)
        blocking = texts(each for each in status.problems if each.blocks_ready)
        await health.set(
            QUORUM, blocking or without_leader
        )  # a node with such a problem soon follows no leader, either
        await health.set(ADMIN, without_leader)
        if without_leader is None and not was_ready:
            was_ready = True
            notify("READY=1")
        await asyncio.sleep(interval_s)


def _tell_of_problems(before: tuple[Problem, ...], now: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Logs each problem that is new or has a new text, and each solved problem."""
    for problem in now:
        if problem not in before:
            log.error("problem", code=problem.code.value, text=problem.text)
    still = {problem.code for problem in now}
    for problem in before:
        if problem.code not in still:
            log.info("problem solved", code=problem.code.value, text=problem.text)
    return now


def _tell_of_voters(before: frozenset[NodeId], status: NodeStatus) -> frozenset[NodeId]:
    """Logs, on the leader, each voter that has become silent, and each silent voter that fetches again."""
    if status.role != Role.LEADER.value:
        return frozenset()
    silent = frozenset(each.node_id for each in status.replicas if each.status == "silent")
    for node_id in sorted(silent - before):
        log.warning("voter silent", voter_id=node_id)
    for node_id in sorted(before - silent):
        log.info("voter heard again", voter_id=node_id)
    return silent


def _tell_of_disk(before: DiskStatus, now: DiskStatus) -> DiskStatus:
    """Logs damage that was found, and damage that was repaired. (A full disk is a problem.)"""
    if now.damage_found > before.damage_found:
        log.error("damage found", what=now.last_damage, damaged_records=now.damaged_records)
    if now.damage_mended > before.damage_mended:
        mended = now.damage_mended - before.damage_mended
        log.info("damage mended", ranges=mended, damaged_records=now.damaged_records)
    return now


def why_without_leader(status: NodeStatus) -> str | None:
    """Returns the reason why this node has no leader or no high watermark; None if the node has both."""
    if status.leader.leader_id is None:
        return status.no_leader_reason or "no leader is known"
    if status.high_watermark is None:
        return "the high watermark is not known yet"
    return None
