"""The producers of one partition: what each has appended last, so that a repeated append changes nothing (KIP-98). Pure.

A producer numbers the records that it sends to a partition: 0, 1, 2, ... (the *sequence*). The log keeps producer id, producer
epoch and base sequence with every batch, so all replicas know the same, and a new leader goes on where the old leader stopped.
The leader remembers the last `BATCHES_KEPT` batches of each producer, because a producer has at most so many in flight:

| the batch that arrives | the leader |
|---|---|
| is one of the remembered batches | appends nothing, and answers with the old offsets |
| continues the last batch | appends it |
| has a newer producer epoch, and begins at sequence 0 | appends it, and forgets the batches of the older epoch |
| has an older producer epoch | refuses it: INVALID_PRODUCER_EPOCH |
| is anything else | refuses it: OUT_OF_ORDER_SEQUENCE_NUMBER |

Example of a gap:
  1. Producer 7 sends A (sequences 0 to 9), then B (10 to 19), to leader 1. A is lost on the way.
  2. If leader 1 appended B now, and then A, the order would be wrong; if producer 7 gave up A, a record would be lost.
  3. So leader 1 refuses B. Producer 7 sends A again, and then B again.

*A producer that the log does not know* must begin at sequence 0, too, as long as the log has all records that were ever
appended. Once the log has lost its first records, or a producer was forgotten, the leader accepts any first sequence of an
unknown producer, as Kafka does: that producer may have begun long ago.

*A producer is forgotten* when it was silent for `producer.id.expiration.ms`, or when there are more than `PRODUCERS_MAX`: then
the one that was silent longest. The clock is that of this broker, so records with old timestamps expire no producer.
"""

from typing import Final, NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.data_batch import SEQUENCE_MAX, ProducerStamp
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset

BATCHES_KEPT: Final = 5
"""How many batches of a producer are remembered, and how many a producer may have in flight, as in Kafka."""
PRODUCERS_MAX: Final = 20_000
"""Maximum number of producers that one partition remembers."""
CHECKPOINT_BYTES: Final = 8 << 20
"""How many bytes of batches lie between two checkpoints. A truncation reads at most so many bytes again."""
CHECKPOINTS_MAX: Final = 4
"""Maximum number of checkpoints that one partition keeps."""


class PartitionRefused(Exception):
    """A request for a partition was refused: a code in Kafka's words, and a text for people. Nothing was changed."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class ProducedBatch(NamedTuple):
    """A batch that a producer has appended: its sequences, and its offsets."""

    base_sequence: int
    last_sequence: int
    base_offset: Offset
    end_offset: Offset


class _Producer(NamedTuple):
    epoch: int
    batches: tuple[ProducedBatch, ...]
    """The last batches of this epoch, oldest first; never empty."""
    seen_ms: int


class ProducerStates:
    """What the log of one partition says about producers."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        """In the order in which the producers were last seen."""
        self.is_complete = True
        """False once a producer may have been forgotten."""

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, stamp: ProducerStamp, record_count: int) -> ProducedBatch | None:
        """Decide on a batch that a producer sends. Return the old batch if this one is a repetition, or None if the batch may be
        appended.

        Raises:
            PartitionRefused: INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if not stamp.is_idempotent:
            return None
        known = self._producers.get(stamp.producer_id)
        if known is None:
            if stamp.base_sequence and self.is_complete:
                raise _out_of_order(stamp, 0)
            return None
        if stamp.epoch < known.epoch:
            text = f"producer {stamp.producer_id} has epoch {known.epoch}, and this batch has epoch {stamp.epoch}"
            raise PartitionRefused(ErrorCode.INVALID_PRODUCER_EPOCH, f"{text}; nothing was appended")
        if stamp.epoch > known.epoch:
            if stamp.base_sequence:
                raise _out_of_order(stamp, 0)
            return None
        last_sequence = stamp.last_sequence(record_count)
        for batch in known.batches:
            if batch.base_sequence == stamp.base_sequence and batch.last_sequence == last_sequence:
                return batch
        expected = (known.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        if stamp.base_sequence != expected:
            raise _out_of_order(stamp, expected)
        return None

    def note(self, stamp: ProducerStamp, base_offset: Offset, record_count: int, now_ms: int) -> None:
        """Note a batch of the log, in the order of the log. What is in the log is not checked again."""
        if not stamp.is_idempotent:
            return
        known = self._producers.pop(stamp.producer_id, None)
        before = known.batches[1 - BATCHES_KEPT :] if known is not None and known.epoch == stamp.epoch else ()
        batch = ProducedBatch(
            stamp.base_sequence, stamp.last_sequence(record_count), base_offset, base_offset + record_count
        )
        self._producers[stamp.producer_id] = _Producer(stamp.epoch, (*before, batch), now_ms)
        if len(self._producers) > PRODUCERS_MAX:
            self._forget(next(iter(self._producers)))

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers that were silent for `expiration_ms`."""
        while self._producers:
            producer_id, oldest = next(iter(self._producers.items()))
            if oldest.seen_ms > now_ms - expiration_ms:
                return
            self._forget(producer_id)

    def _forget(self, producer_id: int) -> None:
        del self._producers[producer_id]
        self.is_complete = False

    def copy(self) -> "ProducerStates":
        copy = ProducerStates()
        copy._producers = dict(self._producers)
        copy.is_complete = self.is_complete
        return copy


def _out_of_order(stamp: ProducerStamp, expected: int) -> PartitionRefused:
    text = f"producer {stamp.producer_id} sent sequence {stamp.base_sequence} where {expected} is expected"
    return PartitionRefused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{text}; nothing was appended. Send the batches before first"
    )


class ProducerCheckpoints:
    """The states at the end of a log, and at a few places before, to which a truncation goes back.

    Example: checkpoints are at the offsets 0, 5000 and 9000, and the log ends at 12000. A truncation to 8000 takes the states of
    5000, and the caller notes the batches from 5000 to 8000 again.
    """

    def __init__(self) -> None:
        self.states = ProducerStates()
        self._checkpoints: list[tuple[Offset, ProducerStates]] = []
        self._bytes = 0

    def note(self, batch: Batch, stamp: ProducerStamp, now_ms: int) -> None:
        """Note the next batch of the log."""
        if not self._checkpoints and batch.base_offset:
            self.states.is_complete = False
        if not self._checkpoints or self._bytes >= CHECKPOINT_BYTES:
            self._checkpoints = [*self._checkpoints[1 - CHECKPOINTS_MAX :], (batch.base_offset, self.states.copy())]
            self._bytes = 0
        self._bytes += len(batch.data)
        self.states.note(stamp, batch.base_offset, batch.record_count, now_ms)

    def begin_at(self, start: Offset) -> None:
        """Forget everything: the log is empty now, and begins at `start`."""
        self._checkpoints.clear()
        self._bytes = 0
        self.states = ProducerStates()
        self.states.is_complete = start == 0

    def restore(self, end: Offset, start: Offset) -> Offset:
        """Take the states of the newest checkpoint at or below `end`, and return its offset; without one in the log, take empty
        states, and return the log's `start`. The caller notes the batches from there up to `end` again.
        """
        while self._checkpoints and self._checkpoints[-1][0] > end:
            self._checkpoints.pop()
        if not self._checkpoints or self._checkpoints[-1][0] < start:
            self.begin_at(start)
            return start
        self._bytes = 0
        place, states = self._checkpoints[-1]
        self.states = states.copy()
        return place
