"""The one history: everything that was ever committed, kept by an observer that no fault can reach.

It grows when a leader's high watermark does, batch by batch, and is replayed batch by batch; so for every offset at which
any node may stand there is a chain and a digest to compare with, whatever that node took at once, loaded from a snapshot
or decided by itself.
"""

import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.codec import UnknownRecord, decode_batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, Offset
from metadata_log.format.records import AbortTransaction, Record, SkippedBatch, Voters
from metadata_log.format.records.transactions import TRANSACTION_MARKERS
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from metadata_log.image.replay import Replay
from metadata_log.store.log import Log
from quorum.core.protocol.voters import VoterSet
from tests.sim.skips import Skips

READ_BYTES = 1 << 20
END_OF_TIME: Offset = 1 << 62


class Step(NamedTuple):
    """One committed batch, and what it did.

    A batch inside of a transaction has no records here. The batch that ends the transaction has the records of all of it, without
    the markers; the batch that aborts it has none.
    """

    before: MetadataImage
    batch: Batch
    records: tuple[Record | UnknownRecord, ...]
    after: MetadataImage
    end: Offset
    """One past the last record above: what the answer to its request names."""


class Span(NamedTuple):
    """A transaction of the history: from its BeginTransaction to its last marker."""

    begin: Offset
    last: Offset


class History:
    """The committed history."""

    def __init__(self, bootstrap: Voters) -> None:
        self._replay = Replay()
        self._voters: list[tuple[Offset, VoterSet]] = [(0, VoterSet(bootstrap.voters))]
        self._batches: list[Batch] = []
        self._ends: list[Offset] = []
        self._chains: dict[Offset, bytes] = {}
        self._digests: dict[Offset, bytes] = {0: EMPTY_IMAGE.digest_bytes}
        self.transactions = Counter[str]()
        """How many transactions have ended, and were aborted."""
        self._unfinished: list[Record | UnknownRecord] = []
        """The records of the transaction that is open."""
        self.skips = Skips()
        self._spans: list[Span] = []
        """The transactions so far. The last one may be open."""

    @property
    def end(self) -> Offset:
        """One past the last committed record."""
        return self._ends[-1] if self._ends else 0

    @property
    def epoch(self) -> Epoch:
        """Of the last committed record."""
        return self._batches[-1].epoch if self._batches else 0

    @property
    def image(self) -> MetadataImage:
        return self._replay.image

    def extend(self, logs: Sequence[Log], until: Offset) -> Iterator[Step]:
        """All that `logs` hold up to `until`, each of them the same, is committed now. One will do, if it is not damaged there.

        Raises:
            ReplayStopped: a record that was committed fits nowhere.
        """
        while self.end < until:
            for batch in self._read(logs, until):
                yield self.take(batch)

    def _read(self, logs: Sequence[Log], until: Offset) -> tuple[Batch, ...]:
        for log in logs:
            with contextlib.suppress(CorruptLog):  # a leader may commit what has rotted in its own log
                return log.read(self.end, READ_BYTES, until)
        raise AssertionError(f"nobody who is up can be asked what was committed from {self.end} to {until}")

    def take(self, batch: Batch) -> Step:
        """Appends the next committed batch.

        Raises:
            ReplayStopped: a record fits nowhere.
        """
        before = self.image
        is_poison = self.skips.is_poison(batch)
        records = () if is_poison else tuple(decode_batch(batch))
        self.skips.committed(batch, records)
        if is_poison:
            start, end = batch.base_offset, batch.end_offset
            self._replay.learn([SkippedBatch(start, batch.epoch, batch.chain, start, end)])
        after = self._replay.apply((batch,)).image
        end = batch.end_offset
        previous_chain = self._chains.get(batch.base_offset)
        assert previous_chain is None or verify_chain(batch, previous_chain), f"two histories at {batch.base_offset}"
        self._batches.append(batch)
        self._ends.append(end)
        self._chains[end] = batch.chain
        self._digests[end] = after.digest_bytes
        for index, record in enumerate(records):
            if isinstance(record, Voters):
                self._voters.append((batch.base_offset + index, VoterSet(record.voters)))
        return self._step(before, batch, records, after)

    def _step(
        self, before: MetadataImage, batch: Batch, records: tuple[Record | UnknownRecord, ...], after: MetadataImage
    ) -> Step:
        markers = [at for at, record in enumerate(records, batch.base_offset) if type(record) in TRANSACTION_MARKERS]
        was_open = bool(self._spans) and self._spans[-1].last == END_OF_TIME
        if batch.is_control or not (markers or was_open):
            return Step(before, batch, records, after, batch.end_offset)
        if not was_open:
            self._spans.append(Span(markers[0], END_OF_TIME))
        self._unfinished += [record for record in records if type(record) not in TRANSACTION_MARKERS]
        if self._replay.transaction is not None:
            return Step(before, batch, (), after, batch.end_offset)
        self._spans[-1] = self._spans[-1]._replace(last=markers[-1])
        is_aborted = isinstance(records[-1], AbortTransaction)
        done = () if is_aborted else tuple(self._unfinished)
        self.transactions["aborted" if is_aborted else "ended"] += 1
        self._unfinished.clear()
        return Step(before, batch, done, after, batch.end_offset - 1)

    def is_inside_transaction(self, offset: Offset) -> bool:
        """True if what ends at `offset` stands between the markers of a transaction, which was not its own."""
        place = bisect_left(self._spans, offset, key=lambda span: span.begin) - 1
        return place >= 0 and offset < self._spans[place].last

    @property
    def voters(self) -> VoterSet:
        """The newest voter set that is committed."""
        return self._voters[-1][1]

    def voters_below(self, offset: Offset) -> VoterSet:
        """The voter set in force for whoever holds the history up to `offset`."""
        return next(voters for at, voters in reversed(self._voters) if at < offset or at == 0)

    def epoch_below(self, offset: Offset) -> Epoch:
        """The epoch of the committed record at `offset - 1`; 0 at 0."""
        assert offset <= self.end
        return self._batches[bisect_left(self._ends, offset)].epoch if offset > 0 else 0

    def chain_at(self, offset: Offset) -> bytes | None:
        """The chain at a committed batch boundary above 0; None elsewhere."""
        return self._chains.get(offset)

    def digest_at(self, offset: Offset) -> bytes | None:
        """The digest of the image at a committed batch boundary; None elsewhere."""
        return self._digests.get(offset)

    def agrees(self, offset: Offset, digest: bytes) -> bool:
        """True if an image at the committed batch boundary `offset` may have `digest`."""
        return self.skips.agrees(self.digest_at(offset), offset, digest)

    def batch_at(self, offset: Offset) -> Batch:
        """The batch that begins at boundary `offset`."""
        return self._batches[bisect_left(self._ends, offset + 1)]

    def data(self, offset: Offset, until: Offset) -> bytes:
        """The bytes of the batches from boundary `offset` to boundary `until`."""
        first = bisect_left(self._ends, offset + 1)
        last = bisect_left(self._ends, until)
        return b"".join(batch.data for batch in self._batches[first : last + 1]) if until > offset else b""
