"""A controller that begins with a file of `quorum-offline compact` serves what the others serve."""

import asyncio
import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from metadata_log.format.ids import OffsetAndEpoch
from quorum.devcluster.cluster import DevNode
from snapshots.format import snapshot_name
from snapshots.offline.java import find_java
from tests.processes.conftest import Cluster, until
from tests.processes.installing.test_installed_snapshots import agrees, install
from tests.processes.test_slow_links import cluster_of, is_written

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(find_java() is None, reason="no Java"),
]

WRITES = (
    "topics create orders --partitions 3 --replication-factor 2",
    "topics create payments --partitions 1 --replication-factor 1",
    "topics delete payments",
    "configs set retention.ms=86400000 --topic orders",
    "labels set team=payments tier=gold --topic orders",
    "acls add --allow User:alice --operation read --resource topic:orders",
    "quotas set producer_byte_rate=1000000 --user alice --client-id web",
    "users set alice --mechanism SCRAM-SHA-256 --password-file {password}",
    "entities kinds declare shard",
    "entities put shard a/7 leader=2",
)
QUESTIONS = (
    "topics describe orders",
    "topics list",
    "configs describe --topic orders",
    "labels list",
    "acls list",
    "quotas list",
    "users list",
    "entities kinds list",
    "entities list shard",
    "partitions list --topic orders",
    "features describe",
)


def job(*words: str) -> None:
    """Run an offline job to its end."""
    command = [sys.executable, "-m", "snapshots.offline", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert ran.returncode == 0, ran


async def answers(cluster: Cluster, node: DevNode) -> dict[str, object]:
    """The answers of the node from its own image."""
    found: dict[str, object] = {}
    for question in QUESTIONS:
        ran = await cluster.quorumctl("-C", node.endpoint, "--local", "-o", "json", *question.split())
        assert ran.returncode == 0, (question, ran)
        found[question] = json.loads(ran.stdout)
    return found


async def test_a_controller_begins_with_the_compacted_file(tmp_path: Path) -> None:
    """A follower is far behind. Spark folds the copied log of another controller, from which the controllers' own file was
    removed; the quorum confirms Spark's file by its hash, and the follower answers as the leader does.
    """
    async with cluster_of(tmp_path / "cluster") as cluster:
        leader = await cluster.leader()
        follower, other = (each for each in cluster.controllers.values() if each is not leader)
        await cluster.ends(follower)
        (tmp_path / "password").write_text("secret")
        for words in WRITES:
            ran = await cluster.quorumctl(*words.format(password=tmp_path / "password").split())
            assert ran.returncode == 0, (words, ran)
        end_offset = (await cluster.client.create_snapshot()).offset
        for running in (leader, other):
            await until(partial(is_written, cluster, running, end_offset))
        copies = [Path(shutil.copytree(each.data_directory, tmp_path / each.name)) for each in (leader, other)]
        epoch = (await cluster.client.describe_quorum(leader.endpoint)).epoch
        name = snapshot_name(OffsetAndEpoch(end_offset, epoch))
        (copies[0] / "@metadata" / name).unlink()
        out = tmp_path / "compacted"
        compact = ("compact", copies[0], "--beside", copies[1], "--offset", end_offset, "--out", out)
        await asyncio.to_thread(job, *map(str, compact))

        done = await install(cluster, out / name, follower.data_directory)
        assert (done["result"], done["end_offset"]) == ("installed", end_offset)
        cluster.dev.start(follower.name)
        await agrees(cluster, follower)
        assert (await cluster.client.describe_quorum(follower.endpoint)).log_start_offset == end_offset
        assert await answers(cluster, follower) == await answers(cluster, leader)
        cluster.assert_alive()
