"""Files of `_state` that anything may have changed between two runs: a run is refused, and names the file or the record."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metadata_log.format.codec import encode_valid
from metadata_log.format.errors import LogFormatError
from metadata_log.format.records import Config, Partition, Topic
from snapshots.offline.history import engine
from snapshots.offline.history.folding.broker_history import BrokerHistory
from snapshots.offline.history.folding.intervals import pack_row, unpack_row
from snapshots.offline.history.folding.steps import Step, steps_of
from snapshots.offline.history.folding.task import Task, record_of, rows_of_task
from snapshots.offline.history.output import HistoryRefused
from snapshots.offline.history.storage.directory import LocalTables
from snapshots.offline.history.storage.kept_rows import rows_in
from snapshots.offline.history.tables import LEADERSHIP, TABLES
from snapshots.offline.history.topic_packs import EntityRow
from snapshots.offline.history.writer import STATE_SCHEMA, _StateWriter
from snapshots.offline.rows import FROM_SNAPSHOT, entity_text

ROWS = [('["x",7]', 0, at, b"payload %d" % at * 5) for at in range(200)]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    with _StateWriter(LocalTables(tmp_path), 1, 0) as writer:
        for row in ROWS:
            writer.add(row)
        writer.finish()
    (path,) = tmp_path.rglob("*.parquet")
    return path


def whole_rows(path: Path) -> int:
    return engine._whole_rows(LocalTables(path.parent), path.name)


def refused(path: Path) -> str:
    with pytest.raises(HistoryRefused) as e:
        whole_rows(path)
    text = str(e.value)
    assert text.startswith(f"{path} is damaged (") and "\n" not in text
    assert text.endswith("; make the tables anew in another directory. The tables were not changed")
    return text


def test_each_flipped_byte_of_the_state_is_found(state: Path) -> None:
    """The compression has no checksum: a flipped bit in a name made a wrong table, and one elsewhere a traceback of Java."""
    whole = state.read_bytes()
    assert whole_rows(state) == len(ROWS)
    for at in range(4, len(whole) // 2, 7):
        state.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            found = pq.read_table(state).to_pylist() if whole_rows(state) else []
        except HistoryRefused:
            continue
        assert [tuple(row.values()) for row in found] == ROWS, at  # a byte that says nothing, such as a statistic


@pytest.mark.parametrize(
    "spoil",
    [lambda data: data[: len(data) // 2], lambda _: b"", lambda _: b"PAR1" * 900, lambda d: d[:-8] + b"\xff" * 3 + d[-5:]],
    ids=["cut", "empty", "garbage", "footer"],
)  # fmt: skip
def test_a_file_that_is_no_parquet_is_refused(state: Path, spoil: Callable[[bytes], bytes]) -> None:
    state.write_bytes(spoil(state.read_bytes()))
    refused(state)


def test_a_store_that_is_away_is_no_damage(state: Path) -> None:
    """Arrow's error of a store has no number, as that of a damaged page: the operator was told to make the tables anew."""
    content = state.read_bytes()

    class Away(io.BytesIO):
        def read(self, length: int | None = -1, /) -> bytes:
            if self.tell() < len(content) // 2:
                raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation")
            return super().read(length)

    assert rows_in(io.BytesIO(content), STATE_SCHEMA) == len(ROWS)
    with pytest.raises(OSError, match="NETWORK_CONNECTION"):
        rows_in(Away(content), STATE_SCHEMA)


def test_other_columns_and_missing_values_are_refused(state: Path) -> None:
    """A row without an entity was left out in silence."""
    rows: list[dict[str, Any]] = pq.read_table(state).to_pylist()
    pq.write_table(pa.Table.from_pylist([{**rows[0], "entity": None}, *rows[1:]], schema=STATE_SCHEMA), state)
    assert "a value is missing" in refused(state)
    pq.write_table(pa.table({"a": [1] * len(rows)}), state)
    assert "it has other columns" in refused(state)


TOPIC = bytes(range(16))
KEY = entity_text(("topic", "AAECAwQFBgcICQoLDA0ODw"))


def task() -> Task:
    begin = Step(60, 1_000, 3)
    timelines = BrokerHistory()
    timelines.load((), (), begin, goes_on=True)
    return Task(steps_of((), (), 60), begin, True, *timelines.timelines(), (), frozenset(TABLES), 0)


def of_state(entity: str, place: int, payload: bytes) -> EntityRow:
    return EntityRow(entity, FROM_SNAPSHOT, place, 0, 0, 0, payload, None, None)


@pytest.mark.parametrize(
    ("entity", "payloads"),
    [
        (KEY, [encode_valid(Topic("orders", TOPIC)), b"\xc1\xc1"]),
        (KEY, [encode_valid(Topic("orders", TOPIC)), encode_valid(Partition(TOPIC, 7, (1,), (1,), (), (), 1, 0, 0, 0))]),
        (entity_text(("config", "2", "x")), [encode_valid(Config(2, "x", "a", "b")), b"\xc1"]),
    ],
    ids=["topic", "misfit", "config"],
)  # fmt: skip
def test_a_wrong_record_of_the_state_is_not_sought_in_the_log(entity: str, payloads: list[bytes]) -> None:
    """Record 1 of the state was told as a record "at offset 1" of the log."""
    rows = [of_state(entity, place, payload) for place, payload in enumerate(payloads)]
    with pytest.raises(LogFormatError) as e:
        [*rows_of_task(rows, task())]
    assert str(e.value).startswith(f"record 1 in the state of {entity} does not fit: ")
    assert "offset" not in str(e.value) and "`_state` of the tables" in str(e.value)


def test_a_wrong_record_of_a_broker_in_the_state_is_named() -> None:
    records = ((row.offset, record_of(row)) for row in [of_state("b", 4, b"\xc1")])
    with pytest.raises(LogFormatError, match=r"^record 4 in the state of the brokers and configs does not fit: "):
        BrokerHistory().load(records, (), Step(60, 1_000, 3), goes_on=True)


def test_an_open_interval_that_is_none_is_refused() -> None:
    row = {"partition": 3, "from_offset": 5, "from_time": 7}
    assert unpack_row(pack_row(LEADERSHIP, row), KEY) == (LEADERSHIP, row)
    for payload in (b"{]", b"5", b'["leadership",{}]', b'["x",{}]', b'[[],{}]', pack_row(LEADERSHIP, {**row, "odd": 1}),
                    pack_row(LEADERSHIP, {**row, "to_offset": 1}), pack_row(LEADERSHIP, {**row, "partition": "3"})):  # fmt: skip
        with pytest.raises(LogFormatError, match=r"an open interval of .* in `_state` of the tables is damaged"):
            unpack_row(payload, KEY)
