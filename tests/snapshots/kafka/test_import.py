"""`quorum-offline import kafka`: the snapshot, the list of what it lacks, and its errors. `tests/processes/importing` starts
clusters with such snapshots."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.ids import NO_LEADER, OffsetAndEpoch
from metadata_log.format.records import (
    Config,
    DelegationToken,
    FeatureLevel,
    MetadataRecord,
    Partition,
    ProducerIds,
    UserScramCredential,
)
from snapshots.format import snapshot_name
from snapshots.offline import __main__ as cli
from snapshots.offline.kafka.importing import _Form, import_log
from snapshots.offline.kafka.log_files import find_kafka_log
from snapshots.reader import read_snapshot
from tests.snapshots.kafka.given import LOGS, METADATA, nodes, unpack
from tests.snapshots.kafka.twin import twin_of


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return unpack("elr-4.1.1", "node-1", tmp_path)


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.main, ["import", "kafka", *map(str, words)])


def records_in(directory: Path, end: OffsetAndEpoch) -> list[MetadataRecord]:
    return [*read_snapshot(LocalDirectory(directory), end).records]


@pytest.mark.parametrize("name", LOGS)
def test_the_snapshot_has_what_a_second_fold_finds(name: str, tmp_path: Path) -> None:
    directory = unpack(name, nodes(name)[0], tmp_path)
    result = import_log(find_kafka_log(LocalDirectory(directory)), RealDirectory(tmp_path / "out"))
    kafka, records = twin_of(directory), records_in(tmp_path / "out", result.end)
    by_type: dict[type, list[Any]] = {}
    for record in records:
        by_type.setdefault(type(record), []).append(record)
    assert {(r.resource_type, r.resource_name, r.key): r.value for r in by_type[Config]} == {
        (*resource, key): value for resource, values in kafka.configs.items() for key, value in values.items()
    }
    credentials = ("name", "mechanism", "salt", "storedKey", "serverKey", "iterations")
    assert set(by_type[UserScramCredential]) == {tuple(f[name] for name in credentials) for f in kafka.scram.values()}
    tokens = ("tokenId", "owner", "requester", "renewers", "issueTimestamp", "expirationTimestamp", "maxTimestamp")
    assert by_type.get(DelegationToken, []) == [tuple(f[name] for name in tokens) for f in kafka.tokens.values()]
    assert [r.next_producer_id for r in by_type[ProducerIds]] == [kafka.next_producer_id]
    assert len(by_type[Partition]) == len(kafka.partitions)
    assert all(r.leader == NO_LEADER and not r.directories for r in by_type[Partition])


def test_all_nodes_give_one_file(tmp_path: Path) -> None:
    """Kafka's nodes have their snapshots at different offsets, and the same log."""
    files = set()
    for node in nodes("upgraded-4.2.0"):
        log = find_kafka_log(LocalDirectory(unpack("upgraded-4.2.0", node, tmp_path)))
        result = import_log(log, RealDirectory(tmp_path / f"out-{node}"))
        assert result.base is not None
        files.add(Path(result.path).read_bytes())
    assert len(files) == 1


def test_text_and_json(node: Path, tmp_path: Path) -> None:
    text = run(node, "--out", tmp_path / "a")
    assert (text.exit_code, text.stderr) == (0, "")
    lines = text.stdout.splitlines()
    assert lines[0] == str(tmp_path / "a" / snapshot_name(OffsetAndEpoch(275, 6)))
    assert lines[1] == "26 records at 275@6, read from Kafka's snapshot 274@6 on"
    assert any(
        line.startswith("registrations of brokers            3  the brokers of the new cluster") for line in lines
    )
    as_json = run(node / METADATA, "--out", tmp_path / "b", "-o", "json")
    found = json.loads(as_json.stdout)
    assert (found["end_offset"], found["epoch"], found["base_offset"]) == (275, 6, 274)
    assert found["records"]["Partition"] == 7
    assert {"what": "feature group.version 1", "number": 1, "reason": "this release has no such feature"} in found[
        "left_out"
    ]
    assert (tmp_path / "a" / lines[0].rpartition("/")[2]).read_bytes() == Path(found["path"]).read_bytes()


def test_an_earlier_state(node: Path, tmp_path: Path) -> None:
    result = run(node, "--out", tmp_path / "out", "--to-offset", "139")
    assert result.exit_code == 0, result.stderr
    assert "at 139@1, read from Kafka's snapshot 139@1 on" in result.stdout
    inside = run(node, "--out", tmp_path / "out", "--to-offset", "6")
    assert (inside.exit_code, "no batch ends at offset 6" in inside.stderr) == (1, True)


def test_directories_are_kept_on_request(node: Path, tmp_path: Path) -> None:
    result = run(node, "--out", tmp_path / "out", "--keep-directories")
    assert "directories of replicas" not in result.stdout
    partitions = [r for r in records_in(tmp_path / "out", OffsetAndEpoch(275, 6)) if isinstance(r, Partition)]
    assert {r.directories for r in partitions} == {f["directories"] for f in twin_of(node).partitions.values()}


def test_things_without_a_counterpart_are_left_out() -> None:
    form = _Form(keep_directories=False)
    given: list[MetadataRecord] = [
        FeatureLevel("eligible.leader.replicas.version", 2),
        FeatureLevel("group.version", 1),
        Config(4, "", "a", "1"),
        Config(16, "subscription", "interval.ms", "1"),
        Config(32, "group", "consumer.session.timeout.ms", "1"),
    ]
    assert [*form.records(iter(given))] == [given[2]]
    assert [each.what for each in form.left.list()] == [
        "configs of client metrics",
        "configs of groups",
        "feature eligible.leader.replicas.version 2",
        "feature group.version 1",
    ]


# --- errors: nothing is written, or it says what is there --------------------------------------------------------------


def test_a_snapshot_that_exists_is_kept(node: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(node, "--out", out).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again = run(node, "--out", out)
    assert (again.exit_code, "exists; nothing was written. Choose another directory" in again.stderr) == (1, True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_damage_is_refused_with_its_place(node: Path, tmp_path: Path) -> None:
    """A damaged snapshot, or a damaged log above it: the message names the file, and no file is made."""
    for path in ((node / METADATA / f"{274:020}-{6:010}.checkpoint"), node / METADATA / f"{0:020}.log"):
        sound = path.read_bytes()
        path.write_bytes(sound[:-20] + b"\x00" + sound[-19:])
        result = run(node, "--out", tmp_path / "out")
        assert result.exit_code == 1
        assert path.name in result.stderr and "Nothing was written" in result.stderr
        assert not [*(tmp_path / "out").glob("*")]
        path.write_bytes(sound)


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, "--out", tmp_path / "out")
    assert (result.exit_code, "neither a log directory of Kafka" in result.stderr) == (1, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_neither_spark_nor_arrow_nor_grpc_is_needed(node: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'pyspark', 'pandas', 'grpc'])); "
        f"sys.argv = ['quorum-offline', 'import', 'kafka', {str(node)!r}, '--out', {str(tmp_path / 'out')!r}]; "
        "from snapshots.offline.__main__ import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "26 records at 275@6" in ran.stdout
