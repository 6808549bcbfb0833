"""Formatting is done once, by hand; a directory that has an owner is never taken from it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import read_identity
from metadata_log.format.ids import OffsetAndEpoch, parse_uuid
from quorum.cli.main import cli
from quorum.config import QuorumConfig
from quorum.core.protocol.voters import VOTERS_MAX
from quorum.runtime.disk import format_directory
from quorum.runtime.disk.format_directory import parse_initial_controllers
from quorum.runtime.disk.open_directory import open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from service_kit.process.config import load_config
from snapshots.format import snapshot_name
from tests.quorum.cli.shapes import shape

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
DIRECTORY_ID = "p6FqFbzqQuazHwMJYjPrOA"
CONTROLLERS = f"1@127.0.0.1:9001:{DIRECTORY_ID},2@127.0.0.1:9002:AAAAAAAAAAAAAAAAAAAAAg"

SNAPSHOT = OffsetAndEpoch(6, 1)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def format_controller(path: Path, *more: object) -> Result:
    return run(
        "storage", "format", "-t", CLUSTER_ID, "--directory", path, "--node-id", 1, "--role", "controller",
        "--initial-controllers", CONTROLLERS, *more,
    )  # fmt: skip


def test_a_formatted_controller_can_be_opened(tmp_path: Path) -> None:
    """Its identity, its first voter set and its genesis are what was asked for, and the runtime accepts them."""
    result = format_controller(tmp_path / "data", "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["cluster_id"] == CLUSTER_ID
    assert document["directory_id"] == DIRECTORY_ID
    directory = RealDirectory(tmp_path / "data")
    identity = read_identity(directory)
    assert identity is not None and identity.role == "controller"
    config = tmp_path / "c.yaml"
    config.write_text(f"node.id: 1\nlisteners: CONTROLLER://127.0.0.1:0\nmetadata.log.dir: {tmp_path / 'data'}\n")
    opened = open_directory(directory, identity, load_config(QuorumConfig, config, {}).node_config())
    assert opened.voters.latest.ids == (1, 2)
    assert opened.log.shape.chain == identity.genesis_chain
    opened.log.close()


def test_the_same_controllers_in_any_order_are_the_same_genesis(tmp_path: Path) -> None:
    """Two operators format two nodes from the same list, written differently: the nodes must not refuse each other."""
    format_controller(tmp_path / "a")
    backwards = ",".join(reversed(CONTROLLERS.split(",")))
    run(
        "storage", "format", "-t", CLUSTER_ID, "--directory", tmp_path / "b", "--node-id", 2, "--role", "controller",
        "-I", backwards,
    )  # fmt: skip
    first, second = (read_identity(RealDirectory(tmp_path / name)) for name in "ab")
    assert first is not None and second is not None
    assert first.genesis_chain == second.genesis_chain


def test_a_formatted_directory_is_not_formatted_again(tmp_path: Path) -> None:
    """Exit code 4, and nothing changes; with --ignore-formatted 0, and nothing changes either."""
    format_controller(tmp_path / "data")
    before = (tmp_path / "data" / "meta.properties").read_bytes()
    result = format_controller(tmp_path / "data")
    assert result.exit_code == 4
    assert "is formatted already: controller 1" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    ignored = format_controller(tmp_path / "data", "--ignore-formatted", "-o", "json")
    assert (ignored.exit_code, json.loads(ignored.stdout)["formatted"]) == (0, False)
    assert (tmp_path / "data" / "meta.properties").read_bytes() == before


@pytest.mark.parametrize(
    "name",
    [
        "@metadata/00000000000000000000.log",
        "@metadata/flushed",
        f"@metadata/{snapshot_name(OffsetAndEpoch(6, 1))}",
        "quorum-state",
    ],
)
def test_what_somebody_has_left_without_identity_is_somebodys(tmp_path: Path, name: str) -> None:
    """Half a backup, or a lost meta.properties: formatting it would make its votes and records nobody's."""
    (tmp_path / "data" / "@metadata").mkdir(parents=True)
    (tmp_path / "data" / name).write_bytes(b"")
    result = format_controller(tmp_path / "data")
    assert result.exit_code == 4
    assert f"({name.removeprefix('@metadata/')}): its owner is not known" in result.stderr


