"""Disks that fail under a broker: what stops, what goes on, and what an operator is told."""

import shutil
from pathlib import Path

from broker_agent.data_plane.problems import REPLICAS_MAX, DataProblems
from broker_agent.partitions.effects import ReplicaFailed, StrayLogs
from broker_agent.replica.high_watermarks import HIGH_WATERMARKS_NAME
from broker_agent.replica.log_directory import ReplicaPlace
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import uuid_text
from tests.broker_agent.data_plane.hosted import DIRECTORY, ORDERS, append_of, hosted, orders


async def test_a_directory_that_is_gone_stops_its_replicas_and_is_told(tmp_path: Path) -> None:
    """The controllers give its leaderships to others; the log, /healthz and the metrics name it."""
    async with hosted(tmp_path / "log") as broker:
        await broker.write(*orders(2, alone=True))
        await broker.leads(0, 1)
        shutil.rmtree(tmp_path / "log")
        first = await broker.stub.Append(append_of(0, 1, acks=1, timeout_ms=2_000))
        later = await broker.stub.Append(append_of(0, 1, acks=1, timeout_ms=2_000))

        assert all(each.error.code != ErrorCode.NONE for each in first.results)
        assert {each.error.code for each in later.results} == {ErrorCode.STORAGE_ERROR}
        assert broker.failed == [DIRECTORY]
        (problem,) = broker.data_plane.problems.all()
    assert problem.code == "log_directory_failed"
    assert problem.subject == f"log directory {uuid_text(DIRECTORY)}"
    assert "log directory failed" in broker.lines.events
    assert "all log directories failed" in broker.lines.events


def test_many_failed_replicas_have_some_texts() -> None:
    """Each names its replica, and what to do; the metric counts all."""
    problems = DataProblems()
    for partition in range(REPLICAS_MAX + 5):
        problems.replica_failed(ReplicaFailed(ReplicaPlace(ORDERS, partition), "damage at byte 7"))

    assert len(problems.all()) == REPLICAS_MAX
    assert problems.all()[3].subject == f"replica {uuid_text(ORDERS)}-3"
    assert "damage at byte 7" in problems.all()[3].text


def test_stray_logs_are_a_problem_until_none_is_left() -> None:
    """An operator decides about them: a topic may be missing from a recovered history by accident."""
    problems = DataProblems()
    strays = tuple((DIRECTORY, ReplicaPlace(ORDERS, partition)) for partition in range(9))
    problems.stray_logs(StrayLogs(strays))

    (problem,) = problems.all()
    assert problem.subject == "stray logs"
    assert problem.text.startswith("9 logs belong to no replica")
    problems.stray_logs(StrayLogs(()))
    assert problems.all() == ()


async def test_a_damaged_file_of_high_watermarks_is_in_the_log(tmp_path: Path) -> None:
    """No record is lost, but consumers may wait for the followers: an operator sees why."""
    (tmp_path / HIGH_WATERMARKS_NAME).write_bytes(b"rubbish")
    async with hosted(tmp_path) as broker:
        fields = broker.lines.fields[broker.lines.events.index("high watermarks lost")]

    assert fields["directory"] == uuid_text(DIRECTORY)
    assert "only 7 bytes" in str(fields["reason"])
