"""A local cluster: what `dev up` makes, what it refuses, and that it leaves nothing behind when it fails."""

import dataclasses
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result
from quorum_rpc.v1 import broker_pb2, client_pb2, client_pb2_grpc

from metaquorum import AdminClient, AdminError
from quorum.cli.main import cli
from quorum.devcluster import layout as layouts
from quorum.devcluster.cluster import Conflict, DevCluster, DevClusterError, NotThere
from quorum.devcluster.layout import DevNode
from quorum.devcluster.process import log_tail, spawn
from quorum.devcluster.views import _broker, _controller
from quorum.wire.server import serve
from service_kit.rpc.dial import Dialer
from tests import forked
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode


@pytest.fixture(scope="module", autouse=True)
def forked_daemons() -> Iterator[None]:
    with forked.daemons():
        yield


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["dev", *[str(argument) for argument in arguments]])


def test_a_layout_is_written_once_and_found_again(tmp_path: Path) -> None:
    """Same cluster, ids, ports and directories; racks go around."""
    made = DevCluster.create(tmp_path / "c", controllers=3, brokers=4, racks=2)
    found = DevCluster.load(tmp_path / "c")
    assert found.layout == made.layout
    assert [node.name for node in found.nodes[:4]] == ["controller-1", "controller-2", "controller-3", "broker-101"]
    assert [node.rack for node in found.layout.brokers] == ["rack-1", "rack-2", "rack-1", "rack-2"]
    assert len({node.port for node in found.nodes}) == 7
    assert found.running() == []


def test_the_end_of_a_log_is_the_whole_list_of_mistakes_of_the_last_start(tmp_path: Path) -> None:
    """1. A start fails with seven mistakes, and the next start with six: the operator needs the six, with their heading.
    2. A log of a node that ran has no such list at its end."""
    node = DevCluster.create(tmp_path / "c", controllers=1, brokers=0).layout.controllers[0]
    lists = [
        f"{count} mistakes in the configuration:\n" + "".join(f"  mistake {count}.{each}\n" for each in range(count))
        for count in (7, 6)
    ]
    node.log_path.write_text("".join(lists))
    assert log_tail(node) == lists[1].rstrip()
    node.log_path.write_text(lists[0] + "".join(f'{{"event": {each}}}\n' for each in range(8)))
    assert log_tail(node) == "\n".join(f'{{"event": {each}}}' for each in range(3, 8))


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """Not even a file is added to it."""
    (tmp_path / "thesis.tex").write_text("precious")
    result = run("up", "--dir", tmp_path)
    assert result.exit_code == 4
    assert "is not empty" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The error is about the directory, and not about the command's output."""
    (tmp_path / "file").write_text("")
    result = run("up", "--dir", tmp_path / "file" / "c", "--controllers", 1, "--brokers", 0)
    assert result.exit_code == 1
    assert "Not a directory" in result.stderr and str(tmp_path / "file") in result.stderr


def test_a_cluster_keeps_its_size(tmp_path: Path) -> None:
    """Other numbers on a second `up` are a mistake, not a wish."""
    DevCluster.create(tmp_path / "c", controllers=1, brokers=1)
    result = run("up", "--dir", tmp_path / "c", "--controllers", 3)
    assert result.exit_code == 4
    assert "a cluster of 1 controllers and 1 brokers" in result.stderr


@pytest.mark.parametrize("option", ["--set=a=1", "--set-broker=a=1", "--racks=2", "--base-port=20000"])
def test_a_cluster_keeps_its_settings(tmp_path: Path, option: str) -> None:
    """A second `up` with settings is refused before a node starts; otherwise the operator would believe that they hold."""
    cluster = DevCluster.create(tmp_path / "c", controllers=1, brokers=1)
    result = run("up", "--dir", tmp_path / "c", option)
    assert result.exit_code == 4
    assert f"holds a cluster already, which {option.partition('=')[0]} does not change" in result.stderr
    assert f"{tmp_path}/c/NODE/config.yaml" in result.stderr
    assert cluster.running() == []


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """No cluster, no such node."""
    assert run("status", "--dir", tmp_path / "nowhere").exit_code == 3
    DevCluster.create(tmp_path / "c", controllers=1)
    assert run("kill", "controller-9", "--dir", tmp_path / "c").exit_code == 3
    with pytest.raises(NotThere, match="there are controller-1"):
        DevCluster.load(tmp_path / "c").node("broker-101")


def test_a_damaged_cluster_file_is_named(tmp_path: Path) -> None:
    """The error names the file, and the command changes nothing. The command does not wait for the writer of a named pipe."""
    DevCluster.create(tmp_path / "c", controllers=1)
    path = tmp_path / "c" / layouts.CLUSTER_FILE
    path.write_text("{")
    with pytest.raises(DevClusterError, match=r"cluster\.json cannot be read"):
        DevCluster.load(tmp_path / "c")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DevClusterError, match=r"cluster\.json cannot be read: .*Not a regular file"):
        DevCluster.load(tmp_path / "c")


