"""What a broker reads of replicated partitions, from its disk and from the network: data batches and their records."""

from random import Random
from typing import Final

from metadata_log.format.batch import decode_all, genesis_chain
from metadata_log.format.data_batch import (
    NO_STAMP,
    DataRecord,
    ProducerStamp,
    check_records,
    decode_data,
    encode_data,
    pack_records,
    stamp_of,
)
from metadata_log.format.errors import LogFormatError
from tests.fuzz.sealing import batches_mutated
from tests.fuzz.target import Target
from tests.golden.samples import data_batches

FORMAT: Final = (LogFormatError,)
GENESIS: Final = genesis_chain("sample/0", b"")


def _records(rng: Random, count: int) -> list[DataRecord]:
    return [
        DataRecord(
            rng.randrange(1 << 41),
            rng.choice((None, b"", b"key")),
            rng.randbytes(rng.randrange(60)),
            (("a", b"b"),) * (i % 3),
        )
        for i in range(count)
    ]


def _batch_samples() -> list[bytes]:
    rng = Random(1)
    chain, offset, history = GENESIS, 0, b""
    for i in range(6):
        stamp = NO_STAMP if i == 3 else ProducerStamp(7, 1, offset)
        batch = encode_data(
            pack_records(_records(rng, i + 1)), stamp, base_offset=offset, epoch=1 + i // 3, previous_chain=chain
        )
        chain, offset, history = batch.chain, batch.end_offset, history + batch.data
    return [history, *(batch.data for batch in data_batches())]


def _take_batches(data: bytes) -> None:
    """Every batch, its stamp and its records; what was read can be packed again."""
    for batch in decode_all(data):
        stamp_of(batch)
        assert pack_records(decode_data(batch)).record_count == batch.record_count


def _record_samples() -> list[bytes]:
    return [bytes([count]) + pack_records(_records(Random(count), count)).packed for count in (1, 5, 20)]


def _take_records(data: bytes) -> None:
    """As many records as the first byte says."""
    records = check_records(data[1:], data[0] if data else 0)
    assert records.first_timestamp_ms <= records.last_timestamp_ms


TARGETS: Final = (
    Target("data-batches", _batch_samples, _take_batches, FORMAT, batches_mutated(GENESIS)),
    Target("data-records", _record_samples, _take_records, FORMAT),
)
