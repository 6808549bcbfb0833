"""Snapshots that were written from bad memory: sealed rightly, and of the wrong content.

A bit flips in a record before the sender packs it. Then every CRC and the chain vouch for the wrong bytes, and the count is
right; only the digest in the footer, which was kept along with the image and not made of what was packed, tells that these are
not the records of that image. For example the setting `retention.ms=2` goes out as `retention.ms=2!`. Whoever downloads that must
refuse it and ask again; the sender's own file is whole, so the next download brings that.

A sender whose file itself is wrong would send it for ever; that is a matter for its operator (`tests/snapshots/test_store.py`).
"""

import random

from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Config, MetadataRecord, Partition
from snapshots.format import snapshot_batches
from snapshots.reader import read_snapshot
from tests.sim.coverage import Coverage
from tests.sim.world.disk import MemoryDirectory, Observer


class Forger:
    """Decides at the beginning of each download whether it is to be wrong."""

    def __init__(self, chance: float, rng: random.Random, coverage: Coverage) -> None:
        self._chance = chance
        self._rng = rng
        self._coverage = coverage
        self._under_way: dict[tuple[str, OffsetAndEpoch], bytes | None] = {}
        """By who downloads and what: all that he is sent instead; None, if he gets what there is."""

    def stop(self) -> None:
        """From now on every download brings what there is."""
        self._chance = 0.0
        self._under_way.clear()

    def piece(
        self, receiver: str, metadata: MemoryDirectory, end: OffsetAndEpoch, position: int, size: int, data: bytes
    ) -> tuple[int, bytes]:
        """The bytes that arrive when a sender reads `data` from its snapshot, of `size` bytes, in `metadata`."""
        if self._chance == 0.0:
            return size, data
        key = receiver, end
        if position == 0:
            wrong = self._rng.random() < self._chance
            self._under_way[key] = self._forged(metadata, end) if wrong else None
        forged = self._under_way.get(key)
        return (size, data) if forged is None else (len(forged), forged[position : position + len(data)])

    def _forged(self, metadata: MemoryDirectory, end: OffsetAndEpoch) -> bytes | None:
        """None where there is no record that would fit in another form."""
        with Observer():
            contents = read_snapshot(metadata, end)
            records: list[MetadataRecord] = list(contents.records)
        places = [at for at, record in enumerate(records) if isinstance(record, Config | Partition)]
        if not places:
            return None
        self._coverage["forged snapshot"] += 1
        chosen = self._rng.choice(places)
        records[chosen] = _with_a_bit_flipped(records[chosen])
        return b"".join(batch.data for batch in snapshot_batches(contents.meta, records, contents.digest))


def _with_a_bit_flipped(record: MetadataRecord) -> MetadataRecord:
    match record:
        case Config(value=str(value)):
            return record._replace(value=f"{value}!")
        case Partition(partition_epoch=epoch):
            return record._replace(partition_epoch=epoch ^ 1)
        case _:
            raise AssertionError(f"{record} was not chosen")