async def test_a_taken_port_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    """At creation and at a later start."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        result = run("up", "--dir", tmp_path / "c", "--base-port", port, "--controllers", 1, "--brokers", 0)
        assert result.exit_code == 4
        assert f"port {port} cannot be had" in result.stderr
        assert not (tmp_path / "c").exists()
        cluster = DevCluster.create(tmp_path / "d", controllers=1)
        moved = cluster.layout.nodes[0]._replace(port=port)
        cluster.layout = cluster.layout._replace(nodes=(moved,))
        with pytest.raises(Conflict, match="in use by another process"):
            await cluster.up()
        assert not (tmp_path / "d").exists()


@pytest.mark.processes
@pytest.mark.slow
async def test_a_cluster_lives_and_dies(tmp_path: Path) -> None:
    """Up until healthy; a killed leader is replaced; a stopped cluster comes back with its topics; down stops all."""
    cluster = DevCluster.create(tmp_path / "c", controllers=3, brokers=2)
    try:
        await cluster.up()
        with pytest.raises(Conflict, match="runs already"):
            await cluster.up()
        async with cluster.client() as client:
            await client.create_topic("orders", 3, 2)
            leader = (await client.describe_quorum()).leader.leader_id
            cluster.kill(str(leader))
            await cluster.wait_until_gone(str(leader))
            await client.create_topic("after-the-fall", 1, 2)
        assert len(cluster.running()) == 4
        await cluster.up()
        assert await cluster.down() == []
        assert cluster.running() == []
        await cluster.up()
        async with cluster.client() as client:
            assert [topic.name async for topic in client.topics()] == ["after-the-fall", "orders"]
    finally:
        await cluster.down()
    assert cluster.running() == []


@pytest.mark.processes
@pytest.mark.slow
async def test_a_failed_up_leaves_nothing_behind(tmp_path: Path) -> None:
    """A config that a daemon refuses: its words are in the error, and processes and files are gone."""
    cluster = DevCluster.create(tmp_path / "c", controllers=1, controller_settings={"num.partitions": "many"})
    with pytest.raises(DevClusterError, match=r"num\.partitions"):
        await cluster.up()
    assert cluster.running() == []
    assert not (tmp_path / "c").exists()


@pytest.mark.processes
@pytest.mark.slow
async def test_another_clusters_address_is_refused(tmp_path: Path) -> None:
    """A client that knows its cluster's id is not served by another one."""
    cluster = DevCluster.create(tmp_path / "c", controllers=1)
    try:
        await cluster.up()
        stranger = DevCluster(cluster.layout._replace(cluster_id="AAAAAAAAAAAAAAAAAAAAAg"))
        async with stranger.client() as client:
            with pytest.raises(AdminError, match="this is cluster"):
                await client.create_topic("orders", 1, 1)
        document = json.loads((tmp_path / "c" / layouts.CLUSTER_FILE).read_text())
        assert document["cluster_id"] == cluster.layout.cluster_id
    finally:
        await cluster.down()


def test_a_missing_config_file_is_written_anew_with_the_settings_of_the_first_run(tmp_path: Path) -> None:
    """1. The whole directory of broker 101 is removed.  2. `dev up` leaves the broker out, and names commands that read its
    config.yaml.  3. So `dev up` writes this file again; it leaves alone a file that is there."""
    given = {"broker.session.timeout.ms": "7000"}
    created = DevCluster.create(tmp_path / "c", controllers=1, brokers=1, racks=1, broker_settings=given)
    controller, broker = created.layout.nodes
    before = broker.config_path.read_text()
    assert "7000" in before
    shutil.rmtree(broker.directory)
    controller.config_path.write_text("node.id: 1 # mine\n")
    found = DevCluster.load(tmp_path / "c").layout
    for node in found.nodes:
        layouts.write_config(found, node)
    assert broker.config_path.read_text() == before
    assert controller.config_path.read_text() == "node.id: 1 # mine\n"


async def test_one_wiped_directory_is_told_from_a_lost_majority(tmp_path: Path) -> None:
    """The first is left out, and nothing is started where the others are no majority; the error names each directory."""
    cluster = DevCluster.create(tmp_path / "a cluster", controllers=3, brokers=1)
    first, second, third = cluster.layout.controllers
    shutil.rmtree(third.data_directory)
    shutil.rmtree(cluster.layout.brokers[0].data_directory)
    assert [node.name for node in layouts.strays(cluster.layout)] == ["controller-3", "broker-101"]
    back = layouts.way_back(cluster.layout, cluster.layout.brokers[0], first)
    assert f"--config '{tmp_path}/a cluster/broker-101/config.yaml' --cluster-id {cluster.layout.cluster_id}`" in back

    second.data_directory.rename(third.data_directory)
    with pytest.raises(Conflict, match="Without a majority") as refused:
        await DevCluster.load(tmp_path / "a cluster").up()
    assert f"{second.data_directory} is not formatted" in str(refused.value)
    assert f"{third.data_directory} belongs to controller 2 of cluster" in str(refused.value)
    assert cluster.running() == []


