"""Death certificates of real processes: what is known to be dead is fenced at once, and nothing else is."""

import fcntl
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from broker_agent.death.process_note import SERVING_LOCK_NAME
from quorum.devcluster.layout import DevNode
from tests.processes.conftest import CONTROLLER_SETTINGS, Cluster, run, running, said, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SESSION_MS = 6_000
SETTINGS = {**CONTROLLER_SETTINGS, "broker.session.timeout.ms": str(SESSION_MS)}


async def fencings(cluster: Cluster, *broker_ids: int) -> dict[int, dict[str, Any]]:
    """The log line of each broker's fencing, once all are there."""

    async def probe() -> dict[int, dict[str, Any]] | None:
        lines = [line for node in cluster.controllers.values() for line in said(node)]
        found = {line["broker_id"]: line for line in lines if line["event"] == "broker fenced"}
        return found if set(broker_ids) <= set(found) else None

    return await until(probe, 4 * SESSION_MS / 1_000)


def events(node: DevNode) -> set[str]:
    return {line["event"] for line in said(node)}


async def test_a_killed_broker_is_fenced_at_once_and_a_doubtful_one_after_its_session(tmp_path: Path) -> None:
    """101 is killed: the watcher reports it. 102 is killed beside a data plane that lives on, and 103 is stopped: both may still
    serve, so their sessions have to end."""
    async with running(tmp_path / "cluster", controller_settings=SETTINGS) as cluster:
        await cluster.client.create_topic("orders", partitions=30, replication_factor=3)
        data_plane = os.open(cluster.brokers[102].data_directory / SERVING_LOCK_NAME, os.O_RDWR | os.O_CREAT)
        fcntl.flock(data_plane, fcntl.LOCK_SH)
        try:
            await cluster.ends(cluster.brokers[102])
            cluster.dev.kill("broker-103", signal.SIGSTOP)
            await cluster.ends(cluster.brokers[101])
            fenced = await fencings(cluster, 101, 102, 103)
        finally:
            os.close(data_plane)

        assert fenced[101]["why"] == "process_dead"
        assert fenced[102]["why"] == fenced[103]["why"] == "session_ended"
        assert fenced[101]["offset"] < min(fenced[102]["offset"], fenced[103]["offset"]), "long before a session's end"
        assert "death reported" in events(cluster.brokers[101])
        assert "death reported" not in events(cluster.brokers[102]) | events(cluster.brokers[103])

        again = run("broker_agent", "report-death", "--config", str(cluster.brokers[101].config_path))
        assert again.returncode == 0 and "death reported" in again.stderr, again
        cluster.dev.start("broker-101")
        await cluster.online(101)
        stale = run("broker_agent", "report-death", "--config", str(cluster.brokers[101].config_path))
        assert stale.returncode == 1 and "no death certificate" in stale.stderr, stale
