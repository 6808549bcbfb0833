"""The history of simulated clusters, against the dumb twin: every interval and change is the same, in one run and in many."""

from pathlib import Path

import pytest

from metadata_log.format.ids import Offset
from snapshots.offline.history.tables import BROKER_STATES, CHANGES, ISR_CHANGES, LEADERSHIP, PARTITION_CONDITIONS, Row
from tests.sim.cluster import Cluster
from tests.snapshots.healthy_logs.rounds import export
from tests.snapshots.history.nodes import PastNode
from tests.snapshots.tables import twin
from tests.snapshots.tables.local import LocalHistory, local_history

SEEDS = (11, 33, 39, 92)
"""11 begins with a snapshot; 33 moves replicas; 39 unregisters brokers; 92 fences brokers and changes `min.insync.replicas`."""


def interval(row: Row, key: tuple[object, ...], value: tuple[object, ...]) -> twin.Interval:
    to_time = row.get("to_time")
    return twin.Interval(
        key, value, row["from_offset"], row["from_time"] // 1_000, row.get("to_offset"),
        None if to_time is None else to_time // 1_000, row["began_before"],
    )  # fmt: skip


def leaderships(rows: list[Row]) -> list[twin.Interval]:
    return [
        interval(row, (row["topic_id"], row["partition"]), (row["topic"], row["leader"], row["leader_epoch"]))
        for row in rows
    ]


def conditions(rows: list[Row]) -> list[twin.Interval]:
    return [interval(row, (row["topic_id"], row["partition"], row["condition"]), (row["topic"],)) for row in rows]


def brokers(rows: list[Row]) -> list[twin.Interval]:
    return [
        interval(
            row, (row["broker_id"],),
            (
                row["state"], row["reason"], row["mode"],
                None if row["incarnation_id"] is None else (row["broker_epoch"], row["incarnation_id"]),
            ),
        )
        for row in rows
    ]  # fmt: skip


def configs(rows: list[Row]) -> list[tuple[object, ...]]:
    found = [
        (row["offset"], row["name"], row["field"], row["old"], row["new"]) for row in rows if row["kind"] == "config"
    ]
    return sorted(found, key=lambda each: (each[0], each[1], each[2]))


def isrs(rows: list[Row]) -> list[tuple[object, ...]]:
    found = [(row["offset"], row["topic_id"], row["partition"], row["before"], row["after"]) for row in rows]
    return sorted(found, key=str)


def check(path: Path, history: LocalHistory) -> None:
    """Compare all tables with the twin's."""
    past = list(twin.moments(path, history.end.offset))
    for table, shown, facts in (
        (LEADERSHIP, leaderships, twin.Leaders()),
        (PARTITION_CONDITIONS, conditions, twin.Conditions()),
        (BROKER_STATES, brokers, twin.Brokers()),
    ):
        found = shown(history.rows[table])
        assert len(found) == len(set(found)), table
        assert set(found) == twin.intervals(past, facts), table
    assert configs(history.rows[CHANGES]) == twin.config_changes(past)
    assert isrs(history.rows[ISR_CHANGES]) == twin.isr_changes(past)


def in_pieces(path: Path, ends: list[Offset]) -> LocalHistory:
    """Make the history in as many runs as there are ends; the rows are those of all runs."""
    history = local_history(path, None, ends[0])
    rows = {table: history.closed(table) for table in history.rows}
    for end in ends[1:]:
        history = local_history(path, history, end)
        for table in rows:
            rows[table] += history.closed(table)
    opened = {table: [row for row in found if row.get("day") is None] for table, found in history.rows.items()}
    return history._replace(rows={table: rows[table] + opened[table] for table in rows})


def sortable(history: LocalHistory) -> dict[str, list[str]]:
    return {
        table: sorted(str(sorted(row.items(), key=lambda item: item[0])) for row in rows)
        for table, rows in history.rows.items()
        if table != "_counts"
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_history_of_simulated_clusters_is_the_twins(tmp_path: Path, seed: int) -> None:
    """After crashes, fencings, elections and transactions the tables of each controller's log are those of the twin. Runs that
    add piece by piece give the same rows as one run over all.
    """
    cluster = Cluster(seed)
    cluster.run(1_500)
    path = export(cluster.controllers[0].disk, tmp_path / "c1")
    whole = local_history(path)
    check(path, whole)
    assert whole.rows[LEADERSHIP] and whole.rows[BROKER_STATES]
    begin = min(row["from_offset"] for row in whole.rows[BROKER_STATES])
    ends = [begin + (whole.end.offset - begin) * part // 5 for part in (1, 2, 3, 4, 5)]
    assert sortable(in_pieces(path, ends)) == sortable(whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_histories_with_skips_and_aborts(tmp_path: Path, seed: int) -> None:
    """Records of all types, transactions that are aborted, and batches that were skipped."""
    node = PastNode(tmp_path / "node", seed)
    node.live(10)
    for _ in range(3):
        node.skip_a_batch()
        node.transaction(commit=True)
        node.work(20)
        node.transaction(commit=False)
    node.write_out()
    node.journal.flush()
    whole = local_history(node.path)
    check(node.path, whole)