def _dangle(path: Path) -> None:
    path.symlink_to("/not/mounted")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _text(path: Path) -> None:
    path.write_text("not a directory")


@pytest.mark.parametrize(
    ("name", "put", "reason"),
    [
        (".", _text, "Not a directory"),
        (".", _dangle, "No such file or directory (it is a symbolic link to /not/mounted)"),
        (".", _loop, "Too many levels of symbolic links (it is a symbolic link to broker-101)"),
        ("data", _text, "Not a directory"),
        ("data", _dangle, "No such file or directory (it is a symbolic link to /not/mounted)"),
        ("config.yaml", Path.mkdir, "Is a directory"),
        ("log", Path.mkdir, "Is a directory"),
        ("pid", Path.mkdir, "Is a directory"),
        ("pid", _loop, "Too many levels of symbolic links (it is a symbolic link to pid)"),
        ("config.yaml", os.mkfifo, "Not a regular file"),
        ("log", os.mkfifo, "Not a regular file"),
        ("pid", os.mkfifo, "Not a regular file"),
    ],
)
def test_a_path_that_cannot_be_used_is_the_problem_of_its_node(
    tmp_path: Path, name: str, put: Callable[[Path], None], reason: str
) -> None:
    """1. A path of broker 101 cannot be opened.  2. `dev up`, `dev status`, `dev start` and `dev down` take the broker for
    stopped, name path and reason, and change nothing there.  3. The path is moved away: `dev up` writes a missing config file."""
    cluster = DevCluster.create(tmp_path / "c", controllers=1, brokers=1)
    controller, broker = cluster.nodes
    path = broker.directory / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    put(path)
    why = f"{path} cannot be used: {reason}"
    again = f"move it away; then run `quorumctl dev up --dir {tmp_path}/c` again"
    assert cluster.running() == []
    assert layouts.strays(cluster.layout) == {broker: why}
    layouts.write_config(cluster.layout, broker)
    assert layouts.strays(cluster.layout) == {broker: why}
    assert again in layouts.way_back(cluster.layout, broker, controller)
    status = run("status", "--dir", tmp_path / "c")
    assert status.exit_code == 10
    assert f"broker-101: it counts as stopped: {why}" in status.stdout and again in status.stdout
    assert "controller-1: it does not run" in status.stdout
    start = run("start", "--dir", tmp_path / "c", "broker-101")
    assert start.exit_code == 1
    assert f"broker-101 was not started: {why}" in start.stderr and again in start.stderr
    down = run("down", "--dir", tmp_path / "c")
    assert down.exit_code == 0 and f"broker-101 counts as stopped: {why}" in down.stderr

    path.rename(tmp_path / "away")
    layouts.write_config(cluster.layout, broker)
    assert broker.config_path.exists()
    wiped = name in (".", "data")
    assert [*layouts.strays(cluster.layout)] == ([broker] if wiped else [])
    assert ("storage format" in layouts.way_back(cluster.layout, broker, controller)) == wiped


