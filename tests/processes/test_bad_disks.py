"""Directories and configurations that a daemon must not start with: it says why, changes nothing, and ends with 78."""

import subprocess
from pathlib import Path

import pytest

from quorum.devcluster.cluster import DevCluster
from quorum.devcluster.layout import DevNode
from tests.processes.conftest import run, running, until

pytestmark = [pytest.mark.processes, pytest.mark.slow]

MODULES = {"controller": "quorum", "broker": "broker_agent"}


def started(node: DevNode, *overrides: str) -> subprocess.CompletedProcess[str]:
    """The daemon, which is to refuse."""
    options = [word for each in overrides for word in ("--set", each)]
    return run(MODULES[node.role], "--config", str(node.config_path), *options)


@pytest.fixture
def dev(tmp_path: Path) -> DevCluster:
    """A formatted cluster of one controller and one broker that was never started."""
    return DevCluster.create(tmp_path / "cluster", controllers=1, brokers=1)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["controller-1", "broker-101"])
def test_an_unformatted_directory(dev: DevCluster, name: str, tmp_path: Path) -> None:
    """The command that formats it is in the text; the directory is not made."""
    missing = tmp_path / "not-mounted"
    refused = started(dev.node(name), f"metadata.log.dir={missing}")
    assert refused.returncode == 78, refused
    assert f"{missing} is not formatted" in refused.stderr
    assert "quorumctl storage format" in refused.stderr
    assert not missing.exists()


@pytest.mark.parametrize("name", ["controller-1", "broker-101"])
def test_a_directory_of_another_node(dev: DevCluster, name: str, tmp_path: Path) -> None:
    """Another node's disk, mounted by mistake."""
    other = DevCluster.create(tmp_path / "other", controllers=2, brokers=2)
    role, _, node_id = name.partition("-")
    foreign = other.node(f"{role}-{int(node_id) + 1}").data_directory
    before = contents(foreign)
    refused = started(dev.node(name), f"metadata.log.dir={foreign}")
    assert refused.returncode == 78, refused
    assert f"belongs to node {int(node_id) + 1}, not {node_id}" in refused.stderr
    assert contents(foreign) == before


def test_a_directory_of_another_role(dev: DevCluster) -> None:
    """A broker's directory under a controller."""
    broker = dev.node("broker-101").data_directory
    refused = started(dev.node("controller-1"), f"metadata.log.dir={broker}", "node.id=101")
    assert refused.returncode == 78, refused
    assert "role broker, not controller" in refused.stderr


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("controller-1", ("node.id=one", "controller.quorum.fetch.timeout.ms=-5", "broker.sesion.timeout.ms=9000")),
        ("broker-101", ("node.id=one", "lease.mode=loose", "metadata.fetch.max.wait=5")),
    ],
)
def test_three_mistakes_are_all_named_at_once(dev: DevCluster, name: str, wrong: tuple[str, ...]) -> None:
    """One a line, each with its key; and a key that is nearly right is guessed."""
    refused = started(dev.node(name), *wrong)
    assert refused.returncode == 78, refused
    lines = refused.stderr.splitlines()
    assert lines[0] == "3 mistakes in the configuration:"
    assert len(lines) == 4
    for each in wrong:
        assert each.partition("=")[0] in refused.stderr
    assert "did you mean" in refused.stderr


def test_mistakes_in_a_file_are_named_with_their_lines(dev: DevCluster) -> None:
    node = dev.node("controller-1")
    text = node.config_path.read_text()
    node.config_path.write_text(text + "listeners: here\nnum.partitions: 0\nno.such.key: 1\n")
    refused = started(node)
    lines = len(text.splitlines())
    assert refused.returncode == 78, refused
    for number, key in ((lines + 1, "listeners"), (lines + 2, "num.partitions"), (lines + 3, "no.such.key")):
        assert f"{node.config_path}:{number}: {key}: " in refused.stderr


async def test_damage_inside_a_log_is_mended_from_the_others(tmp_path: Path) -> None:
    """One bit near the beginning of a log that was durable: the controller joins, fetches what is missing, puts back the very
    bytes, and says so. Nobody is called, and nothing is lost."""
    async with running(tmp_path / "cluster") as cluster:
        for number in range(20):
            await cluster.client.create_topic(f"topic-{number}", partitions=12, replication_factor=3)
        node = next(each for each in cluster.controllers.values())
        await cluster.ends(node)
        (segment,) = (node.data_directory / "@metadata").glob("*.log")
        intact = segment.read_bytes()
        written = len(intact.rstrip(b"\x00"))
        damaged = bytearray(intact)
        damaged[written // 2] ^= 0x40
        segment.write_bytes(damaged)

        cluster.dev.start(node.name)
        await cluster.dev.wait_until_healthy(15)

        async def story() -> str | None:
            text = node.log_path.read_text()
            return text if "damage mended" in text else None

        assert "damage found" in await until(story, within_s=20)
        assert segment.read_bytes()[:written] == intact[:written]
        assert len(await cluster.topic_names()) == 20
        await cluster.client.create_topic("afterwards", partitions=1, replication_factor=3)


async def test_a_log_that_has_lost_its_end_is_made_good_by_the_others(tmp_path: Path) -> None:
    """The last batch that was durable is damaged, and nothing intact stands behind it: the controller starts without it, does not
    count until it is there again, and keeps what it found for whoever wants to look into it."""
    async with running(tmp_path / "cluster") as cluster:
        for number in range(20):
            await cluster.client.create_topic(f"topic-{number}", partitions=12, replication_factor=3)
        node = next(each for each in cluster.controllers.values())
        await cluster.ends(node)
        (segment,) = (node.data_directory / "@metadata").glob("*.log")
        damaged = bytearray(segment.read_bytes())
        damaged[len(damaged.rstrip(b"\x00")) - 3] ^= 0x40
        segment.write_bytes(damaged)

        cluster.dev.start(node.name)
        await cluster.dev.wait_until_healthy(15)
        await cluster.client.create_topic("afterwards", partitions=1, replication_factor=3)

        async def made_good() -> bool | None:
            return None if segment.with_name("lost").exists() else True

        await until(made_good, within_s=20)
        assert segment.with_name(f"{segment.name}.damaged").read_bytes() == damaged
        assert len(await cluster.topic_names()) == 21
