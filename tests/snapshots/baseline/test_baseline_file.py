"""The file of the baseline: read as it was written, and refused before anything is audited if it is anything else."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from metadata_log.format.ids import OffsetAndEpoch
from snapshots.offline import __main__ as cli
from snapshots.offline.audit.baseline import (
    BYTES_MAX,
    Baseline,
    CannotUseBaseline,
    Holder,
    ProvenSnapshot,
    read_baseline,
    write_baseline,
)
from snapshots.offline.inputs import find_logs
from tests.snapshots.nodes import CLUSTER_ID
from tests.snapshots.strict.faults import Small

BASELINE = Baseline(
    CLUSTER_ID, 3_575, 3, b"c" * 32, b"d" * 32, 812,
    (Holder("controller 1", "AQEBAQEBAQEBAQEBAQEBAQ"), Holder("copy", None)),
    (ProvenSnapshot(OffsetAndEpoch(3_000, 3), b"s" * 32),),
)  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = Small(tmp_path_factory.mktemp("node") / "node", 1).beginning().end()
    return small.path


@pytest.mark.parametrize("baseline", [BASELINE, BASELINE._replace(cluster_id=None, holders=(), snapshots=())])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, node: Path, baseline: Baseline) -> None:
    file = str(tmp_path / "baseline.json")
    logs = find_logs([str(node)])
    assert read_baseline(file, logs) is None
    for each in (baseline, baseline._replace(end=4_000)):
        write_baseline(file, each)
        assert read_baseline(file, logs) == each
    assert [each.name for each in tmp_path.iterdir()] == ["baseline.json"]


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(BASELINE.to_text()), **fields})


WRONG = {
    "empty": ("", "Expecting value"),
    "garbage": ("\x00\x01 no json", "Expecting value"),
    "another document": ("[]", "does not say format"),
    "another format": (changed(format="other"), "does not say format"),
    "a later version": (changed(version=2), "it has version 2, and this release knows version 1"),
    "no offset": (changed(offset=None), "offset is None"),
    "offset of zero": (changed(offset=0), "offset is out of range"),
    "huge offset": (changed(offset=10**400), "offset is out of range"),
    "offset as truth": (changed(offset=True), "offset is True"),
    "short chain": (changed(chain="00"), "chain has 1 bytes instead of 32"),
    "no hex": (changed(digest="zz"), "non-hexadecimal"),
    "holders as text": (changed(holders="all"), "holders is 'all'"),
    "holder as number": (changed(holders=[1]), "holders is not a list"),
    "long cluster id": (changed(cluster_id="x" * 1_000), "cluster_id is too long"),
    "snapshot without offset": (changed(snapshots=[{}]), "offset is None"),
    "nested": ("[" * 100_000, "recursion"),
    "too large": (changed(note="x" * BYTES_MAX), f"more than {BYTES_MAX} bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_before_anything_is_done(tmp_path: Path, node: Path, name: str) -> None:
    """Exit code 2, as for each wrong use. Spark does not start, and the file stays as it is."""
    content, reason = WRONG[name]
    file = tmp_path / "baseline.json"
    file.write_text(content)
    result = CliRunner().invoke(cli.main, ["audit", str(node), "--baseline", str(file)])
    assert result.exit_code == 2, result.output
    told = " ".join(result.output.split())
    assert reason in told
    assert "nothing was audited, and the file was left as it is" in told
    assert file.read_text() == content
    assert [each.name for each in tmp_path.iterdir()] == ["baseline.json"]


def test_a_directory_or_a_pipe_is_no_baseline(tmp_path: Path, node: Path) -> None:
    """A pipe would hold up the audit for ever, and a directory was an error of Arrow without a next step."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("directory", "pipe"):
        with pytest.raises(
            CannotUseBaseline, match="it is no regular file; nothing was audited, and the file was left"
        ):
            read_baseline(str(tmp_path / name), find_logs([str(node)]))


def test_the_baseline_of_another_cluster_is_refused(tmp_path: Path, node: Path) -> None:
    file = str(tmp_path / "baseline.json")
    write_baseline(file, BASELINE._replace(cluster_id="other"))
    result = CliRunner().invoke(cli.main, ["audit", str(node), "--baseline", file])
    assert result.exit_code == 2, result.output
    assert f"is the baseline of cluster other, and {node}" in " ".join(result.output.split())


def test_a_wrong_place_is_refused(tmp_path: Path, node: Path) -> None:
    logs = find_logs([str(node)])
    with pytest.raises(CannotUseBaseline, match="lies in a directory that is audited"):
        read_baseline(str(node / "baseline.json"), logs)
    with pytest.raises(CannotUseBaseline, match="lies in a directory that is audited"):
        read_baseline(f"file://{node}/baseline.json", logs)
    with pytest.raises(CannotUseBaseline, match="there is no directory"):
        read_baseline(str(tmp_path / "none" / "baseline.json"), logs)


def test_full_needs_a_baseline(node: Path) -> None:
    result = CliRunner().invoke(cli.main, ["audit", str(node), "--full"])
    assert result.exit_code == 2
    assert "--full goes with --baseline" in result.output
