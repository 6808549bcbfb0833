"""`quorum-offline audit` of Kafka's logs: sound logs are clean, and each fault is found at its place, and nothing else."""

import csv
import json
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from metadata_log.disk.read_only import LocalDirectory
from snapshots.offline import __main__ as cli
from snapshots.offline.audit.findings import RULES, Finding, Severity
from snapshots.offline.audit.result import AuditResult
from snapshots.offline.kafka.batches import HEADER_BYTES
from snapshots.offline.kafka_audit.laws import JUDGED, NOT_ASKED
from snapshots.offline.kafka_audit.run import audit_kafka
from snapshots.offline.report.page import report_html
from tests.snapshots.kafka.edits import SEGMENT, batches_of, find, flip, reseal, rewrite
from tests.snapshots.kafka.given import LOGS, METADATA, nodes, unpack
from tests.snapshots.report.page import read_page

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(tmp_path: Path) -> list[Path]:
    return [unpack("elr-4.1.1", node, tmp_path) for node in nodes("elr-4.1.1")]


def audited(*directories: Path) -> AuditResult:
    return audit_kafka([LocalDirectory(each) for each in directories])


def place(finding: Finding) -> tuple[str, str | None, str | None, int | None, int | None]:
    return finding.rule, finding.node, finding.file, finding.position, finding.offset


@pytest.mark.parametrize("name", LOGS)
def test_the_logs_of_real_clusters_are_clean(name: str, tmp_path: Path) -> None:
    """All nodes agree, each record fits, and each snapshot has the state that the log makes."""
    result = audited(*(unpack(name, node, tmp_path) for node in nodes(name)))
    assert result.findings == () and result.is_clean
    assert result.fold is not None and result.activity is not None
    assert {each.end for each in result.snapshots} <= set(result.fold.digests)
    assert len(result.snapshots) == sum(len(log.snapshots) for log in result.logs) >= 8
    assert result.activity.total("type:PartitionChange") >= 10
    assert [led.epoch for led in result.leaders] == sorted({led.epoch for led in result.leaders})


def test_each_flipped_byte_is_found_at_its_file_and_offset(cluster: list[Path]) -> None:
    """In the segment and in every snapshot, in headers and in records: one finding, and nothing else."""
    dice, node = random.Random(4), cluster[1]
    names = [path.name for path in sorted((node / METADATA).iterdir()) if path.suffix in (".log", ".checkpoint")]
    for name in [SEGMENT] * 12 + [name for name in names if not name.startswith("0" * 20)]:
        size = (node / METADATA / name).stat().st_size
        at, mask = dice.randrange(size), 1 << dice.randrange(8)
        (batch,) = [each for each in batches_of(node, name) if each.position <= at < each.position + each.length]
        assert batch.batch is not None
        flip(node, at, name, mask)
        (found,) = audited(*cluster).findings
        assert (found.node, found.file, found.position) == ("node 2", name, batch.position), (name, at, mask)
        assert found.severity is Severity.ERROR
        if name == SEGMENT:
            assert found.offset == batch.batch.base_offset
        flip(node, at, name, mask)


def test_the_page_calls_no_snapshots_identical_whose_bytes_are_not_compared(cluster: list[Path]) -> None:
    """Kafka's nodes write the records of one state in any order, so the audit compares the states."""
    text = read_page(report_html(audited(*cluster))).text
    assert "equals the log" in text
    assert "identical" not in text and "the same file on every node" not in text


def test_a_log_of_one_node_is_enough(cluster: list[Path]) -> None:
    assert audited(cluster[0] / METADATA).is_clean
    flip(cluster[0], 5_000)
    result = audited(cluster[0])
    assert [each.rule for each in result.findings] == ["damaged-batch"]
    assert result.fold is None, "no log is healthy enough for the replay"


def test_a_rewritten_batch_is_found_on_the_odd_node(cluster: list[Path]) -> None:
    """The checksum is right, and two nodes agree. What follows the batch is not compared again."""
    (config,) = find(cluster[1], lambda r: r.name == "ConfigRecord" and r.fields["value"] == "2000000")
    rewrite(cluster[1], config.scanned, b"2000000", b"2000001")
    batch = config.scanned.batch
    assert batch is not None
    assert [place(each) for each in audited(*cluster).findings] == [
        ("history-differs", "node 2", SEGMENT, config.scanned.position, batch.base_offset)
    ]


