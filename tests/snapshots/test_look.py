"""The look at whole logs without Spark: it tells what the rows of all batches tell, and says nothing about a log with damage."""

import json
import random
from collections.abc import Iterable
from pathlib import Path

import msgpack
import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.format.codec import encode_record, encode_records
from metadata_log.format.errors import LogFormatError
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    ClearElr,
    Config,
    EndTransaction,
    PartitionChange,
    Record,
    Topic,
)
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from snapshots.offline.inputs import find_log, find_logs
from snapshots.offline.look import WholeLog, agree, joined
from snapshots.offline.punctuation import PUNCTUATION, Placed, Punctuation
from snapshots.offline.reading.options import parse_options
from snapshots.offline.reading.tables import TableReader
from snapshots.offline.rows import record_rows
from snapshots.offline.scan import FileRange, Scanned, scan
from snapshots.offline.stretch import may_have_punctuation
from tests.snapshots.nodes import Node, copies, flip, segments

pytestmark = pytest.mark.slow

SMALL = LogConfig(segment_bytes=4 << 10, tail_bytes=4 << 10)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("look") / "node", 17, config=SMALL).live(30)


def look_at(paths: list[Path], *, wanted: Iterable[int] = (), **options: object) -> dict[str, WholeLog] | None:
    """Read and join the stretches as the jobs do, in this process."""
    settings = {
        "path": json.dumps([str(path) for path in paths]),
        "mode": "stretches",
        "wanted": json.dumps([*wanted]),
        "until": "flushed",
        **{key: str(value) for key, value in options.items()},
    }
    reader = TableReader(parse_options(settings))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return joined([log.node for log in find_logs([str(path) for path in paths])], rows)


def scanned(path: Path) -> list[tuple[str, Scanned]]:
    log = find_log(str(path))
    found = []
    for segment in log.segments:
        file = log.directory.open(segment.name)
        stretch = FileRange(segment.name, 0, segment.size, None, None)
        found += [(segment.name, each) for each in scan(file, stretch, log.durable_end)]
        file.close()
    return found


@pytest.mark.parametrize("split_bytes", [0, 500, 3_000])
def test_the_look_tells_what_the_rows_of_the_batches_tell(node: Node, split_bytes: int) -> None:
    """However the log is cut into stretches."""
    batches = [(name, each, each.batch) for name, each in scanned(node.path) if each.batch is not None]
    ends = {batch.end_offset: batch for _, _, batch in batches}
    found = look_at([node.path], split_bytes=split_bytes, wanted=ends)
    assert found is not None
    log = found["controller 1"]
    last = batches[-1][2]
    assert (log.batches, log.records, log.size) == (
        len(batches),
        node.journal.shape.end,
        sum(s.length for _, s, _ in batches),
    )
    assert (log.segments, log.first_offset) == (len(segments(node.path)), 0)
    assert log.end == (last.end_offset, last.epoch, last.last_timestamp_ms, last.chain)
    assert {end.offset: end.chain for end in log.ends.values()} == {at: batch.chain for at, batch in ends.items()}
    firsts: dict[int, tuple[int, str, int]] = {}
    for name, each, batch in batches:
        firsts.setdefault(batch.epoch, (batch.base_offset, name, each.position))
    assert [first[1:] for first in log.firsts] == [(epoch, *place) for epoch, place in firsts.items()]
    rows = [row for name, each in scanned(node.path) for row in record_rows("n", name, each, PUNCTUATION)]
    punctuation = log.punctuation
    told = sorted({*punctuation.control, *punctuation.markers, *punctuation.every_topic})
    assert [(each.offset, each.payload) for each in told] == [(row.offset, row.payload) for row in rows]


def test_control_batches_tell_their_ends_unasked(node: Node) -> None:
    found = look_at([node.path])
    assert found is not None
    assert {mark.offset for mark in node.marks} <= set(found["controller 1"].ends)


