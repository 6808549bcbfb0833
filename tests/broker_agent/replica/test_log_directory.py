"""The logs of a broker's log directory: found by topic id, deleted as a whole, and few with open files."""

from pathlib import Path

import pytest

from broker_agent.replica.log_directory import LogDirectory, ReplicaPlace, place_of
from metadata_log.disk.files import Directory, RealDirectory
from tests.broker_agent.replica.partition_logs import NOW_MS, SMALL, TOPIC_ID, append
from tests.sim.world.disk import MemoryDirectory

PLACES = [ReplicaPlace(TOPIC_ID, 0), ReplicaPlace(TOPIC_ID, 12), ReplicaPlace(bytes(16), 3)]


@pytest.fixture(params=["real", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return RealDirectory(tmp_path / "data") if request.param == "real" else MemoryDirectory()


def test_logs_are_found_by_their_names(directory: Directory) -> None:
    logs = LogDirectory(directory)
    for place in PLACES:
        log = logs.open(place, wall_ms=NOW_MS, config=SMALL)
        append(log, place.partition + 1)
        log.flush()
        logs.close(log)
    directory.subdirectory("lost+found")
    directory.write_atomic("meta.properties", b"")

    logs = LogDirectory(directory)

    assert sorted(logs.places()) == sorted(PLACES)
    for place in PLACES:
        assert logs.open(place, wall_ms=NOW_MS, config=SMALL).shape.end == place.partition + 1


@pytest.mark.parametrize(
    "name",
    [
        "",
        "@metadata",
        "orders-0",
        "A" * 22,
        "A" * 22 + "-01",
        "A" * 22 + "--1",
        "A" * 21 + "B-0",
        "A" * 22 + "-0.deleted",
    ],
)
def test_other_names_are_no_logs(name: str) -> None:
    assert place_of(name) is None
    assert all(place_of(place.name) == place for place in PLACES)


def test_a_deleted_log_is_gone_and_may_come_again(directory: Directory) -> None:
    logs = LogDirectory(directory)
    for place in PLACES:
        log = logs.open(place, wall_ms=NOW_MS, config=SMALL)
        append(log)
        logs.close(log)

    logs.delete(PLACES[1])
    logs.delete(PLACES[1])

    assert sorted(logs.places()) == sorted([PLACES[0], PLACES[2]])
    assert logs.open(PLACES[1], wall_ms=NOW_MS, config=SMALL).shape.end == 0


def test_a_start_completes_a_deletion(directory: Directory) -> None:
    half = directory.subdirectory(f"{PLACES[0].name}.deleted")
    half.write_atomic("flushed", b"what a crash has left")

    assert LogDirectory(directory).places() == [] == directory.names()


def test_only_the_logs_that_were_used_last_have_open_files(tmp_path: Path) -> None:
    logs = LogDirectory(RealDirectory(tmp_path), open_logs_max=4)
    opened = [logs.open(ReplicaPlace(TOPIC_ID, i), wall_ms=NOW_MS, config=SMALL) for i in range(30)]

    def open_files() -> int:
        return sum(str(tmp_path) in str(link.resolve()) for link in Path("/proc/self/fd").iterdir())

    for log in opened:
        logs.used(log)
    assert open_files() <= 4 * 2
    for log in opened:
        append(log)
        logs.used(log)
    assert open_files() >= 30, "unflushed records keep a log open"
    for log in opened:
        log.flush()
        logs.used(log)
    assert open_files() <= 4 * 2
    for log in opened:
        assert log.read(0, 1, 1)[0].end_offset == 1
        logs.used(log)
    assert open_files() <= 4 * 2
    for log in opened:
        logs.close(log)
    assert open_files() == 0
