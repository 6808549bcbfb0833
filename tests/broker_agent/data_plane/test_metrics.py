"""The metrics of a broker with records: what came in and went out, and the state of its replicas."""

import re
from pathlib import Path

from broker_agent.data_plane.metric_table import PARTITION_METRICS, add_partition_metrics
from broker_agent.data_plane.tallies import counted
from broker_agent.metric_table import BROKER_METRICS
from metadata_log.format.records import PartitionChange
from service_kit.process.metrics import Metrics
from tests.broker_agent.data_plane.hosted import ME, ORDERS, OTHER, append_of, fetch_of, hosted, orders
from tests.service_kit.prometheus_rules import complaints, promtool


async def test_the_page_tells_what_the_broker_did(tmp_path: Path) -> None:
    """Two records in, one of them out; three replicas, of which one is led and one lacks an in-sync replica."""
    async with hosted(tmp_path) as broker:
        await broker.write(*orders(3))
        await broker.leads(0, 1, 2)
        await broker.write(PartitionChange(ORDERS, 0, isr=(ME,)), PartitionChange(ORDERS, 2, leader=OTHER))
        await broker.stub.Append(append_of(0, 1, acks=1))
        await broker.stub.FetchRecords(fetch_of())
        broker.data_plane.tallies.counts = await counted(broker.data_plane.manager)
        metrics = Metrics()
        add_partition_metrics(metrics, broker.data_plane)
        page = metrics.page().decode()

    shown = dict(re.findall(r"^metaquorum_(\w+) (\S+)$", page, re.MULTILINE))
    assert shown["replicas"] == "3.0"
    assert shown["leader_replicas"] == "2.0"
    assert shown["led_under_replicated_partitions"] == "1.0"
    assert shown["records_in_total"] == "2.0"
    assert float(shown["records_out_bytes_total"]) > 0
    assert float(shown["replica_log_bytes"]) > 0
    assert float(shown["replication_in_bytes_total"]) == 0
    assert promtool(page.encode()) == ""


def test_the_names_are_as_prometheus_wants_them() -> None:
    """And no name is that of another table of the same page."""
    assert list(complaints(PARTITION_METRICS)) == []
    names = {row.name for row in PARTITION_METRICS}
    assert len(names) == len(PARTITION_METRICS)
    assert not names & {row.name for row in BROKER_METRICS}
