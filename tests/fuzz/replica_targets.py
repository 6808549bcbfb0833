"""What a broker reads of replicated partitions, from its disk and from the network: data batches, their records, and the
directory of a replica.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

import google_crc32c

from broker_agent.replica.high_watermarks import HIGH_WATERMARKS_NAME, read_high_watermarks, write_high_watermarks
from broker_agent.replica.log_directory import ReplicaPlace
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
from tests.broker_agent.replica.partition_logs import NOW_MS, SMALL, append, opened
from tests.fuzz.disk_targets import directories_mutated, packed, unpacked
from tests.fuzz.mutation import mutated
from tests.fuzz.sealing import batches_mutated
from tests.fuzz.target import Target
from tests.golden.samples import data_batches
from tests.sim.world.disk import MemoryDirectory

FORMAT: Final = (LogFormatError,)
LOG_CONFIG: Final = SMALL._replace(segment_bytes=900)
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


def _log_samples() -> list[bytes]:
    plain, begun = MemoryDirectory("/fuzz"), MemoryDirectory("/fuzz")
    for directory in (plain, begun):
        log = opened(directory, LOG_CONFIG)
        for i in range(12):
            append(
                log, 1 + i % 3, size=90, stamp=ProducerStamp(7, i // 6, 0) if i % 6 == 0 else NO_STAMP, epoch=1 + i // 5
            )
        log.flush()
        if directory is begun:
            log.delete_below(8)
        log.close()
    return [packed(plain), packed(begun)]


def _take_log(data: bytes) -> None:
    """Opened, read as a whole, cut, appended to, and opened again."""
    directory = unpacked(data)
    log = opened(directory, LOG_CONFIG)
    shape = log.shape
    shape.check_invariants()
    assert shape.flushed_end == shape.end
    place = shape.start.offset
    while batches := log.read(place, 500, shape.end):
        place = batches[-1].end_offset
    assert place == shape.end
    log.truncate(shape.start.offset, NOW_MS)
    append(log, epoch=shape.last_epoch + 1)
    log.flush()
    log.close()
    assert opened(directory, LOG_CONFIG).shape.end == shape.start.offset + 1


def _high_watermark_samples() -> list[bytes]:
    directory = MemoryDirectory()
    write_high_watermarks(directory, {ReplicaPlace(bytes([i]) * 16, i): 1 << i for i in range(20)})
    return [directory.read(HIGH_WATERMARKS_NAME, 1 << 20)]


def _take_high_watermarks(data: bytes) -> None:
    directory = MemoryDirectory()
    directory.write_atomic(HIGH_WATERMARKS_NAME, data)
    write_high_watermarks(directory, read_high_watermarks(directory))


def _high_watermarks_mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    data = mutated(rng, samples)
    return data[:-4] + google_crc32c.value(data[:-4]).to_bytes(4, "big") if rng.random() < 0.7 else data


TARGETS: Final = (
    Target("data-batches", _batch_samples, _take_batches, FORMAT, batches_mutated(GENESIS)),
    Target("partition-directory", _log_samples, _take_log, FORMAT, directories_mutated),
    Target("high-watermarks", _high_watermark_samples, _take_high_watermarks, FORMAT, _high_watermarks_mutated),
    Target("data-records", _record_samples, _take_records, FORMAT),
)