@pytest.mark.parametrize("seed", range(25))
def test_one_flipped_bit_and_the_look_says_nothing(node: Node, tmp_path: Path, seed: int) -> None:
    """Anywhere in the header or the batches of a segment."""
    dice = random.Random(seed)
    (path,) = copies(node, tmp_path, (1,))
    each = dice.choice(scanned(path))
    position = dice.choice((dice.randrange(60), each[1].position + dice.randrange(each[1].length)))
    flip(path / "@metadata" / each[0], position, dice.randrange(8))
    assert look_at([path], split_bytes=dice.choice((0, 500))) is None


def test_a_missing_segment_and_one_of_another_history_say_nothing(node: Node, tmp_path: Path) -> None:
    gap, mixed, other = copies(node, tmp_path)
    segments(gap)[1].unlink()
    assert look_at([gap]) is None
    assert look_at([other, gap]) is None
    foreign = Node(tmp_path / "foreign", 17, config=SMALL, start=b"\x07" * 32).live(30)
    assert segments(foreign.path)[1].name == segments(mixed)[1].name
    segments(mixed)[1].write_bytes(segments(foreign.path)[1].read_bytes())
    assert look_at([mixed]) is None


def test_logs_agree_if_the_longer_one_has_the_end_of_the_shorter_one(node: Node, tmp_path: Path) -> None:
    same, behind, forked = copies(node, tmp_path)
    for path, records in ((behind, ()), (forked, (Topic("fork", b"f" * 16),))):
        log = Log.open(RealDirectory(path / "@metadata"))
        log.truncate(node.marks[-1].offset)
        if records:
            log.append(records, node.epoch, node.wall_ms)
            log.flush()
        log.close()
    ends = {log.flushed.end for log in find_logs([str(behind), str(forked)]) if log.flushed}
    lagging = look_at([same, behind], wanted=ends)
    assert lagging is not None
    assert agree(lagging.values())
    diverged = look_at([same, forked], wanted=ends)
    assert diverged is not None
    assert not agree(diverged.values())
    unasked = look_at([same, behind])
    assert unasked is not None
    assert agree(unasked.values()) is (node.marks[-1].offset in unasked["controller 1"].ends)


def forms_of(number: int) -> list[bytes]:
    """Return all forms of a small number that MessagePack reads."""
    short = bytes([number])
    heads = [b"\xcc", b"\xd0"]
    for wide, size in ((b"\xcd", 1), (b"\xd1", 1), (b"\xce", 3), (b"\xd2", 3), (b"\xcf", 7), (b"\xd3", 7)):
        heads.append(wide + bytes(size))
    return [short, *(head + short for head in heads)]


@pytest.mark.parametrize(
    "record", [BeginTransaction("t"), EndTransaction(), AbortTransaction("no"), ClearElr(None, None)]
)
def test_no_form_of_punctuation_is_missed(record: Record) -> None:
    packed = encode_record(record)
    items = len(msgpack.unpackb(packed))
    for array in (bytes([0x90 | items]), b"\xdc\x00" + bytes([items]), b"\xdd\x00\x00\x00" + bytes([items])):
        for kind in forms_of(packed[1]):
            for version in forms_of(0):
                assert may_have_punctuation(bytes(80) + b"\xff" + array + kind + version + packed[3:])


def test_few_other_batches_look_like_punctuation() -> None:
    dice = random.Random(1)
    guesses = 0
    for _ in range(300):
        records: list[Record] = [Config(2, "orders", "k", "v")]
        records += [PartitionChange(dice.randbytes(16), dice.randrange(40), (101, 102), 101) for _ in range(20)]
        data = bytes(80) + encode_records(records)
        guesses += may_have_punctuation(data)
    assert guesses < 15


def test_a_transaction_that_began_in_a_deleted_segment_is_below_the_snapshot() -> None:
    """The log stands on the snapshot at 10, and its first segment begins at 4, inside of a transaction."""
    markers = ((6, EndTransaction()), (20, BeginTransaction("t")), (22, AbortTransaction("why")))
    found = Punctuation((), tuple(Placed(offset, 1, 0, record, b"") for offset, record in markers), ())
    assert found.invisible(10, 30) == [(20, 23)]
    with pytest.raises(LogFormatError, match="EndTransaction at offset 6 does not pair"):
        found.invisible(0, 30)
