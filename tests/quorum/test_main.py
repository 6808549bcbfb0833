"""`quorumd` as a supervisor sees it: exit codes, and the one line that says why."""

import asyncio
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.ids import OffsetAndEpoch, parse_uuid
from metadata_log.format.records import Endpoint
from quorum.runtime.disk import recovery_plan
from quorum.runtime.disk.format_directory import InitialController, format_directory
from quorum.runtime.disk.recovery_plan import PlannedDirectory, RecoveryPlan
from tests.processes.certificates import Authority

pytestmark = [pytest.mark.processes, pytest.mark.slow]

DIRECTORY_ID = parse_uuid("p6FqFbzqQuazHwMJYjPrOA")


class Daemon(NamedTuple):
    process: asyncio.subprocess.Process

    async def until(self, word: str) -> str:
        """Everything it printed up to the line with `word`."""
        assert self.process.stderr is not None
        said = ""
        async with asyncio.timeout(30):
            while word not in said:
                line = await self.process.stderr.readline()
                assert line, said
                said += line.decode()
        return said

    async def end(self) -> tuple[int, str]:
        """Its exit code, and what it printed."""
        async with asyncio.timeout(30):
            _, stderr = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, stderr.decode()


async def quorumd(config: Path, *more: str) -> Daemon:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "quorum", "--config", str(config), *more,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    return Daemon(process)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A formatted controller, the only one of its cluster."""
    controllers = (InitialController(1, "127.0.0.1", 1, DIRECTORY_ID),)
    format_directory(
        tmp_path / "data", cluster_id="test-cluster", node_id=1, role="controller", controllers=controllers
    )
    path = tmp_path / "c.yaml"
    path.write_text(f"node.id: 1\nlisteners: CONTROLLER://127.0.0.1:0\nmetadata.log.dir: {tmp_path / 'data'}\n")
    return path


async def test_sigterm_is_an_orderly_end(config: Path) -> None:
    """Exit code 0; and a second one may not have the directory meanwhile."""
    first = await quorumd(config)
    await first.until("leader")
    code, said = await (await quorumd(config)).end()
    assert code == 1
    assert "cannot go on" in said
    first.process.send_signal(signal.SIGTERM)
    code, said = await first.end()
    assert (code, "Traceback" in said) == (0, False), said


async def test_a_restart_will_not_mend_a_configuration(config: Path) -> None:
    """Exit code 78, every mistake named."""
    code, said = await (await quorumd(config, "--set", "num.partitions=many", "--set", "num.partition=1")).end()
    assert code == 78
    assert "num.partitions" in said and "did you mean" in said


async def test_nothing_is_formatted_by_itself(config: Path, tmp_path: Path) -> None:
    """An empty directory is a missing disk until somebody says otherwise."""
    code, said = await (await quorumd(config, "--set", f"metadata.log.dir={tmp_path / 'elsewhere'}")).end()
    assert code == 78
    assert "is not formatted" in said
    assert not (tmp_path / "elsewhere").exists()


async def test_another_nodes_directory_is_refused(config: Path) -> None:
    """Two nodes of one id would vote twice."""
    code, said = await (await quorumd(config, "--set", "node.id=2")).end()
    assert code == 78
    assert "belongs to" in said


async def test_a_port_in_use_is_named(config: Path) -> None:
    """Exit code 1: when the port is free again, a restart helps."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        code, said = await (await quorumd(config, "--set", f"listeners=CONTROLLER://127.0.0.1:{port}")).end()
    assert code == 1
    assert str(port) in said and "in use" in said


async def test_open_to_others_only_when_told_so(config: Path) -> None:
    """Without TLS a controller binds loopback addresses only."""
    code, said = await (await quorumd(config, "--set", "listeners=CONTROLLER://0.0.0.0:0")).end()
    assert code == 78
    assert "allow.insecure.remote" in said


async def test_a_lost_vote_is_not_forgotten_silently(config: Path, tmp_path: Path) -> None:
    """A log without its quorum-state: the node says what it has lost, and does not start."""
    first = await quorumd(config)
    await first.until("leader")
    first.process.kill()
    await first.end()
    (tmp_path / "data" / "quorum-state").unlink()
    code, said = await (await quorumd(config)).end()
    assert code == 78
    assert "forgotten its vote" in said


async def test_a_recovery_that_is_not_finished_comes_first(config: Path, tmp_path: Path) -> None:
    """Exit code 78, and the command that finishes it, to be copied from the log."""
    mine = PlannedDirectory(str(tmp_path / "data"), "controller", 1, DIRECTORY_ID)
    plan = RecoveryPlan(
        directories=(mine, PlannedDirectory("/mnt/a broker", "broker", 101, bytes(16))),
        survivor=mine,
        source=None,
        base=5,
        base_chain=bytes(32),
        snapshot=None,
        end=OffsetAndEpoch(5, 1),
        end_chain=bytes(32),
        committed_end=0,
        generation=2,
        epoch=1_000_001,
        endpoints=(Endpoint("CONTROLLER", "127.0.0.1", 1),),
        wall_ms=1,
        accepts_loss=False,
    )
    recovery_plan.save(RealDirectory(tmp_path / "data"), plan)
    code, said = await (await quorumd(config)).end()
    assert code == 78
    assert f"quorumctl quorum recover --directory {tmp_path / 'data'} --from-broker '/mnt/a broker' --yes" in said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made")
async def test_swapped_key_and_certificate_keep_it_from_starting(config: Path, tmp_path: Path) -> None:
    """Exit code 78, and the file that is not what it should be: no restart exchanges the two."""
    files = Authority(tmp_path / "ca").sign("controller")
    given = {"certificate.chain": files.private_key, "private.key": files.certificate_chain}
    given["certificate.authority"] = files.certificate_authority
    code, said = await (await quorumd(config, *(f"--set=tls.{key}={path}" for key, path in given.items()))).end()
    assert code == 78, said
    assert "controller.key: a certificate expected, and this is a private key: are the two swapped?" in said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made")
async def test_a_certificate_of_another_authority_keeps_it_from_starting(config: Path, tmp_path: Path) -> None:
    """1. An operator makes the authority anew by mistake, signs a certificate with it, and leaves the old ca.crt at the node.
    2. The other nodes would refuse the node. So it ends with 78, and names both files."""
    files = Authority(tmp_path / "new").sign_node("controller", 1, "test-cluster")
    given = {"certificate.chain": files.certificate_chain, "private.key": files.private_key}
    given["certificate.authority"] = Authority(tmp_path / "old").certificate
    code, said = await (await quorumd(config, *(f"--set=tls.{key}={path}" for key, path in given.items()))).end()
    assert code == 78, said
    assert "new/controller-1.crt, verified with" in said and "Give both files of one authority" in said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made")
@pytest.mark.parametrize("listed", [False, True])
async def test_it_says_at_the_start_whether_every_certificate_operates_it(
    config: Path, tmp_path: Path, listed: bool
) -> None:
    """Without `admin.principals` who has any certificate of the authority may change everything; nobody is left to guess that."""
    files = Authority(tmp_path / "ca").sign_node("controller", 1, "test-cluster")
    with config.open("a") as more:
        more.write(f"tls.certificate.chain: {files.certificate_chain}\ntls.private.key: {files.private_key}\n")
        more.write(f"tls.certificate.authority: {files.certificate_authority}\n")
        more.write("admin.principals: [CN=alice]\n" if listed else "")
    daemon = await quorumd(config)
    said = await daemon.until("listening")
    assert ("admin.principals is not set" in said) is not listed, said
    daemon.process.send_signal(signal.SIGTERM)
    assert (await daemon.end())[0] == 0
