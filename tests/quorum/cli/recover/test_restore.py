"""A restore to a point in time: the log is cut to whole batches, the undone records are listed first, and are kept aside."""

from pathlib import Path

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.records import (
    TOPIC_RESOURCE,
    BeginTransaction,
    Config,
    EndTransaction,
    FeatureLevel,
    NoOp,
    RemoveTopic,
    Topic,
)
from metadata_log.store.log import Log
from quorum.recovery.plan import plan
from quorum.recovery.survey import survey
from quorum.runtime.disk import recovery_plan
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from snapshots.history.past import Past
from snapshots.history.wanted import Wanted
from tests.quorum.cli.recover.test_recover import (
    Written,
    batches,
    broker,
    contents,
    controller,
    recover,
    recovered,
)

ORDERS = Topic("orders", b"o" * 16)
LIFE: Written = [
    (1, FeatureLevel("metadata.version", 2)),
    (1, ORDERS),
    (1, Config(TOPIC_RESOURCE, "orders", "retention.ms", "86400000")),
    (2, NoOp()),
    (2, RemoveTopic("orders", b"o" * 16)),
    (2, Topic("payments", b"p" * 16)),
]
"""Batches of one record each, of the times 1,000 to 1,005. The deletion at offset 4 was a mistake."""


def topics(path: Path) -> list[str]:
    past = Past(LocalDirectory(path / LOG_DIRECTORY))
    end = past.durable_end()
    return [topic.name for topic in past.shown(Wanted(offset=end), end).image.topics()]


def test_a_deleted_topic_is_there_again(tmp_path: Path) -> None:
    """Everything later is undone too: the report lists each record by the thing that it changed."""
    path = controller(tmp_path / "c", LIFE)
    document = recovered("--directory", path, "--to-offset", 4)
    undone = document["undone"]
    assert (document["kept_end_offset"], undone["records"], undone["listed_all"]) == (4, 2, True)
    assert undone["groups"] == [{"group": "topic", "records": 2}]
    assert [(each["offset"], each["record"], each["what"]) for each in undone["listed"]["topic"]] == [
        (4, "RemoveTopic", "orders"),
        (5, "Topic", "payments"),
    ]
    assert topics(path) == ["orders"]


def test_the_undone_part_is_kept_aside(tmp_path: Path) -> None:
    """A second restore does not take the first one's file for its own."""
    path = controller(tmp_path / "c", LIFE)
    (segment,) = (path / LOG_DIRECTORY).glob("*.log")
    before = batches(path)
    suffix = recovered("--directory", path, "--to-offset", 4)["undone"]["kept_aside_suffix"]
    aside = segment.with_name(segment.name + suffix)
    assert all(batch.data in aside.read_bytes() for batch in before)
    second = recovered("--directory", path, "--to-offset", 2)["undone"]["kept_aside_suffix"]
    assert second != suffix and segment.with_name(segment.name + second).exists() and aside.exists()
    assert topics(path) == ["orders"]


def test_a_time_is_the_last_batch_that_was_appended_by_then(tmp_path: Path) -> None:
    path = controller(tmp_path / "c", LIFE)
    assert recovered("--directory", path, "--to-time", "1970-01-01T00:00:01.003Z")["kept_end_offset"] == 4


def test_a_transaction_is_undone_as_a_whole(tmp_path: Path) -> None:
    """The log is never cut inside: the next leader would abort a transaction that had been committed."""
    written: Written = [*LIFE, (2, BeginTransaction("t")), (2, Topic("half", b"h" * 16)), (2, EndTransaction())]
    path = controller(tmp_path / "c", written)
    assert recovered("--directory", path, "--to-offset", 8)["kept_end_offset"] == 6


def test_the_list_is_shown_first_and_nothing_is_changed(tmp_path: Path) -> None:
    path = controller(tmp_path / "c", LIFE)
    before = contents(path)
    refused = recover("--directory", path, "--to-offset", 2)
    assert refused.exit_code == 2 and "--yes" in refused.stderr
    assert "UNDONE: 4 records from 2 to 6" in refused.stdout
    assert "  config: 1\n    2  1970-01-01T00:00:01.002+00:00  Config  2 orders" in refused.stdout
    assert "86400000" not in refused.stdout, "a value of a config may be a secret"
    assert contents(path) == before


def test_a_long_list_is_shortened_for_people(tmp_path: Path) -> None:
    path = controller(tmp_path / "c", [*LIFE, *[(2, Topic(f"t-{i}", i.to_bytes(16, "big"))) for i in range(30)]])
    shown = recover("--directory", path, "--to-offset", 6, "--dry-run").stdout
    assert "  topic: 30" in shown and "... and 10 more (-o json lists them)" in shown


def test_a_restore_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    """An operator who repeats the command does not begin one more generation."""
    path = controller(tmp_path / "c", LIFE)
    recovered("--directory", path, "--to-offset", 4)
    before = contents(path)
    again = recover("--directory", path, "--to-offset", 4, "--yes")
    assert again.exit_code == 4 and "the only voter already" in again.stderr
    assert contents(path) == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--to-offset", 7), "above the end of the best log, 6"),
        (("--to-time", "1970-01-01T00:00:00.500Z"), "its history begins at 0"),
    ],
)
def test_a_position_outside_the_log_is_refused(tmp_path: Path, words: tuple[object, ...], reason: str) -> None:
    path = controller(tmp_path / "c", LIFE)
    before = contents(path)
    refused = recover("--directory", path, *words, "--yes")
    assert refused.exit_code == 4 and reason in refused.stderr
    assert contents(path) == before


def test_a_log_without_a_snapshot_below_the_cut_is_refused(tmp_path: Path) -> None:
    """No controller could start from its middle."""
    path = controller(tmp_path / "c", LIFE)
    log = Log.open(RealDirectory(path / LOG_DIRECTORY))
    log.drop_prefix(log.shape.end_and_epoch._replace(offset=3, epoch=1))
    log.close()
    refused = recover("--directory", path, "--to-offset", 4, "--yes")
    assert refused.exit_code == 4


def test_the_newer_log_of_a_broker_is_cut_too(tmp_path: Path) -> None:
    gone = controller(tmp_path / "gone", LIFE, node_id=2)
    behind = controller(tmp_path / "c", LIFE[:1])
    store = broker(tmp_path / "b", gone)
    document = recovered("--directory", behind, "--from-broker", store, "--to-offset", 4)
    assert (document["kept_end_offset"], document["taken_over_from_offset"], topics(behind)) == (4, 1, ["orders"])


def test_a_begun_recovery_does_not_become_a_restore(tmp_path: Path) -> None:
    """The plan in the directory is carried out as it was made."""

    path = controller(tmp_path / "c", LIFE)
    directory = RealDirectory(path)
    recovery_plan.save(directory, plan([survey(directory)], None, 5_000).steps)
    refused = recover("--directory", path, "--to-offset", 4, "--yes")
    assert refused.exit_code == 4 and "was not begun with --to-offset" in refused.stderr
    assert recovered("--directory", path)["kept_end_offset"] == 6


def test_a_begun_restore_is_finished_without_its_offset(tmp_path: Path) -> None:

    path = controller(tmp_path / "c", LIFE)
    directory = RealDirectory(path)
    steps = plan([survey(directory)], None, 5_000, Wanted(offset=4)).steps
    recovery_plan.save(directory, steps)
    assert recovery_plan.load(directory) == steps
    document = recovered("--directory", path)
    assert (document["resumed"], document["kept_end_offset"]) == (True, 4)
    assert list((path / LOG_DIRECTORY).glob(f"*.undone-{steps.generation}"))
