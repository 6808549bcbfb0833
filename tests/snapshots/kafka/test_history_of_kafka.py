"""The history tables of Kafka's logs: the kills of the scenarios are there, and the tables end where records are committed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.store.log import Log
from snapshots.offline import __main__ as cli
from snapshots.offline.commands import running
from snapshots.offline.history.tables import BROKER_STATES, CHANGES, ISR_CHANGES, LEADERSHIP
from snapshots.offline.kafka.log_files import find_kafka_log
from snapshots.offline.kafka_audit.committed import committed_end
from snapshots.offline.kafka_audit.transcribing import CannotProve, transcribe
from snapshots.offline.kafka_audit.walk import walk
from tests.snapshots.kafka.edits import SEGMENT, batches_of, find, reseal
from tests.snapshots.kafka.given import METADATA, nodes, unpack
from tests.snapshots.tables.local import LocalHistory, local_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = {"voters-3.9.1": [2], "elr-4.1.1": [3, 1, 3, 2], "upgraded-4.2.0": [3]}
"""The brokers that `scenarios.py` kills, in order. The active controllers of elr-4.1.1 are brokers: `fail_over` kills them.
Broker 2 of upgraded-4.2.0 is killed last, and unregistered before its session has ended."""


def history_of(name: str, tmp_path: Path) -> tuple[LocalHistory, list[Path]]:
    directories = [unpack(name, node, tmp_path) for node in nodes(name)]
    transcribe(map(LocalDirectory, directories), RealDirectory(tmp_path / "own"), uncommitted=False)
    return local_history(tmp_path / "own"), directories


def fences_in(directory: Path) -> list[tuple[int, int]]:
    """Return each broker that is fenced at the end of a batch, with this end. One batch fences broker 2 and unfences it again."""
    ends: dict[tuple[int, int], int] = {}
    for each in find(directory, lambda r: r.name == "BrokerRegistrationChangeRecord" and r.fields["fenced"] != 0):
        assert each.scanned.batch is not None
        ends[each.record.fields["brokerId"], each.scanned.batch.end_offset] = each.record.fields["fenced"]
    return [place for place, fenced in ends.items() if fenced == 1]


@pytest.mark.parametrize("name", KILLS)
def test_the_kills_of_a_scenario_are_outages_of_brokers(name: str, tmp_path: Path) -> None:
    """Each kill is an interval `fenced` because the session has ended. It begins with the fence in Kafka's log."""
    history, directories = history_of(name, tmp_path)
    outages = [row for row in history.rows[BROKER_STATES] if row["reason"] == "session_ended"]
    outages.sort(key=lambda row: row["from_offset"])
    assert [row["broker_id"] for row in outages] == KILLS[name]
    assert [(row["broker_id"], row["from_offset"]) for row in outages] == fences_in(directories[0])
    for row in outages:
        states = [each for each in history.rows[BROKER_STATES] if each["broker_id"] == row["broker_id"]]
        assert [each["state"] for each in states if each["from_offset"] == row["to_offset"]] == ["registered"]
    gone = [row["broker_id"] for row in history.rows[BROKER_STATES] if row["state"] == "unregistered"]
    assert gone == ([2] if name == "upgraded-4.2.0" else [])


@pytest.mark.parametrize("name", KILLS)
def test_the_killed_broker_loses_its_leaderships_and_leaves_isrs(name: str, tmp_path: Path) -> None:
    history, _ = history_of(name, tmp_path)
    for row in (row for row in history.rows[BROKER_STATES] if row["reason"] == "session_ended"):
        at = row["from_offset"]
        leads_on = [
            each
            for each in history.rows[LEADERSHIP]
            if each["leader"] == row["broker_id"] and each["from_offset"] < at < each.get("to_offset", at + 1)
        ]
        assert leads_on == []
        left = [each for each in history.rows[ISR_CHANGES] if row["broker_id"] in each["left"] and each["offset"] <= at]
        assert left, "the broker was in ISRs"


def test_a_change_of_a_config_names_old_and_new_value(tmp_path: Path) -> None:
    history, _ = history_of("elr-4.1.1", tmp_path)
    changed = [row for row in history.rows[CHANGES] if row["field"] == "max.message.bytes"]
    assert [(row["name"], row["old"], row["new"]) for row in changed] == [("topic orders", None, "2000000")]
    levels = [row["new"] for row in history.rows[CHANGES] if row["name"] == "kafka.metadata.version"]
    assert levels == ["27"]


def test_a_log_that_begins_at_a_snapshot(tmp_path: Path) -> None:
    """Kafka has deleted [0, 225): the history begins with the state of the snapshot at 225."""
    node = unpack("elr-4.1.1", "node-1", tmp_path)
    at = next(each for each in batches_of(node) if each.batch is not None and each.batch.base_offset == 225)
    old = node / METADATA / f"{0:020}.log"
    (node / METADATA / f"{225:020}.log").write_bytes(old.read_bytes()[at.position :])
    old.unlink()
    transcribe([LocalDirectory(node)], RealDirectory(tmp_path / "own"), uncommitted=True)
    history = local_history(tmp_path / "own")
    outages = [row for row in history.rows[BROKER_STATES] if row["reason"] == "session_ended"]
    assert [(row["broker_id"], row["from_offset"]) for row in outages] == [(2, 261)]
    assert {row["broker_id"] for row in history.rows[BROKER_STATES] if row["began_before"]} == {1, 2, 3}


# --- what is committed ------------------------------------------------------------------------------------------------


