"""The scan of a segment that may be damaged: one flipped bit is one damaged place, and the batches behind it are
intact.
"""

import itertools
import random
from pathlib import Path

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import HEADER_BYTES, encode
from metadata_log.format.ids import OFFSET_MAX
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from snapshots.offline.dump import batch_lines, record_lines
from snapshots.offline.inputs import NoLogHere, find_log, find_logs
from snapshots.offline.kafka.dump import Range, Tally
from snapshots.offline.rows import RecordRow, peek_type
from snapshots.offline.scan import FileRange, Scanned, scan, split
from snapshots.offline.schema import RECORDS
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.nodes import Node, copies, flip, segments

LENGTH_AT = 4
"""The position of a batch's length in its header."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("scan") / "node", 31).live(15)


def scanned(data: bytes, name: str, until: int | None = None) -> list[Scanned]:
    disk = MemoryDirectory("/d")
    disk.write_atomic(name, data)
    file = disk.open(name)
    return list(scan(file, FileRange(name, 0, file.size(), None, None), until))


def test_an_intact_segment_is_read_to_its_zero_tail(node: Node) -> None:
    last = segments(node.path)[-1]
    found = scanned(last.read_bytes(), last.name)
    assert all(each.error is None and each.chain_ok for each in found)
    batch = found[-1].batch
    assert batch is not None
    assert batch.end_offset == node.journal.shape.end


def test_every_flipped_bit_is_exactly_one_place(node: Node) -> None:
    """P2. For any bit: exactly the batch with that byte is damaged, and the scan reads all other batches."""
    first = segments(node.path)[0]
    intact, dice = first.read_bytes(), random.Random(8)
    batches = scanned(intact, first.name)
    until = batches[-1].batch.end_offset  # type: ignore[union-attr]
    end = batches[-1].position + batches[-1].length
    for _ in range(400):
        position = dice.randrange(end)
        damaged = bytearray(intact)
        damaged[position] ^= 1 << dice.randrange(8)
        found = scanned(bytes(damaged), first.name, until)
        wrong = [each for each in found if each.error is not None or each.chain_ok is False]
        holder = 0 if position < SEGMENT_HEADER_BYTES else max(b.position for b in batches if b.position <= position)
        assert [each.position for each in wrong] == [holder], position
        assert len([each for each in found if each.batch is not None]) >= len(batches) - 1


def test_the_batch_after_a_damaged_one_is_found_wherever_it_begins(node: Node) -> None:
    """A record may end with the first byte of a batch, and a damaged length may point behind the next batch."""
    first = segments(node.path)[0]
    intact = first.read_bytes()
    batches = scanned(intact, first.name)
    places = [each.position for each in batches]
    ends_like_a_beginning = next(i for i, each in enumerate(batches[:-1]) if intact[places[i + 1] - 1] == 1)
    for index, skipped in ((ends_like_a_beginning, 0), (3, 1), (3, 5)):
        damaged = bytearray(intact)
        damaged[places[index] + HEADER_BYTES] ^= 1
        length = places[index + 1 + skipped] - places[index]
        damaged[places[index] + LENGTH_AT : places[index] + LENGTH_AT + 4] = length.to_bytes(4, "big")
        found = scanned(bytes(damaged), first.name)
        assert [each.position for each in found] == places
        assert [each.position for each in found if each.error is not None] == [places[index]]


def test_a_torn_tail_above_the_durable_end_is_not_looked_at(node: Node) -> None:
    last = segments(node.path)[-1]
    intact = scanned(last.read_bytes(), last.name)
    tail = intact[-1]
    torn = bytearray(last.read_bytes())
    torn[tail.position + 90] ^= 4
    durable_end = tail.batch.base_offset  # type: ignore[union-attr]
    assert scanned(bytes(torn), last.name, durable_end) == intact[:-1]
    assert scanned(bytes(torn), last.name)[-1].error is not None


def test_nothing_above_the_end_is_read_after_damage_below_it(node: Node) -> None:
    """The last batch below the durable end is damaged, and the node has written on: the batch above may be half written."""
    first = segments(node.path)[0]
    batches = scanned(first.read_bytes(), first.name)
    damaged = bytearray(first.read_bytes())
    damaged[batches[4].position + 90] ^= 4
    above = batches[5].batch
    assert above is not None
    found = scanned(bytes(damaged), first.name, above.base_offset)
    assert found[:4] == batches[:4]
    assert [(each.position, each.length, each.batch) for each in found[4:]] == [
        (batches[4].position, batches[4].length, None)
    ]


@pytest.mark.parametrize("split_bytes", [1, 500, 4_000, 1 << 30])
def test_stretches_begin_at_batches_and_cover_the_file(node: Node, split_bytes: int) -> None:
    """For any split: the same batches, the same chains, no batch twice."""
    for path in segments(node.path):
        file = RealDirectory(path.parent).open(path.name)
        whole = list(scan(file, FileRange(path.name, 0, file.size(), None, None)))
        stretches = split(file, path.name, split_bytes)
        assert [each for stretch in stretches for each in scan(file, stretch)] == whole
        assert all(before.stop == after.start for before, after in itertools.pairwise(stretches))
        file.close()


def test_a_splitting_that_meets_damage_gives_the_rest_to_one_task(node: Node) -> None:
    first = segments(node.path)[0]
    data = bytearray(first.read_bytes())
    place = scanned(bytes(data), first.name)[4]
    data[place.position] = 0xFF
    disk = MemoryDirectory("/d")
    disk.write_atomic(first.name, bytes(data))
    stretches = split(disk.open(first.name), first.name, 1)
    assert stretches[-1].stop == len(data)
    assert [each.error is not None for s in stretches for each in scan(disk.open(first.name), s)].count(True) == 1


def test_a_log_is_found_by_data_directory_or_by_its_own(node: Node, tmp_path: Path) -> None:
    by_data, by_log = find_log(str(node.path)), find_log(str(node.path / "@metadata"))
    assert by_data == by_log
    assert by_data.node == "controller 1"
    assert by_data.durable_end == node.journal.shape.end
    assert by_data.snapshots == tuple(node.marks)
    assert [log.node for log in find_logs([str(node.path)] * 2)] == ["controller 1", "controller 1 (2)"]
    with pytest.raises(NoLogHere):
        find_log(str(tmp_path / "nowhere"))


def test_a_dump_shows_records_batches_and_damage(node: Node, tmp_path: Path) -> None:
    (path,) = copies(node, tmp_path, (1,))
    records = list(record_lines(str(path), Range(), False, False, Tally()))
    assert len(records) == node.journal.shape.end
    assert records[0].startswith("0  ")
    assert "LeaderChange" in records[0]
    assert [line.split()[0] for line in record_lines(str(path), Range(10, 13), False, False, Tally())] == [
        "10",
        "11",
        "12",
    ]
    flip(segments(path)[0], 500)
    assert sum("DAMAGE" in line for line in record_lines(str(path), Range(), False, False, Tally())) == 1
    assert sum("DAMAGE" in line for line in batch_lines(str(path), Range(), False, False, Tally())) == 1
    assert all(line.startswith("{") for line in batch_lines(str(path), Range(), False, True, Tally()))


def test_a_row_of_a_record_has_the_columns_of_its_table() -> None:
    assert RecordRow._fields == tuple(column.name for column in RECORDS)


def test_the_type_of_a_packed_record_is_seen_without_decoding() -> None:
    import msgpack

    for number in (0, 5, 69, 127):
        assert peek_type(msgpack.packb((number, 0, "x"))) == number
        assert peek_type(msgpack.packb((number, 0, *range(30)))) == number
    assert peek_type(msgpack.packb((200, 0))) == -1


def test_the_type_of_a_record_in_an_unusual_form_is_not_guessed() -> None:
    """MessagePack allows an array's head of five bytes, which our writers never use. The type is not where it should be."""
    assert peek_type(b"\xdd\x00\x00\x00\x03\x05\x00\xa1x") == -1
    assert peek_type(b"\xc0") == -1


def test_a_batch_beyond_the_last_offset_is_damage(node: Node) -> None:
    """Its checksum and chain are right. Its end does not fit into 64 bits with a sign, and ended the table with a traceback."""
    first = segments(node.path)[0]
    intact = first.read_bytes()
    second = scanned(intact, first.name)[1].batch
    before = scanned(intact, first.name)[0]
    assert second is not None and before.batch is not None
    forged = encode(
        second.payload, base_offset=OFFSET_MAX, epoch=second.epoch, record_count=second.record_count,
        first_timestamp_ms=second.first_timestamp_ms, last_timestamp_ms=second.last_timestamp_ms,
        is_control=second.is_control, previous_chain=before.batch.chain,
    )  # fmt: skip
    begin = SEGMENT_HEADER_BYTES + before.length
    found = scanned(intact[:begin] + forged.data, first.name)
    assert [each.batch is None for each in found] == [False, True]
    assert found[1].error == f"the batch would end at offset {forged.end_offset}; {OFFSET_MAX} is the last one"
