"""The batches of one partition, in order: which one may be sent, under which stamp, and what an end of an attempt means.

Batches leave in the order in which they came. A batch is `fresh`, then `sent`: it has a stamp, and is in flight or waits for its
next attempt. These rules keep each record of an idempotent producer once and in order:

1. *A stamp is given at the first attempt*, and stays while the batch may be in the log. All attempts of a batch are one append.
2. *After a failure the batches go one by one*: while a batch waits for its next attempt, only the first one of `sent` is sent.
3. *OUT_OF_ORDER_SEQUENCE_NUMBER while an earlier batch was under way* means only that the batch came too early.
4. *Several batches are in flight* only after the present leader epoch has acknowledged one, not long ago. A leader that does not
   know the producer accepts any first sequence, so a second batch must never overtake the first one. At most five batches have
   stamps from the oldest one under way on: a leader remembers so many batches, and must still know the oldest one.
5. *A batch that ends without an acknowledgement leaves a gap* in the sequence. No further batch gets a stamp of this producer
   epoch. Once the batches under way have ended, the partition goes on with the next producer epoch at sequence 0 (KIP-360). The
   leader then refuses late requests of the older epoch.
6. *A batch that is surely not in the log makes all batches behind it void*: these can never be in the log under their stamps,
   because their predecessor is missing for ever. Void batches get new stamps of the next epoch, and are not lost.
7. *A batch that may be in the log is never given another stamp*: it succeeds under its stamp, or it fails.

Example of 5 to 7, with the batches A, B, C in flight under the sequences 0, 10, 20:
  a. The leader refuses A for good (its timestamp is in the future), and then B and C, which come out of order.
  b. A fails, and was not written. B and C are void. When both answers are there, B and C get epoch 1 with the sequences 0 and 10.
  c. In another run the answers of A, B and C are lost. A expires: A may be in the log, so A fails with MayHaveBeenWritten.
  d. B is sent again under sequence 10. If A is in the log, B succeeds. If not, the leader refuses B. A late request with B may
     still arrive after a late A, so B fails with MayHaveBeenWritten, too. D, which was never sent, gets epoch 1 with sequence 0.

*A topic that was deleted and created anew* has another id, and an empty log: all batches begin anew there. A producer without
idempotence has one batch in flight, and no stamps: the order holds, and a repeated batch may be in the log twice.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from clients.metadata.cluster import TopicPartition
from clients.partition_values import CurrentLeader
from clients.producer.batch import Batch
from clients.producer.outcomes import Outcome
from metadata_log.format.data_batch import NO_STAMP, SEQUENCE_MAX, ProducerStamp
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, Uuid

PIPELINE_AGE_MS: Final = 60_000
"""How long after an acknowledgement several batches may be in flight: far less than a leader remembers a silent producer."""


class PartitionQueue:
    """The batches of one partition. Attributes without an underscore are for reading only."""

    def __init__(self, key: TopicPartition, *, in_flight_max: int, is_idempotent: bool) -> None:
        self.key = key
        self.fresh: deque[Batch] = deque()
        self.sent: deque[Batch] = deque()
        self.in_flight = 0
        self.topic_id: Uuid | None = None
        self.hint: CurrentLeader | None = None
        """The leader that a broker has named, until the metadata know a leader as late."""
        self.producer_epoch = 0
        self.next_sequence = 0
        self._in_flight_max = in_flight_max if is_idempotent else 1
        self._is_idempotent = is_idempotent
        self._ordinal = 0
        self._needs_epoch = False
        """True if a batch has left a gap: no stamp of this producer epoch any more."""
        self._acked_ms = 0
        self._acked_epoch: Epoch | None = None
        """The leader epoch of the last acknowledgement under this producer epoch."""

    @property
    def is_empty(self) -> bool:
        return not self.fresh and not self.sent

    def batches(self) -> Iterator[Batch]:
        """Yields all batches, in order."""
        yield from self.sent
        yield from self.fresh

    # --- sending -----------------------------------------------------------------------------------------------------

    def meet_topic(self, topic_id: Uuid) -> None:
        """Takes the id of the topic that now has this name. Batches in flight to the topic before end first."""
        if topic_id == self.topic_id or self.in_flight:
            return
        for batch in self.sent:
            batch.is_void, batch.may_be_written = True, False
        if self.topic_id is not None:
            self.hint = None
            self._begin_epoch()
        self.topic_id = topic_id

    def next_batch(self, leader_epoch: Epoch | None, now_ms: int, linger_ms: int) -> Batch | None:
        """Returns the batch that may be sent now, or None. `linger_ms`: how long a batch that is not full waits."""
        batch = self._candidate(leader_epoch, now_ms)
        return batch if batch is not None and self._ready_ms(batch, leader_epoch, linger_ms) <= now_ms else None

    def next_ms(self, leader_epoch: Epoch | None, now_ms: int, linger_ms: int) -> int | None:
        """The time at which `next_batch` returns a batch if nothing happens before. None: an answer comes first."""
        batch = self._candidate(leader_epoch, now_ms)
        return None if batch is None else self._ready_ms(batch, leader_epoch, linger_ms)

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the first batch fails that nobody was told of."""
        return next((batch.deadline_ms for batch in self.batches() if not batch.is_told), None)

    def _candidate(self, leader_epoch: Epoch | None, now_ms: int) -> Batch | None:
        """Returns the batch whose turn it is, although it may have to wait. None: the queue waits for an answer, or is empty."""
        waiting = self._first_waiting()
        if waiting is not None:
            return waiting if waiting is self.sent[0] else None
        if self._needs_epoch:
            if self.in_flight:
                return None
            self._begin_epoch()
        if not self.fresh or (self.in_flight and not self._may_pipeline(leader_epoch, now_ms)):
            return None
        return self.fresh[0]

    def _ready_ms(self, batch: Batch, leader_epoch: Epoch | None, linger_ms: int) -> int:
        """The time from which the batch may be sent. A later leader than that of the last attempt ends its pause (KIP-951)."""
        if batch.tried_epoch is not None and leader_epoch is not None and leader_epoch > batch.tried_epoch:
            return 0
        if batch.is_closed or len(self.fresh) > 1:
            return batch.retry_ms
        return max(batch.retry_ms, batch.created_ms + linger_ms)

    def begin_attempt(self, batch: Batch, producer_id: int, leader_epoch: Epoch | None) -> None:
        """Notes that `batch`, which `next_batch` has returned, is sent now to the leader of this epoch.

        Gives the batch its stamp at the first attempt.
        """
        if self.fresh and batch is self.fresh[0]:
            self.fresh.popleft()
            batch.is_closed = True
            batch.stamp = self._stamp(producer_id, len(batch.parts))
            batch.ordinal, self._ordinal = self._ordinal, self._ordinal + 1
            self.sent.append(batch)
        batch.sent_as_head = batch is self.sent[0]
        batch.in_flight = True
        batch.tried_epoch = leader_epoch
        batch.attempts += 1
        self.in_flight += 1

    def _stamp(self, producer_id: int, record_count: int) -> ProducerStamp:
        if not self._is_idempotent:
            return NO_STAMP
        stamp = ProducerStamp(producer_id, self.producer_epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + record_count) & SEQUENCE_MAX
        return stamp

    def _first_waiting(self) -> Batch | None:
        """Returns the first batch that has a stamp to keep and waits for its next attempt."""
        return next((batch for batch in self.sent if not batch.in_flight and not batch.is_void), None)

    def _may_pipeline(self, leader_epoch: Epoch | None, now_ms: int) -> bool:
        return (
            self._ordinal - self.sent[0].ordinal < self._in_flight_max
            and self._acked_epoch is not None
            and self._acked_epoch == leader_epoch
            and now_ms < self._acked_ms + PIPELINE_AGE_MS
        )

    def _begin_epoch(self) -> None:
        """Begins the next producer epoch at sequence 0. The void batches become fresh again, in order."""
        assert not self.in_flight and all(batch.is_void for batch in self.sent), f"{self.sent} are under way"
        again: list[Batch] = []
        for batch in self.sent:
            batch.stamp, batch.is_void, batch.may_be_written = NO_STAMP, False, False
            again += batch.halves() if batch.splits else (batch,)
        self.sent.clear()
        self.fresh.extendleft(reversed(again))
        self.producer_epoch += 1
        self.next_sequence = 0
        self._needs_epoch = False
        self._acked_epoch = None

    # --- ends of attempts --------------------------------------------------------------------------------------------

    def acked(self, batch: Batch, leader_epoch: Epoch | None, now_ms: int) -> None:
        """Notes an acknowledgement: the batch is in the log. The batch leaves the queue."""
        self._end_attempt(batch)
        self.sent.remove(batch)
        if not self._needs_epoch:
            self._acked_ms, self._acked_epoch = now_ms, leader_epoch

    def not_acked(self, batch: Batch, outcome: Outcome, retry_ms: int) -> Batch | None:
        """Notes the end of an attempt without an acknowledgement.

        Returns the batch if it has failed and left the queue. Otherwise the batch stays, and is sent again from `retry_ms` on.
        """
        self._end_attempt(batch)
        batch.last_problem = outcome.message
        if batch.is_void:  # an earlier batch has failed meanwhile, and the answer says what was known
            batch.retry_ms = 0
            return self._drop(batch) if batch.is_told else None
        if not outcome.is_sure:
            batch.may_be_written = True
        batch.retry_ms = retry_ms
        if batch.is_told:
            return self._drop(batch)
        if outcome.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_idempotent:
            return self._out_of_order(batch, retry_ms)
        if outcome.is_retriable:
            return None
        if outcome.code is ErrorCode.RECORD_BATCH_TOO_LARGE and len(batch.parts) > 1 and not batch.may_be_written:
            batch.splits = True
            self._void_from(batch)
            batch.retry_ms = 0
            return None
        return self._drop(batch)

    def _out_of_order(self, batch: Batch, retry_ms: int) -> Batch | None:
        if not batch.sent_as_head:
            batch.retry_ms = 0  # the batch came too early, and goes as soon as it is the first one
            return None
        if batch.may_be_written:
            return self._drop(batch)
        self._void_from(batch)
        batch.retry_ms = retry_ms
        return None

    def expired(self, now_ms: int) -> list[Batch]:
        """Returns the batches whose time is over and that nobody was told of. They have left the queue, except for those in
        flight, which leave with the end of the attempt."""
        over: list[Batch] = []
        first = self.sent[0] if self.sent else self.fresh[0] if self.fresh else None
        if first is None or now_ms < first.deadline_ms:
            return over
        for batch in list(self.batches()):
            if now_ms < batch.deadline_ms:
                break
            if batch.is_told:
                continue
            over.append(self.give_up(batch))
        return over

    def give_up(self, batch: Batch) -> Batch:
        """Ends a batch before its acknowledgement, and returns the batch."""
        batch.is_told = True
        if batch.in_flight:
            batch.may_be_written = batch.may_be_written or not batch.is_void
            self._needs_epoch = True
            return batch
        return self._drop(batch)

    def _end_attempt(self, batch: Batch) -> None:
        assert batch.in_flight, f"{batch} was not sent"
        batch.in_flight = False
        self.in_flight -= 1

    def _drop(self, batch: Batch) -> Batch:
        """Takes a batch out of the queue that was not acknowledged."""
        if self.fresh and batch is self.fresh[0]:
            return self.fresh.popleft()
        if not batch.may_be_written or batch.is_void:
            self._void_from(batch)
        self._needs_epoch = True
        self.sent.remove(batch)
        return batch

    def _void_from(self, batch: Batch) -> None:
        """Notes that `batch` will never be in the log under its stamp, and so no batch behind it either."""
        self._needs_epoch = True
        place = self.sent.index(batch)
        for each in list(self.sent)[place:]:
            each.is_void = True
