"""The metrics of a broker with records: what came in and went out, and the state of its replicas."""

import re
from pathlib import Path

from broker_agent.data_plane.metric_table import PARTITION_METRICS, add_partition_metrics
from broker_agent.data_plane.tallies import counted
from broker_agent.metric_table import BROKER_METRICS
from broker_agent.replica.fetch_sessions import SessionAnswer
from broker_agent.replica.follower import PartitionAnswer
from metadata_log.format.records import PartitionChange
from service_kit.process.metrics import Metrics
from tests.broker_agent.data_plane.hosted import ME, ORDERS, OTHER, append_of, fetch_of, hosted, orders
from tests.broker_agent.partitions.brokers import Broker, assigned, place
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


async def test_the_lag_is_that_of_the_replica_that_lacks_most() -> None:
    """The leader has committed 7 records of orders-0 and 3 of orders-1, and this broker has none of them: the lag is 7. A replica
    whose end is the high watermark does not lag."""
    follower = Broker(102)
    follower.assign(*[assigned(102, 101, at=place(number)) for number in (0, 1)])
    follower.run()
    for high_watermarks in ({0: 0}, {0: 7, 1: 3}):
        (sent,) = follower.fetches
        follower.fetches = []
        told = tuple((place(at), PartitionAnswer(high_watermark=high)) for at, high in high_watermarks.items())
        follower.take(follower.manager.fetch_answered(sent, SessionAnswer(answers=told), 0, 0))
        lag = (await counted(follower.manager)).lag_max
        assert lag == max(high_watermarks.values())


def test_the_names_are_as_prometheus_wants_them() -> None:
    """And no name is that of another table of the same page."""
    assert list(complaints(PARTITION_METRICS)) == []
    names = {row.name for row in PARTITION_METRICS}
    assert len(names) == len(PARTITION_METRICS)
    assert not names & {row.name for row in BROKER_METRICS}