def test_what_a_killed_format_has_left_is_formatted_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before meta.properties, and run again with other first voters: those count, and the controller starts."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "data"
    with monkeypatch.context() as broken:
        broken.setattr(format_directory, "write_identity", killed)
        run(
            "storage", "format", "-t", CLUSTER_ID, "--directory", path, "--node-id", 1, "--role", "controller",
            "--initial-controllers", f"1@127.0.0.1:9009:{DIRECTORY_ID}",
        )  # fmt: skip
    assert not (path / "meta.properties").exists()
    assert format_controller(path).exit_code == 0
    identity = read_identity(RealDirectory(path))
    assert identity is not None
    opened = open_directory(RealDirectory(path), identity, NodeConfig())
    assert [each.node_id for each in opened.bootstrap.voters] == [1, 2]
    opened.log.close()


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A controller without a first voter set, or outside of it; a list that is none; nothing to format."""
    path = tmp_path / "data"
    common = ("storage", "format", "-t", CLUSTER_ID, "--directory", path, "--node-id", 7, "--role", "controller")
    too_many = ",".join(f"{node_id}@h:1:{DIRECTORY_ID}" for node_id in range(VOTERS_MAX + 1))
    for arguments, text in (
        (common, "--initial-controllers"),
        ((*common, "-I", CONTROLLERS), "controller 7 is not among the initial controllers (1, 2)"),
        ((*common, "-I", "7@nowhere"), "id@host:port:directory-id"),
        ((*common, "-I", f"7@h:1:{DIRECTORY_ID},7@h:2:{DIRECTORY_ID}"), "controller 7 is named twice"),
        ((*common, "-I", too_many), "33 initial controllers; the maximum is 32; nothing was written"),
        (("storage", "format", "-t", CLUSTER_ID), "name the directory to format"),
        ((*common[:3], "two words", *common[4:], "-I", f"7@h:1:{DIRECTORY_ID}"), "no cluster id"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert text in result.stderr
    assert not path.exists()


def test_a_broker_is_formatted_from_its_config_file(tmp_path: Path) -> None:
    """Node id, role and directory stand there already; what is said beside it must agree."""
    config = tmp_path / "broker.yaml"
    config.write_text(
        f"node.id: 101\nmetadata.log.dir: {tmp_path / 'data'}\ncontroller.quorum.bootstrap.servers: 127.0.0.1:9001\n"
    )
    contradicting = run("storage", "format", "-t", CLUSTER_ID, "--config", config, "--node-id", 5)
    assert contradicting.exit_code == 2
    assert "contradicts" in contradicting.stderr
    assert run("storage", "format", "-t", CLUSTER_ID, "--config", config).exit_code == 0
    identity = read_identity(RealDirectory(tmp_path / "data"))
    assert identity is not None and (identity.node_id, identity.role) == (101, "broker")


def test_info_says_whose_a_directory_is(tmp_path: Path) -> None:
    """The document's shape is fixed; what was never formatted is not found."""
    format_controller(tmp_path / "data")
    document = json.loads(run("storage", "info", tmp_path / "data", "-o", "json").stdout)
    assert shape(document) == {
        "schema_version": "int", "directory": "str", "cluster_id": "str", "node_id": "int", "role": "str",
        "directory_id": "str", "certificate_name": "str",
        "generation": "int", "genesis": "str", "segments": "int", "snapshots": "int", "bytes": "int",
    }  # fmt: skip
    (tmp_path / "empty").mkdir()
    for path in ("empty", "nowhere"):
        assert run("storage", "info", tmp_path / path).exit_code == 3

    (tmp_path / "data" / "meta.properties").unlink()
    (tmp_path / "data" / "meta.properties").mkdir()
    unreadable = run("storage", "info", tmp_path / "data")
    assert unreadable.exit_code == 1 and f"{tmp_path / 'data'}: Is a directory" in unreadable.stderr


def test_random_ids_are_ids() -> None:
    """Each is another one, and none begins like an option."""
    texts = {run("storage", "random-uuid").stdout.strip() for _ in range(20)}
    assert len(texts) == 20
    assert all(len(parse_uuid(text)) == 16 and not text.startswith("-") for text in texts)


@pytest.mark.parametrize("text", ["1@h:1:x", "@h:1:AAAAAAAAAAAAAAAAAAAAAg", "1@h:99999:AAAAAAAAAAAAAAAAAAAAAg", ","])
def test_bad_controllers_are_named(text: str) -> None:
    """Every malformed entry is a ValueError that people can read."""
    with pytest.raises(ValueError, match=r"\S+ \S+"):
        parse_initial_controllers(text)
