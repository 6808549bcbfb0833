"""The runbook's rolling restart of brokers, under load: `make rolling` at the size of a test (`tests/rolling`)."""

from pathlib import Path

import pytest

from tests.processes.conftest import CONTROLLER_SETTINGS, running
from tests.rolling.load import Load
from tests.rolling.restarts import Restarts

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PARTITIONS = 12
BALANCING = {**CONTROLLER_SETTINGS, "leader.imbalance.check.interval.seconds": "1"}


async def test_brokers_restarted_in_turn_lose_no_record_and_strand_no_leadership(tmp_path: Path) -> None:
    """Three brokers, one after the other, each in order (exit code 0). No append fails, every record is read once, at its offset;
    no ISR stays short, and each broker gets back what it led, without a command."""
    async with running(tmp_path / "cluster", data_plane="partitions", controller_settings=BALANCING) as cluster:
        await cluster.client.create_topic("orders", PARTITIONS, 3, configs={"min.insync.replicas": "2"})
        before = (await cluster.client.describe_topic("orders")).partitions
        assert {101, 102, 103} == {each.leader_id for each in before}
        assert [each.leader_id for each in before] == [each.replicas[0] for each in before]
        load = Load((each.endpoint for each in cluster.brokers.values()), "orders", PARTITIONS, 100, producers=2)
        load.start()
        try:
            await load.goes_on(20)
            steps: list[str] = []
            restarts = Restarts(cluster.dev, cluster.client, steps.append)
            await restarts.brokers()
            assert len(steps) == 2 * len(cluster.brokers)
            await restarts.balanced("orders", within_s=30)
            await load.goes_on(20)
            await load.stop()
        finally:
            await load.abandon()
        assert load.notes.judge() == []
        after = (await cluster.client.describe_topic("orders")).partitions
        assert all(set(each.isr) == set(each.replicas) for each in after)
        assert [each.leader_id for each in after] == [each.leader_id for each in before]