def test_a_wrong_epoch_of_the_first_batch_is_found(cluster: list[Path]) -> None:
    """No batch is before it, so only the other nodes tell."""
    flip(cluster[0], 14)
    assert [place(each) for each in audited(*cluster).findings] == [("history-differs", "node 1", SEGMENT, 0, 0)]


def test_a_tail_of_an_old_leader_is_no_fault(cluster: list[Path]) -> None:
    """Node 3 has a batch of epoch 5 where others have the beginning of epoch 6, and no snapshot above it."""
    last = next(each for each in batches_of(cluster[2]) if each.batch is not None and each.batch.epoch == 6)
    assert last.batch is not None
    segment = cluster[2] / METADATA / SEGMENT
    tail = bytearray(last.batch.data)
    tail[12:16] = (5).to_bytes(4, "big")
    tail[34] ^= 1  # another time, so it is another batch
    segment.write_bytes(segment.read_bytes()[: last.position] + reseal(tail))
    result = audited(*cluster)
    assert [place(each) for each in result.findings] == [
        ("divergent-tail", "node 3", SEGMENT, last.position, last.batch.base_offset)
    ]
    assert result.is_clean


def test_a_torn_tail_is_listed_and_clean(cluster: list[Path]) -> None:
    segment = cluster[0] / METADATA / SEGMENT
    segment.write_bytes(segment.read_bytes()[:-3])
    result = audited(*cluster)
    assert [each.rule for each in result.findings] == ["torn-tail"]
    assert result.is_clean and result.fold is not None


def test_a_snapshot_with_another_state_is_found(cluster: list[Path]) -> None:
    """Its bytes are sound, and its state is not that of the log."""
    name = f"{225:020}-{4:010}.checkpoint"
    (config,) = find(cluster[0], lambda r: r.name == "ConfigRecord" and r.fields["value"] == "2000000", name)
    rewrite(cluster[0], config.scanned, b"2000000", b"2000001", name)
    assert [place(each) for each in audited(*cluster).findings] == [("snapshot-state", "node 1", name, None, 225)]


def test_a_record_that_does_not_fit_is_found_on_all_nodes_with_its_neighbours(cluster: list[Path]) -> None:
    """A controller with a bug has elected broker 77, which is not in the ISR. Every node has the record."""

    for node in cluster:
        bad = next(find(node, lambda r: r.name == "PartitionChangeRecord" and r.fields["leader"] > 0))
        old = b"\x01\x04" + bad.record.fields["leader"].to_bytes(4, "big")
        rewrite(node, bad.scanned, bad.value, bad.value.replace(old, b"\x01\x04\x00\x00\x00\x4d"))
    findings = [each for each in audited(*cluster).findings if each.rule == "partition-unsound"]
    assert [place(each) for each in findings] == [
        ("partition-unsound", f"node {number}", SEGMENT, bad.scanned.position, bad.offset) for number in (1, 2, 3)
    ]
    assert "leader 77 is not in isr" in findings[0].detail
    assert [near.type for near in findings[0].records if near.offset == bad.offset] == ["PartitionChangeRecord"]


def test_a_record_of_a_later_kafka_is_a_warning(cluster: list[Path]) -> None:
    """No fault of the log: the audit says that it cannot judge the record."""
    for node in cluster:
        noop = next(find(node, lambda r: r.name == "NoOpRecord"))
        rewrite(node, noop.scanned, b"\x08" + noop.value, bytes([8, 1, 90, *noop.value[2:]]))
    (finding,) = audited(*cluster).findings
    assert (finding.severity, finding.rule, finding.offset) == (Severity.WARNING, "unknown-record", noop.offset)


