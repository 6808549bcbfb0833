"""The jobs as operators run them: a bundle, `spark-submit`, a cluster of three processes, and logs in an object store."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from metadata_log.disk.files import RealDirectory
from snapshots.format import snapshot_name
from snapshots.offline.__main__ import main
from snapshots.offline.audit.baseline import CannotUseBaseline, read_baseline
from snapshots.offline.bundle import Bundle, write_bundle
from snapshots.offline.inputs import find_logs
from snapshots.offline.java import find_java
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.offline.writable import UploadedFile, writable, write_text
from tests.snapshots.nodes import Node, copies
from tests.snapshots.submitted.object_store import ObjectStore, object_store
from tests.snapshots.submitted.spark_cluster import spark_cluster, without_info


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as started:
        yield started


def test_a_bundle_has_the_modules_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = write_bundle(str(tmp_path / "a")), write_bundle(str(tmp_path / "b"))
    assert first.modules.read_bytes() == second.modules.read_bytes()
    names = zipfile.ZipFile(first.modules).namelist()
    assert {"snapshots/offline/__main__.py", "metadata_log/format/codec.py"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "quorum/"))]


def test_the_command_prints_how_to_submit(tmp_path: Path) -> None:
    run = CliRunner().invoke(main, ["bundle", "--out", str(tmp_path), "-o", "json"])
    found = json.loads(run.stdout)
    assert found["command"] == Bundle(Path(found["program"]), Path(found["modules"])).command
    assert "pyarrow" in found["needs"]
    blocked = tmp_path / "file"
    blocked.write_text("")
    run = CliRunner().invoke(main, ["bundle", "--out", str(blocked / "in")])
    assert run.exit_code == 1 and "the bundle was not written" in run.stderr


def test_an_object_appears_as_a_whole(store: ObjectStore) -> None:
    """12 MB go up in two parts. Before the end of the upload no reader sees a byte of them."""
    directory = writable("s3://meta/compacted")
    file = directory.open("x.part", create=True)
    assert isinstance(file, UploadedFile)
    for number in range(12):
        file.write_at(number << 20, bytes([number]) * (1 << 20))
    assert store.objects == {}
    file.flush()
    assert directory.names() == ["x.part"]
    directory.rename("x.part", "x")
    assert directory.names() == ["x"]
    assert directory.open("x").read_at((5 << 20) - 1, 3) == b"\x04\x05\x05"
    directory.remove("x")
    assert not directory.exists("x")


def test_a_text_goes_to_a_path_or_a_url(store: ObjectStore, tmp_path: Path) -> None:
    write_text("s3a://meta/audits/report.html", "clean")
    write_text(str(tmp_path / "report.html"), "clean")
    write_text(f"file://{tmp_path}/other.html", "clean")
    assert store.objects["meta/audits/report.html"] == b"clean"
    assert [file.read_text() for file in sorted(tmp_path.iterdir())] == ["clean", "clean"]
    assert isinstance(writable(f"file://{tmp_path}"), RealDirectory)


def test_a_baseline_may_lie_beside_the_copies_but_not_in_one(store: ObjectStore, tmp_path: Path) -> None:
    node = Node(tmp_path / "node", 2).live()
    for file in filter(Path.is_file, node.path.rglob("*")):
        store.objects[f"meta/controller-1/{file.relative_to(node.path)}"] = file.read_bytes()
    logs = find_logs(["s3://meta/controller-1"])
    assert read_baseline("s3://meta/baseline.json", logs) is None
    with pytest.raises(CannotUseBaseline, match="lies in a directory that is audited"):
        read_baseline("s3://meta/controller-1/baseline.json", logs)
    store.objects["meta/baseline.json"] = b"{}"
    with pytest.raises(CannotUseBaseline, match=r"s3://meta/baseline\.json is no baseline"):
        read_baseline("s3://meta/baseline.json", logs)


@pytest.mark.slow
@pytest.mark.spark
def test_a_cluster_of_machines_compacts_from_and_into_an_object_store(store: ObjectStore, tmp_path: Path) -> None:
    """A master and two workers import the job from the bundle, read two nodes from the store, and write into it."""
    if find_java() is None:
        pytest.skip("no Java")
    node = Node(tmp_path / "node", 2).live()
    for path in copies(node, tmp_path / "copies"):
        for file in filter(Path.is_file, path.rglob("*")):
            store.objects[f"meta/{path.name}/{file.relative_to(path)}"] = file.read_bytes()
    nodes = [f"s3://meta/{name}" for name in ReadOnlyDirectory("s3://meta").names()]
    bundle = write_bundle(str(tmp_path / "bundle"))
    with spark_cluster(tmp_path / "spark") as cluster:
        words = ["compact", nodes[0], "--beside", nodes[1], "--out", "s3://meta/compacted", "-o", "json"]
        run = cluster.submit(bundle.modules, bundle.program, [*words, "--shuffle-partitions", "2"])
    assert run.returncode == 0, run.stdout + without_info(run.stderr)
    name = snapshot_name(node.marks[-1])
    assert json.loads(run.stdout)["path"] == f"s3://meta/compacted/{name}"
    assert store.objects[f"meta/compacted/{name}"] == (node.path / "@metadata" / name).read_bytes()
    assert f"meta/compacted/{name}.part" not in store.objects