def proven(*directories: Path) -> tuple[int, str]:
    logs = [find_kafka_log(LocalDirectory(each)) for each in directories]
    found = committed_end(logs, walk(logs))
    return found.end, found.proof


def test_a_majority_proves_what_one_node_cannot(tmp_path: Path) -> None:
    one, two, three = (unpack("elr-4.1.1", node, tmp_path) for node in nodes("elr-4.1.1"))
    assert proven(two)[0] == 242 and "snapshot" in proven(two)[1]
    assert proven(two, three)[0] == 275 and "a majority of the voters [1, 2, 3]" in proven(two, three)[1]
    assert proven(one, two, three)[0] == 275


def test_a_voter_that_knows_a_later_epoch_takes_the_proof_away(tmp_path: Path) -> None:
    """The directory of node 1 is missing, and node 2 has voted in epoch 7: its leader may have replaced the tail."""
    two, three = (unpack("elr-4.1.1", node, tmp_path) for node in ("node-2", "node-3"))
    state = two / METADATA / "quorum-state"
    state.write_text(json.dumps({**json.loads(state.read_text()), "leaderEpoch": 7}))
    assert proven(two, three)[0] == 247
    state.unlink()
    assert proven(two, three)[0] == 247
    one = unpack("elr-4.1.1", "node-1", tmp_path)
    assert proven(one, two, three)[0] == 275, "all voters are there, and no log has a batch of epoch 7"


def old_leader(node: Path) -> int:
    """Let a node have led epoch 4 alone, with a longer log than the others have of epoch 6. Return where its tail begins."""
    segment = node / METADATA / SEGMENT
    found = [(each, each.batch) for each in batches_of(node) if each.batch is not None]
    begin, first = next((each, batch) for each, batch in found if batch.epoch == 6)
    tail = bytearray(next(batch.data for _, batch in found if batch.record_count == 1 and not batch.is_control))
    data = segment.read_bytes()[: begin.position]
    for offset in range(first.base_offset, 300):
        tail[:8], tail[12:16] = offset.to_bytes(8, "big"), (4).to_bytes(4, "big")
        data += reseal(tail)
    segment.write_bytes(data)
    for path in (node / METADATA).glob("*.checkpoint"):
        if int(path.name[:20]) > first.base_offset:
            path.unlink()
    return first.base_offset


def test_the_longer_tail_of_an_old_leader_does_not_count(tmp_path: Path) -> None:
    """Node 1 led epoch 4, and has a tail up to 300 alone. Node 2 leads epoch 6, and has more records than node 3."""
    one, two, three = (unpack("elr-4.1.1", node, tmp_path) for node in nodes("elr-4.1.1"))
    old_leader(one)
    segment = three / METADATA / SEGMENT
    last = batches_of(three)[-1]
    assert last.batch is not None
    segment.write_bytes(segment.read_bytes()[: last.position])
    assert proven(one, two, three)[0] == last.batch.base_offset < 275


def test_the_log_of_an_old_leader_is_read_up_to_its_tail(tmp_path: Path) -> None:
    """The other nodes prove 275, and node 1 has other records from the beginning of its tail on: it will cut them."""
    one, two, three = (unpack("elr-4.1.1", node, tmp_path) for node in nodes("elr-4.1.1"))
    begin = old_leader(one)
    transcribe(map(LocalDirectory, (one, two, three)), RealDirectory(tmp_path / "own"), uncommitted=False)
    log = Log.open(RealDirectory(tmp_path / "own" / "@metadata"))
    assert log.shape.end == begin
    log.close()


def test_nothing_is_proven_without_snapshot_and_majority(tmp_path: Path) -> None:
    node = unpack("elr-4.1.1", "node-1", tmp_path)
    for path in (node / METADATA).glob("*.checkpoint"):
        path.unlink()
    with pytest.raises(CannotProve, match="--uncommitted"):
        transcribe([LocalDirectory(node)], RealDirectory(tmp_path / "own"), uncommitted=False)


# --- the commands -----------------------------------------------------------------------------------------------------


def test_damage_is_refused_before_spark_starts(tmp_path: Path) -> None:
    node = unpack("elr-4.1.1", "node-1", tmp_path)
    data = bytearray((node / METADATA / f"{0:020}.log").read_bytes())
    data[5_000] ^= 1
    (node / METADATA / f"{0:020}.log").write_bytes(data)
    words = ["history", str(node), "--out", str(tmp_path / "tables"), "--uncommitted"]
    result = CliRunner().invoke(cli.main, words)
    assert result.exit_code == 1
    assert "quorum-offline: transcribing the log of Kafka" in result.stderr
    assert f"{0:020}.log" in result.stderr and "`quorum-offline audit` lists all that is wrong" in result.stderr
    assert not (tmp_path / "tables").exists()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_report_of_a_kafka_cluster(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One page with the audit of all nodes and the history of the first one; the tables stay in --history."""
    directories = [unpack("elr-4.1.1", node, tmp_path) for node in nodes("elr-4.1.1")]

    @contextmanager
    def session(*_: object) -> Iterator[object]:
        yield spark, lambda _: None

    monkeypatch.setattr(running, "session", session)
    page, tables = tmp_path / "page.html", tmp_path / "tables"
    words = ["report", *map(str, directories), "--out", str(page), "--history", str(tables), "-o", "json"]
    result = CliRunner().invoke(cli.main, words)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["errors"], document["warnings"]) == (0, 0)
    text = page.read_text()
    assert "3 nodes agree up to offset 275" in text
    assert "session_ended" in text or "session" in text
    assert {path.name for path in tables.iterdir()} >= {BROKER_STATES, LEADERSHIP, CHANGES}