def test_a_damaged_record_under_a_right_checksum_is_found(cluster: list[Path]) -> None:
    for node in cluster:
        noop = next(find(node, lambda r: r.name == "NoOpRecord"))
        at = noop.scanned.position + HEADER_BYTES + len(noop.scanned.batch.data[HEADER_BYTES:]) - 2  # type: ignore[union-attr]
        flip(node, at, mask=0x40)
        data = bytearray((node / METADATA / SEGMENT).read_bytes())
        end = noop.scanned.position + noop.scanned.length
        data[noop.scanned.position : end] = reseal(data[noop.scanned.position : end])
        (node / METADATA / SEGMENT).write_bytes(data)
    findings = audited(*cluster).findings
    assert [place(each) for each in findings] == [
        ("record-malformed", f"node {number}", SEGMENT, noop.scanned.position, noop.offset) for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_wrong_records_under_right_checksums_are_findings_and_no_crash(cluster: list[Path], seed: int) -> None:
    """Bytes of records change, and the checksum is made right: the audit ends, whatever the records say now."""
    dice, path = random.Random(seed), cluster[0] / METADATA / SEGMENT
    sound, places = path.read_bytes(), batches_of(cluster[0])
    for _ in range(20):
        data, chosen = bytearray(sound), dice.choice(places)
        end = chosen.position + chosen.length
        batch = data[chosen.position : end]
        batch[dice.randrange(HEADER_BYTES, len(batch))] = dice.choice([0, 0x7F, 0xFF, dice.randrange(256)])
        data[chosen.position : end] = reseal(batch)
        path.write_bytes(data)
        for finding in audited(cluster[0]).findings:
            assert finding.rule in RULES


def test_a_log_without_its_beginning_needs_a_snapshot(cluster: list[Path]) -> None:
    """Kafka has deleted the first segment, and somebody the snapshots."""
    node = cluster[0]
    at = next(each for each in batches_of(node) if each.batch is not None and each.batch.base_offset == 225)
    data = (node / METADATA / SEGMENT).read_bytes()
    (node / METADATA / f"{225:020}.log").write_bytes(data[at.position :])
    (node / METADATA / SEGMENT).unlink()
    whole = audited(node)
    assert whole.is_clean and whole.fold is not None and min(whole.fold.digests) == 225
    for path in (node / METADATA).glob("*.checkpoint"):
        path.unlink()
    assert [place(each) for each in audited(node).findings] == [("no-snapshot", "node 1", None, None, 225)]


def test_directories_of_two_clusters_are_not_one(cluster: list[Path], tmp_path: Path) -> None:
    other = unpack("upgraded-4.2.0", "node-101", tmp_path)
    assert "clusters-mixed" in [each.rule for each in audited(cluster[0], other).findings]


# --- the command ------------------------------------------------------------------------------------------------------


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.main, ["audit", *map(str, words)])


def test_the_command_needs_no_spark_and_writes_all_forms(cluster: list[Path], tmp_path: Path) -> None:
    flip(cluster[2], 5_000)
    page, table, summary = tmp_path / "page.html", tmp_path / "findings.csv", tmp_path / "summary.json"
    result = run(*cluster, "--report", page, "--findings", table, "--summary", summary)
    assert result.exit_code == 10, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["NODE", "START", "END", "DURABLE", "EPOCH", "BATCHES", "RECORDS", "CHAIN"]
    (line,) = [line for line in lines if line.startswith("ERROR")]
    assert re.match(rf"ERROR   damaged-batch: node 3, {SEGMENT}, byte \d+, offset \d+: the checksum", line)
    assert "1 errors, 0 warnings" in lines
    document = json.loads(summary.read_text())
    assert (document["verdict"], document["reference"], len(document["findings"])) == ("findings", "node 1", 1)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["rule"], row["node"], row["file"]) for row in rows] == [("damaged-batch", "node 3", SEGMENT)]
    assert "damaged-batch" in page.read_text()
    assert json.loads(run(cluster[0], "-o", "json").stdout)["verdict"] == "clean"


def test_options_that_do_not_fit_are_refused(cluster: list[Path], tmp_path: Path) -> None:
    baseline = run(cluster[0], "--baseline", tmp_path / "b.json")
    assert (baseline.exit_code, "--baseline is for metaquorum's own log" in baseline.output) == (2, True)
    (tmp_path / "empty").mkdir()
    mixed = run(cluster[0], tmp_path / "empty")
    assert (mixed.exit_code, "audit them apart" in mixed.output) == (2, True)
    nothing = run(tmp_path / "empty", "--format", "kafka")
    assert (nothing.exit_code, "neither a log directory of Kafka" in nothing.output) == (1, True)


def test_the_page_names_each_law_that_is_judged_otherwise() -> None:
    """The tables of `laws` name rules that exist, and `docs/kafka-logs.md` has each of them."""
    assert RULES.keys() >= NOT_ASKED.keys() | JUDGED.keys()
    assert not NOT_ASKED.keys() & JUDGED.keys()
    text = (ROOT / "docs" / "kafka-logs.md").read_text()
    for rule in (*NOT_ASKED, *JUDGED):
        assert f"`{rule}`" in text, rule
