"""A client in another language: examples/go, compiled and run where there is a Go.

Law: generated code of another language compiles, and docs/clients.md is enough to write a client that knows what became of its
request.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from metaquorum import ErrorCode
from tests.processes.conftest import Cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT: Final = Path(__file__).resolve().parents[2]
NOBODY: Final = "127.0.0.1:1"


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/local/go/bin"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled example. Skips where there is no Go, no code generator, or no Go modules."""
    go = shutil.which("go", path=_environment()["PATH"])
    if go is None or not (ROOT / ".venv-codegen" / "bin" / "python").exists():
        pytest.skip("needs Go and .venv-codegen")
    fetched = subprocess.run(
        [go, "mod", "download"], cwd=ROOT / "examples" / "go", env=_environment(), capture_output=True, timeout=120
    )
    if fetched.returncode != 0:
        pytest.skip("needs Go modules, from the network or from Go's cache")
    out = tmp_path_factory.mktemp("go")
    built = subprocess.run(
        [ROOT / "scripts" / "go_example.sh", out], env=_environment(), capture_output=True, text=True, timeout=360
    )
    assert built.returncode == 0, built.stderr
    return out / "create_topic"


def run(program: Path, controllers: list[str], topic: str, timeout: str = "10s") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, "-controllers", ",".join(controllers), "-topic", topic, "-timeout", timeout],
        capture_output=True,
        text=True,
        timeout=60,
    )


async def test_a_client_in_go_knows_what_became_of_its_request(program: Path, shared_cluster: Cluster) -> None:
    """Through any controller and a broker, past an address where no node is; then a refusal, and a request that no node took."""
    controllers = [node.endpoint for node in shared_cluster.controllers.values()]
    brokers = [node.endpoint for node in shared_cluster.brokers.values()]
    for number, targets in enumerate([[each] for each in controllers] + [[NOBODY, brokers[0]]]):
        created = run(program, targets, f"go-{number}")
        assert created.returncode == 0, created
        assert created.stdout.startswith("created at offset "), created
    assert (await shared_cluster.client.describe_topic("go-3")).partition_count == 1

    again = run(program, controllers, "go-0")
    assert again.returncode == 1, again
    assert again.stderr.startswith(f"nothing was done: {ErrorCode.TOPIC_ALREADY_EXISTS.name}: "), again
    alone = run(program, [NOBODY], "go-9", timeout="1s")
    assert (alone.returncode, "nothing was done" in alone.stderr) == (1, True), alone
    for number in range(4):
        await shared_cluster.client.delete_topics([f"go-{number}"])
