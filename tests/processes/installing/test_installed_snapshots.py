"""Nodes that are far behind get a snapshot file from an operator, instead of fetching it from their leader."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.ids import OffsetAndEpoch
from quorum.devcluster.cluster import DevNode
from snapshots.format import parse_name, snapshot_name
from snapshots.reader import read_snapshot
from snapshots.writer import write_records
from tests.processes.conftest import Cluster, image_at, until
from tests.processes.test_slow_links import cluster_of, is_dropped, is_written, write

pytestmark = [pytest.mark.processes, pytest.mark.slow]


async def install(cluster: Cluster, file: Path, directory: Path, *more: str) -> dict[str, Any]:
    ran = await cluster.quorumctl("snapshot", "install", str(file), "--directory", str(directory), "-o", "json", *more)
    assert ran.returncode == 0, ran
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


async def refused(cluster: Cluster, file: Path, directory: Path) -> str:
    """The error; the directory must be as it was."""
    before = contents(directory)
    ran = await cluster.quorumctl("snapshot", "install", str(file), "--directory", str(directory))
    assert ran.returncode == 4, ran
    assert contents(directory) == before
    return ran.stderr


def contents(directory: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in directory.rglob("*.checkpoint*") if each.is_file()}


def forged(file: Path, directory: Path) -> Path:
    """A file with good checksums, the same end and the same chain, that lacks some records."""
    directory.mkdir()
    parsed = parse_name(file.name)
    assert parsed is not None
    contents = read_snapshot(RealDirectory(file.parent), parsed[0])
    write_records(RealDirectory(directory), contents.meta, list(contents.records)[:-1])
    return directory / file.name


async def agrees(cluster: Cluster, node: DevNode) -> None:
    """Returns once the node has the leader's image."""

    async def probe() -> bool | None:
        led = await cluster.client.describe_quorum((await cluster.leader()).endpoint)
        if node.role == "broker":
            try:
                found = await image_at(node.endpoint)
            except grpc.aio.AioRpcError:
                return None  # it does not serve yet
        else:
            own = await cluster.client.describe_quorum(node.endpoint)
            found = own.applied_offset, own.digest
        return True if found == (led.applied_offset, led.digest) else None

    await until(probe, 60)


async def test_nodes_that_are_far_behind_go_on_from_the_file(tmp_path: Path) -> None:
    """A controller and a broker lack what no log has any more. They start at the file's end, and fetch the records behind it."""
    async with cluster_of(tmp_path / "cluster") as cluster:
        leader = await cluster.leader()
        follower, other = (each for each in cluster.controllers.values() if each is not leader)
        broker, _ = cluster.brokers.values()
        for node in (follower, broker):
            await cluster.ends(node)
        stood = (await cluster.client.describe_quorum(leader.endpoint)).log_end_offset
        await write(cluster, 0, 5)
        end_offset = (await cluster.client.create_snapshot()).offset
        for running in (leader, other):
            await until(partial(is_written, cluster, running, end_offset))
        await until(lambda: is_dropped(cluster, leader, stood))
        epoch = (await cluster.client.describe_quorum(leader.endpoint)).epoch
        name = snapshot_name(OffsetAndEpoch(end_offset, epoch))
        file = Path(shutil.copy(leader.data_directory / "@metadata" / name, tmp_path / name))

        assert "is in use by process" in await refused(cluster, file, other.data_directory)
        told = await refused(cluster, forged(file, tmp_path / "forged"), follower.data_directory)
        assert f"has another snapshot at offset {end_offset}" in told
        (tmp_path / "cut").mkdir()
        cut = tmp_path / "cut" / name
        cut.write_bytes(file.read_bytes()[:-1])
        assert f"{name}, position " in await refused(cluster, cut, follower.data_directory)
        unknown = tmp_path / "foreign"
        words = ("storage", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "--node-id", "7", "--role", "broker")
        assert (await cluster.quorumctl(*words, "--directory", str(unknown))).returncode == 0
        assert "is of cluster AAAAAAAAAAAAAAAAAAAAAA" in await refused(cluster, file, unknown)

        votes = (follower.data_directory / "quorum-state").read_bytes()
        before = contents(follower.data_directory)
        planned = await install(cluster, file, follower.data_directory, "--dry-run")
        assert (planned["result"], contents(follower.data_directory)) == ("would_install", before)
        for node in (follower, broker):
            done = await install(cluster, file, node.data_directory)
            assert (done["result"], done["role"], done["end_offset"]) == ("installed", node.role, end_offset)
            assert leader.node_id in done["confirmed_by"]
            assert (await install(cluster, file, node.data_directory))["result"] == "unchanged"
        assert (follower.data_directory / "quorum-state").read_bytes() == votes

        await cluster.client.create_topic("afterwards", partitions=1, replication_factor=1)
        for node in (follower, broker):
            placed = node.data_directory / "@metadata" / name
            number = placed.stat().st_ino
            cluster.dev.start(node.name)
            await agrees(cluster, node)
            assert placed.stat().st_ino == number, "a fetched file would have taken its place"
        assert (await cluster.client.describe_quorum(follower.endpoint)).log_start_offset == end_offset
        cluster.assert_alive()
