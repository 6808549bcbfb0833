"""A cluster that begins with the metadata of a real Apache Kafka serves what Kafka's own log says."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from clients.admin import AdminClient
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.ids import parse_uuid
from metadata_log.format.records import ELR_VERSION, METADATA_VERSION, METADATA_VERSION_MAX
from quorum.devcluster import layout as layouts
from quorum.devcluster.cluster import DevCluster
from quorum.runtime.disk.format_directory import InitialController, format_directory
from snapshots.offline.kafka.importing import Imported, import_log
from snapshots.offline.kafka.log_files import find_kafka_log
from tests.snapshots.kafka.given import LOGS, nodes, unpack
from tests.snapshots.kafka.twin import Twin, twin_of

pytestmark = [pytest.mark.processes, pytest.mark.slow]

BROKER = 3


@asynccontextmanager
async def begun_with(path: Path, tmp_path: Path, *, with_broker: bool = False) -> AsyncIterator[DevCluster]:
    """Run a controller, and broker 3 if it is wanted, that begin with the import at `path`."""
    layout = layouts.plan(tmp_path / "cluster", 1, int(with_broker))
    brokers = (
        each._replace(node_id=BROKER, name=f"broker-{BROKER}", directory=layout.directory / f"broker-{BROKER}")
        for each in layout.brokers
    )
    layout = layout._replace(nodes=(*layout.controllers, *brokers), settings={"broker": {"broker.data.plane": "none"}})
    layout.directory.mkdir()
    layouts.write(layout)
    (node,) = layout.controllers
    shutil.rmtree(node.data_directory)
    voter = InitialController(node.node_id, layouts.HOST, node.port, parse_uuid(node.directory_id))
    format_directory(
        node.data_directory, cluster_id=layout.cluster_id, node_id=node.node_id, role="controller", controllers=(voter,),
        snapshot=path,
    )  # fmt: skip
    cluster = DevCluster(layout)
    await cluster.up()
    try:
        yield cluster
    finally:
        await cluster.down()


def imported(name: str, tmp_path: Path) -> tuple[Imported, Twin]:
    directory = unpack(name, nodes(name)[0], tmp_path)
    result = import_log(find_kafka_log(LocalDirectory(directory)), RealDirectory(tmp_path / "import"))
    return result, twin_of(directory)


@pytest.mark.parametrize("name", LOGS)
async def test_the_cluster_serves_what_kafkas_log_says(name: str, tmp_path: Path) -> None:
    result, kafka = imported(name, tmp_path)
    async with begun_with(Path(result.path), tmp_path) as cluster, cluster.client() as client:
        await _check_topics(client, kafka)
        await _check_configs(client, kafka)
        await _check_rights(client, kafka)
        found = {each.name: each.finalized_level for each in (await client.describe_features()).features}
        assert found[METADATA_VERSION] == METADATA_VERSION_MAX
        assert found[ELR_VERSION] == kafka.features.get(ELR_VERSION, 0)
        assert [each async for each in client.brokers()] == []
        created = await client.create_topics([admin_pb2.NewTopic(name="new", partitions=1, replication_factor=1)])
        assert created.results[0].error.code, "no broker is online, so the new topic is refused; the cluster answers"


async def test_a_broker_comes_back_under_its_id_and_leads(tmp_path: Path) -> None:
    """Each partition that had broker 3 in its ISR has a leader again, in an epoch above all of Kafka's."""
    result, kafka = imported("elr-4.1.1", tmp_path)
    async with begun_with(Path(result.path), tmp_path, with_broker=True) as cluster, cluster.client() as client:
        async with asyncio.timeout(30):
            while True:
                found = await _partitions(client, kafka)
                wanted = {place for place, fields in kafka.partitions.items() if BROKER in fields["isr"]}
                assert wanted
                if all(found[place].HasField("leader_id") for place in wanted):
                    break
                await asyncio.sleep(0.05)
        for place, fields in kafka.partitions.items():
            if place in wanted:
                assert (found[place].leader_id, found[place].leader_epoch) == (BROKER, fields["leaderEpoch"] + 2)
            else:
                assert not found[place].HasField("leader_id")


async def _partitions(client: AdminClient, kafka: Twin) -> dict[tuple[str, int], Any]:
    names = sorted(set(kafka.topics.values()))
    topics = [each async for each in client.described_topics(names)]
    return {(topic.name, each.partition): each for topic in topics for each in topic.partitions}


async def _check_topics(client: AdminClient, kafka: Twin) -> None:
    assert {each.name: each.topic_id async for each in client.topics()} == {
        name: topic_id for topic_id, name in kafka.topics.items()
    }
    found = await _partitions(client, kafka)
    assert found.keys() == kafka.partitions.keys()
    for place, fields in kafka.partitions.items():
        each = found[place]
        assert (tuple(each.replicas), tuple(each.isr)) == (fields["replicas"], fields["isr"])
        assert not each.HasField("leader_id")
        assert each.leader_epoch == fields["leaderEpoch"] + 1
        assert each.partition_epoch == fields["partitionEpoch"] + 1
        assert tuple(each.elr) == fields["eligibleLeaderReplicas"]
        assert tuple(each.last_known_elr) == fields["lastKnownElr"]


async def _check_configs(client: AdminClient, kafka: Twin) -> None:
    resources = [*kafka.configs, *((2, name) for name in kafka.topics.values()), (4, "")]
    asked = [admin_pb2.ConfigResource(resource_type=kind, name=name) for kind, name in sorted(set(resources))]
    async for each in client.described_configs(asked):
        wanted = kafka.configs.get((each.resource.resource_type, each.resource.name), {})
        assert {config.key: config.value for config in each.configs} == wanted


async def _check_rights(client: AdminClient, kafka: Twin) -> None:
    found = {
        tuple(sorted((part.entity_type, part.name if part.HasField("name") else None) for part in each.entity.parts)): {
            value.key: value.value for value in each.values
        }
        async for each in client.client_quotas()
    }
    assert found == {entity: values for entity, values in kafka.quotas.items() if values}
    names = ("resourceType", "resourceName", "patternType", "principal", "host", "operation", "permissionType")
    acls = [each async for each in client.acls()]
    assert sorted(
        (a.resource_type, a.resource_name, a.pattern_type, a.principal, a.host, a.operation, a.permission_type)
        for a in acls
    ) == sorted(tuple(fields[name] for name in names) for fields in kafka.acls.values())
    users = {
        (user.user, credential.mechanism): credential.iterations
        async for user in client.scram_users()
        for credential in user.credentials
    }
    assert users == {key: fields["iterations"] for key, fields in kafka.scram.items()}
