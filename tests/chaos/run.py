"""One run: a cluster, clients and a nemesis for some minutes; then everything is compared with everything."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import grpc
from quorum_rpc.v1 import client_pb2, client_pb2_grpc

from daemon.grpc_options import channel_options
from quorum.wire.client_errors import AdminError
from tests.chaos import history as histories
from tests.chaos import witness as witnesses
from tests.chaos.clients import KEYS, Clients, SingleAttempts
from tests.chaos.cluster import ChaosCluster
from tests.chaos.final_log import merged, read_final_log
from tests.chaos.history import Kind, Operation, Outcome
from tests.chaos.linearizability import check, topic_step
from tests.chaos.nemesis import Nemesis, schedule
from tests.chaos.witness import Witness

WELL_WITHIN_S: Final = 60.0
"""After everything is healed. Long, because the machine may be loaded; a healthy cluster needs a second or two."""
OPERATION_TIMEOUT_S: Final = 2.0
SHOWN_AROUND: Final = 14
"""Operations drawn around a violation."""


class Report(NamedTuple):
    """What a run came to. `problems` are whole texts; none means that every law held."""

    seed: int
    seconds: float
    rounds: int
    faults: Counter[str]
    outcomes: Counter[Outcome]
    restarts: int
    linearizable: bool
    lost: int
    equal: bool
    log_end: int
    problems: list[str]


async def run(
    directory: Path, seed: int, seconds: float, say: Callable[[str], None], clients: int = 6, pause_s: float = 0.03
) -> Report:
    """See the file's head. Leaves everything in `directory`."""
    dice = random.Random(f"{seed} nemesis")
    cluster = ChaosCluster.create(directory / "cluster", dice)
    worker = Clients(lambda: _client(cluster), seed, clients, pause_s)
    problems: list[str] = []
    began_s = time.monotonic()
    rounds = 0
    async with cluster.running(), _client(cluster) as observer:
        await _well(cluster, worker, observer)
        nemesis = Nemesis(cluster, lambda: _leader(observer))
        done = asyncio.Event()
        at_work = asyncio.create_task(worker.run(done))
        try:
            while time.monotonic() - began_s < seconds and not cluster.findings:
                planned = schedule(dice)
                rounds += 1
                with (directory / "schedule").open("a") as file:
                    file.write(f"{time.monotonic_ns()} round {rounds}: {'; '.join(map(str, planned.faults))}\n")
                await nemesis.carry_out(planned)
                await _well(cluster, worker, observer)
                nemesis.forgive()
                say(_progress(time.monotonic() - began_s, rounds, nemesis, worker.history))
                await asyncio.sleep(planned.calm_s)
        except NotWell as e:
            problems.append(str(e))
        finally:
            done.set()
            await at_work
            histories.save(directory / "history.jsonl", worker.history)
        if not problems:
            try:
                await _equal(cluster, observer)
            except NotWell as e:
                problems.append(str(e))
        await cluster.stop()
    problems += [str(found) for found in cluster.findings] + worker.oddities
    return _judged(directory, seed, time.monotonic() - began_s, rounds, cluster, nemesis, worker.history, problems)


class NotWell(Exception):
    """Everything was healed, and the cluster did not recover in time."""


def _client(cluster: ChaosCluster) -> SingleAttempts:
    endpoints = [node.endpoint for node in cluster.layout.controllers]
    return SingleAttempts(endpoints, cluster.layout.cluster_id, OPERATION_TIMEOUT_S)


async def _leader(observer: SingleAttempts) -> int | None:
    try:
        status = await observer.describe_quorum()
    except AdminError:
        return None
    return int(status.leader.leader_id) if status.leader.HasField("leader_id") else None


async def _well(cluster: ChaosCluster, worker: Clients, observer: SingleAttempts) -> None:
    """Until every daemon runs, a client's write is acknowledged, and each controller knows who leads."""
    deadline_s = time.monotonic() + WELL_WITHIN_S
    dice = random.Random(0)
    trouble = ""
    while time.monotonic() < deadline_s:
        down = [each.node.name for each in cluster.daemons.values() if not each.runs]
        trouble = f"not running: {', '.join(down)}" if down else ""
        if not down:
            written = await worker.operate(observer, 0, Kind.CREATE, KEYS[0], dice)
            if written.outcome in (Outcome.DONE, Outcome.EXISTS):
                trouble = await _ignorant(cluster, observer)
                if not trouble:
                    return
            else:
                trouble = str(written)
        if cluster.findings:
            return
        await asyncio.sleep(0.1)
    raise NotWell(f"not well within {WELL_WITHIN_S:g} s after everything was healed: {trouble}")