def _children() -> set[str]:
    """The pids of this thread's child processes."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


@pytest.mark.processes
def test_no_process_is_left_without_a_pid_file(tmp_path: Path) -> None:
    """`dev down` could not find such a process."""
    (broker,) = DevCluster.create(tmp_path / "c", controllers=1, brokers=1).layout.brokers
    broker.pid_path.mkdir()
    before = _children()
    with pytest.raises(IsADirectoryError):
        spawn(broker)
    assert _children() <= before


@pytest.mark.processes
@pytest.mark.slow
async def test_an_unusable_configuration_is_the_problem_of_its_node(tmp_path: Path) -> None:
    """1. The config files of controller 2 and broker 101 are empty, and controller 3's directory is a dangling link.
    2. `dev up` without a majority starts no node.  3. Controller 3 is back: the others run, and both files are named."""
    made = DevCluster.create(tmp_path / "c", controllers=3, brokers=2)
    _, second, third = made.layout.controllers
    broken = (second, made.layout.brokers[0])
    for node in broken:
        node.config_path.write_text("")
    third.directory.rename(tmp_path / "away")
    _dangle(third.directory)
    cluster = DevCluster.load(tmp_path / "c")
    try:
        with pytest.raises(DevClusterError, match="controller-2 has ended"):
            await cluster.up()
        assert cluster.running() == []
        third.directory.unlink()
        (tmp_path / "away").rename(third.directory)
        left_out = await cluster.up()
        assert list(left_out) == [node.name for node in broken]
        for node in broken:
            text = left_out[node.name]
            assert (
                f"started with {node.config_path}, has ended. Repair it, or move it away; then run `quorumctl dev up"
                in text
            )
            assert f"The end of {node.log_path}:" in text and "node.id" in text
            node.config_path.unlink()
        assert len(cluster.running()) == 3
        assert await cluster.up() == {}
    finally:
        await cluster.down()
    assert cluster.running() == []


async def test_a_cluster_with_taken_ports_is_told_from_a_lost_majority(tmp_path: Path) -> None:
    """1. Other processes have the ports of controllers 2 and 3.  2. `dev up` names both nodes and ports, and starts no node: one
    of three controllers is no majority."""
    made = DevCluster.create(tmp_path / "c", controllers=3)
    _, second, third = made.layout.controllers
    with (
        socket.create_server(("127.0.0.1", second.port)),
        socket.create_server(("127.0.0.1", third.port)),
        pytest.raises(Conflict, match="Without a majority") as refused,
    ):
        await DevCluster.load(tmp_path / "c").up()
    for node in (second, third):
        assert f"port {node.port} of {node.name} is in use by another process" in str(refused.value)
    assert made.running() == []


@pytest.mark.processes
@pytest.mark.slow
async def test_a_taken_port_keeps_no_other_node_down(tmp_path: Path) -> None:
    """1. A cluster is stopped, and other processes take the ports of controller 3 and broker 101.  2. `dev up` starts the other
    nodes, and names node, port and way back.  3. The ports are free again: `dev up` starts both nodes."""
    made = DevCluster.create(tmp_path / "c", controllers=3, brokers=2)
    taken = (made.layout.controllers[2], made.layout.brokers[0])
    cluster = DevCluster.load(tmp_path / "c")
    try:
        with (
            socket.create_server(("127.0.0.1", taken[0].port)),
            socket.create_server(("127.0.0.1", taken[1].port)),
        ):
            left_out = await cluster.up()
            assert left_out == {
                node.name: f"port {node.port} of {node.name} is in use by another process. "
                f"Stop the process with port {node.port}; then run `quorumctl dev up --dir {tmp_path}/c` again"
                for node in taken
            }
            assert len(cluster.running()) == 3
            with pytest.raises(
                Conflict, match=f"broker-101 cannot be started: port {taken[1].port} of .*Stop the process"
            ):
                await cluster.up()
            assert len(cluster.running()) == 3
        assert await cluster.up() == {}
    finally:
        await cluster.down()


async def test_a_controller_that_has_lost_its_vote_is_not_well(tmp_path: Path) -> None:
    """It runs and follows a leader, and its id votes with another directory: the quorum has one voter less than it seems."""
    node = FakeNode()
    seen = node.status()
    for directory_id, is_well in ((seen.directory_id, True), (b"n" * 16, False)):
        status = dataclasses.replace(seen, directory_id=directory_id)
        node.status = lambda status=status: status  # type: ignore[method-assign,misc]
        async with serve(node, IDENTITY, ANY_PORT, grace_s=0) as port:
            place = DevNode("controller-1", "controller", 1, port, None, "", tmp_path)
            async with AdminClient([place.endpoint]) as client:
                problem = (await _controller(place, 1, client)).problem
        assert (problem is None) == is_well
    assert problem is not None and "it does not vote: its directory bm5ubm5ubm5ubm5ubm5ubg" in problem
    assert "remove-voter --node-id 1" in problem and "add-voter --config" in problem


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (
            client_pb2.BrokerStatusResponse(state=broker_pb2.FENCED, reason="an operator keeps it out"),
            "it is fenced: an operator keeps it out",
        ),
        (
            client_pb2.BrokerStatusResponse(
                state=broker_pb2.ONLINE,
                problems=[client_pb2.BrokerProblem(code="publisher_failed", text="quotas fails")],
            ),
            "quotas fails",
        ),
    ],
)
async def test_a_broker_says_what_is_wrong(
    tmp_path: Path, status: client_pb2.BrokerStatusResponse, problem: str
) -> None:
    """The broker's own reason for serving nobody, for example an operator's fence; or what is wrong although it serves."""

    class Broker(client_pb2_grpc.ClusterMetadataServiceServicer):
        async def BrokerStatus(self, request: Any, context: Any) -> client_pb2.BrokerStatusResponse:  # noqa: N802
            return status

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    client_pb2_grpc.add_ClusterMetadataServiceServicer_to_server(Broker(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Dialer() as dial:
        seen = await _broker(DevNode("broker-101", "broker", 101, port, None, "", tmp_path), 1, dial)
    await server.stop(None)
    assert seen.problem == problem
