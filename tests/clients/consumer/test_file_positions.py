"""The file of positions: durable, whole, checked, and of one program."""

import errno
import json
import os
from pathlib import Path

import pytest

from clients.file_positions import FILE_BYTES_MAX, pack_positions, parse_positions
from metaquorum import FilePositions, PositionsUnusable, StoredPosition, TopicPartition

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))


async def test_positions_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "positions.json"
    store = FilePositions(path)
    assert await store.load() == {}
    await store.save({ORDERS: StoredPosition(10, 5, TOPIC_ID), TopicPartition("höfe", 7): StoredPosition(3)})
    await store.save({ORDERS: StoredPosition(20, 6, TOPIC_ID)})
    assert await FilePositions(path).load() == {
        ORDERS: StoredPosition(20, 6, TOPIC_ID),
        TopicPartition("höfe", 7): StoredPosition(3, None, None),
    }
    assert [each.name for each in path.parent.iterdir()] == ["positions.json"]


async def test_two_programs_do_not_undo_each_others_commits(tmp_path: Path) -> None:
    one, two = FilePositions(tmp_path / "p"), FilePositions(tmp_path / "p")
    await one.load()
    await two.load()
    await one.save({ORDERS: StoredPosition(1)})
    with pytest.raises(PositionsUnusable, match="changed by another program"):
        await two.save({ORDERS: StoredPosition(2)})
    assert (await FilePositions(tmp_path / "p").load())[ORDERS].offset == 1


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
async def test_a_flush_that_failed_is_told_at_each_commit_and_never_repeated(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second flush would succeed although the disk still has the old positions."""
    store = FilePositions(tmp_path / "p")
    await store.load()
    await store.save({ORDERS: StoredPosition(1)})

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as m:
        m.setattr(os, call, fail)
        with pytest.raises(PositionsUnusable, match="the disk did not keep the positions") as first:
            await store.save({ORDERS: StoredPosition(2)})
    there = (tmp_path / "p").read_bytes()
    with pytest.raises(PositionsUnusable) as second:
        await store.save({ORDERS: StoredPosition(3)})
    assert str(second.value) == str(first.value)
    assert (tmp_path / "p").read_bytes() == there
    assert (await FilePositions(tmp_path / "p").load())[ORDERS].offset in (1, 2)


async def test_a_file_that_cannot_be_read_or_written_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(PositionsUnusable, match="directory cannot be read"):
        await FilePositions(tmp_path / "directory").load()
    (tmp_path / "file").write_text("")
    with pytest.raises(PositionsUnusable, match="cannot be written"):
        await FilePositions(tmp_path / "file" / "positions").save({ORDERS: StoredPosition(1)})


@pytest.mark.slow
async def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "positions"
    with path.open("wb") as f:
        f.truncate(FILE_BYTES_MAX + 1)
    with pytest.raises(PositionsUnusable, match="more than the"):
        await FilePositions(path).load()


def test_every_changed_byte_of_a_position_is_noticed() -> None:
    positions = {ORDERS: StoredPosition(1_244, 7, TOPIC_ID)}
    data = pack_positions(positions)
    assert parse_positions(data, "f") == positions
    for place in range(len(data)):
        bad = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            assert parse_positions(bad, "f") == positions, bad
        except PositionsUnusable as e:
            assert "f is damaged" in str(e)


@pytest.mark.parametrize(
    "row",
    [
        ["orders", 0, 1, None],
        ["", 0, 1, None, None],
        ["x" * 250, 0, 1, None, None],
        ["orders", -1, 1, None, None],
        ["orders", 0, -1, None, None],
        ["orders", 0, 1.5, None, None],
        ["orders", True, 1, None, None],
        ["orders", 0, 1 << 63, None, None],
        ["orders", 0, 1, -1, None],
        ["orders", 0, 1, 1, 7],
        ["orders", 0, 1, 1, "short"],
        "orders",
    ],
)
def test_impossible_positions_are_refused(row: object) -> None:
    import google_crc32c

    crc = google_crc32c.value(json.dumps([row]).encode())
    data = json.dumps({"format": 1, "crc": crc, "positions": [row]}).encode()
    with pytest.raises(PositionsUnusable, match="is damaged"):
        parse_positions(data, "f")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "[" * 100_000, '{"format": 1, "positions": 3}'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(PositionsUnusable, match="Move the file away"):
        parse_positions(text.encode(), "f")