async def _ignorant(cluster: ChaosCluster, observer: SingleAttempts) -> str:
    """Which controller does not know yet who leads; empty if all know."""
    for daemon in cluster.controllers:
        try:
            status = await observer.describe_quorum(daemon.node.endpoint)
        except AdminError as e:
            return f"{daemon.node.name}: {e}"
        if not status.leader.HasField("leader_id"):
            return f"{daemon.node.name} knows no leader"
    return ""


async def _equal(cluster: ChaosCluster, observer: SingleAttempts) -> None:
    """Until all controllers and brokers stand at the same offset, with the same chain and digest."""
    deadline_s = time.monotonic() + WELL_WITHIN_S
    seen: dict[str, tuple[int, str]] = {}
    while time.monotonic() < deadline_s:
        seen = {}
        try:
            for daemon in cluster.controllers:
                status = await observer.describe_quorum(daemon.node.endpoint)
                seen[daemon.node.name] = (status.applied_offset, status.digest.hex()[:16])
            for daemon in cluster.brokers:
                seen[daemon.node.name] = await _broker(daemon.node.endpoint)
        except (AdminError, grpc.aio.AioRpcError) as e:
            seen["error"] = (0, str(e))
        if len(set(seen.values())) == 1:
            return
        await asyncio.sleep(0.2)
    raise NotWell(f"not equal within {WELL_WITHIN_S:g} s after everything was healed: {seen}")


async def _broker(endpoint: str) -> tuple[int, str]:
    async with grpc.aio.insecure_channel(endpoint, options=channel_options()) as channel:
        stub = client_pb2_grpc.ClusterMetadataServiceStub(channel)  # type: ignore[no-untyped-call]
        status = await stub.BrokerStatus(client_pb2.BrokerStatusRequest(), timeout=2.0)
        return status.applied_offset, status.digest.hex()[:16]


def _judged(
    directory: Path,
    seed: int,
    seconds: float,
    rounds: int,
    cluster: ChaosCluster,
    nemesis: Nemesis,
    history: list[Operation],
    problems: list[str],
) -> Report:
    """Every checker over what is left."""
    logs = [read_final_log(node, directory / "scratch") for node in cluster.layout.controllers]
    changes, contradictions = merged(logs)
    problems += contradictions
    witness = Witness(changes)
    for why, operation in witnesses.problems_of(history, witness):
        problems.append(f"{operation} {why}\n{_around(history, operation)}")
    linearizable = True
    for key in KEYS:
        part = [each for each in history if each.key == key]
        verdict = check(witnesses.settled(part, witness), None, topic_step)
        if not verdict.is_linearizable:
            linearizable = False
            assert verdict.blocked is not None
            text = f"{key} is not linearizable: nothing explains {verdict.blocked}"
            problems.append(f"{text}\n{_around(part, verdict.blocked)}")
    return Report(
        seed,
        seconds,
        rounds,
        nemesis.counts,
        Counter(each.outcome for each in history),
        sum(daemon.starts - 1 for daemon in cluster.daemons.values()),
        linearizable,
        len(witnesses.lost(history, witness)),
        not contradictions,
        max(log.end for log in logs),
        problems,
    )


def _around(history: list[Operation], operation: Operation) -> str:
    """The operations of the same key that were under way about then, drawn."""
    same = sorted((each for each in history if each.key == operation.key), key=lambda each: each.called_ns)
    place = next(index for index, each in enumerate(same) if each.number == operation.number)
    near = same[max(0, place - SHOWN_AROUND) : place + SHOWN_AROUND // 2]
    return histories.drawn(near, frozenset({operation.number}))


def _progress(seconds: float, rounds: int, nemesis: Nemesis, history: list[Operation]) -> str:
    counts = Counter(each.outcome for each in history)
    done = counts[Outcome.DONE] + counts[Outcome.EXISTS] + counts[Outcome.MISSING]
    return (
        f"{seconds:6.0f} s  round {rounds:3}  faults {nemesis.counts.total():4}  answered {done:6}  "
        f"failed {counts[Outcome.FAILED]:5}  unknown {counts[Outcome.UNKNOWN]:5}"
    )
