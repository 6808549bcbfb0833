"""`quorumctl dev`: a cluster up, down and looked at by one command each; every misuse is told from every other."""

import json
import re
import shlex
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.conftest import quorumctl

pytestmark = [pytest.mark.processes, pytest.mark.slow]

COUNTS = ("--controllers", "3", "--brokers", "3")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Where a cluster may come to be; it does not outlive the test."""
    yield tmp_path / "cluster"
    quorumctl("dev", "down", "--dir", str(tmp_path / "cluster"), "--wait", "0")


def runs(pid: int) -> bool:
    """Whether the process lives; one that is dead and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_up_status_down_and_up_again(directory: Path) -> None:
    """JSON with id, endpoint, pid and data directory of each node; up returns healthy; what was made is there again."""
    up = quorumctl("dev", "up", "--dir", str(directory), *COUNTS, "-o", "json")
    assert up.returncode == 0, up
    nodes = json.loads(up.stdout)["nodes"]
    assert [node["node_id"] for node in nodes] == [1, 2, 3, 101, 102, 103]
    assert [node["role"] for node in nodes] == ["controller"] * 3 + ["broker"] * 3
    assert {node["state"] for node in nodes[3:]} == {"online"}
    assert sorted(node["state"] for node in nodes[:3]) == ["follower", "follower", "leader"]
    for node in nodes:
        assert runs(node["pid"])
        assert Path(node["data_directory"], "meta.properties").is_file()
        host, _, port = node["endpoint"].rpartition(":")
        socket.create_connection((host, int(port)), timeout=5).close()

    twice = quorumctl("dev", "up", "--dir", str(directory), *COUNTS)
    assert twice.returncode == 4, twice
    assert "runs already" in twice.stderr

    status = quorumctl("dev", "status", "--dir", str(directory), "-o", "json")
    assert status.returncode == 0, status
    assert {node["pid"] for node in json.loads(status.stdout)["nodes"]} == {node["pid"] for node in nodes}

    down = quorumctl("dev", "down", "--dir", str(directory), "-o", "json")
    assert down.returncode == 0, down
    assert json.loads(down.stdout)["killed"] == []
    assert not any(runs(node["pid"]) for node in nodes)
    assert quorumctl("dev", "status", "--dir", str(directory)).returncode == 10

    again = quorumctl("dev", "up", "--dir", str(directory), "-o", "json")
    assert again.returncode == 0, again
    assert json.loads(again.stdout)["cluster_id"] == json.loads(up.stdout)["cluster_id"]


def commands(text: str) -> list[list[str]]:
    """The `quorumctl` commands that an error names, as somebody copies them."""
    return [shlex.split(found) for found in re.findall(r"`quorumctl ([^`]*)`", text)]


def test_a_node_that_is_not_well_is_told_from_one_that_is(directory: Path) -> None:
    """A paused node, one that dies as soon as it is started, one whose directory is a file: each is named, with what to do.

    The node without a directory keeps no other node down, and the commands that `dev up` names bring it back as they stand there.
    """
    here = ("--dir", str(directory))
    assert quorumctl("dev", "up", *here, "--controllers", "3", "--brokers", "1").returncode == 0

    quorumctl("dev", "kill", *here, "controller-2", "--signal", "STOP")
    paused = quorumctl("dev", "status", *here, "-o", "json")
    assert paused.returncode == 10, paused
    states = {node["name"]: (node["state"], node["problem"]) for node in json.loads(paused.stdout)["nodes"]}
    assert states["controller-2"][0] == "paused" and "CONT" in states["controller-2"][1]
    assert "controller-2: it is paused" in quorumctl("dev", "status", *here).stdout
    quorumctl("dev", "kill", *here, "controller-2", "--signal", "CONT")

    quorumctl("dev", "stop", *here, "broker-101")
    config = directory / "broker-101" / "config.yaml"
    sound = config.read_text()
    config.write_text(sound + "listenrs: PLAINTEXT://127.0.0.1:1\n")
    refused = quorumctl("dev", "start", *here, "broker-101")
    assert refused.returncode == 1, refused
    assert "broker-101 was not started" in refused.stderr and "listenrs" in refused.stderr
    config.write_text(sound)
    started = quorumctl("dev", "start", *here, "broker-101")
    assert started.returncode == 0, started

    assert quorumctl("dev", "down", *here).returncode == 0
    lost = directory / "controller-3"
    shutil.rmtree(lost)  # its config.yaml too, which the commands below need
    lost.write_text("a file, and no directory")
    up = quorumctl("dev", "up", *here)
    assert up.returncode == 10, up
    assert (
        f"controller-3 was not started: {lost} cannot be used: Not a directory" in up.stderr
        and "healthy" not in up.stderr.splitlines()
    )
    assert quorumctl("dev", "status", *here).returncode == 10
    lost.unlink()
    (repeat,) = commands(up.stderr)
    up = quorumctl(*repeat)
    assert up.returncode == 4 and "controller-3 cannot be started" in up.stderr, up
    way_back = commands(up.stderr)
    assert [words[0] for words in way_back] == ["storage", "dev", "-C", "-C"], up.stderr
    for words in way_back:
        ran = quorumctl(*words)
        assert ran.returncode == 0, (words, ran)
    again = quorumctl("-C", way_back[-1][1], "health", "--exit-when-healthy", "--timeout", "20")
    assert again.returncode == 0, again
    assert quorumctl("dev", "status", *here).returncode == 0


def test_a_used_port(directory: Path) -> None:
    """The port is named, and nothing is left behind."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = quorumctl("dev", "up", "--dir", str(directory), *COUNTS, "--base-port", str(port))
    assert refused.returncode in (1, 4), refused
    assert f"port {port}" in refused.stderr
    assert not directory.exists()


def test_a_directory_of_somebody_else(directory: Path) -> None:
    """What is there stays as it is."""
    directory.mkdir()
    (directory / "thesis.txt").write_text("years of work")
    refused = quorumctl("dev", "up", "--dir", str(directory), *COUNTS)
    assert refused.returncode == 4, refused
    assert "not empty" in refused.stderr
    assert [path.name for path in directory.iterdir()] == ["thesis.txt"]


def test_a_cluster_of_another_size(directory: Path) -> None:
    """A cluster keeps its size: asking for another one is a mistake, not a resize."""
    assert quorumctl("dev", "up", "--dir", str(directory), "--controllers", "1", "--brokers", "0").returncode == 0
    assert quorumctl("dev", "down", "--dir", str(directory)).returncode == 0
    refused = quorumctl("dev", "up", "--dir", str(directory), *COUNTS)
    assert refused.returncode == 4, refused
    assert "1 controllers and 0 brokers" in refused.stderr


def test_no_cluster_there(directory: Path) -> None:
    for command in ("status", "down"):
        refused = quorumctl("dev", command, "--dir", str(directory))
        assert refused.returncode == 3, refused
        assert "holds no cluster" in refused.stderr
