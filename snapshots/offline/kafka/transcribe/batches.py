"""The log of Kafka as batches of ours, with Kafka's offsets, epochs and times.

    Kafka   [40,44) control   [44,52) data                       [52,9052) data, 1.4 MB
    ours    [40,44) control   [44,52) data                       [52,6410)   [6410,9052)

A batch of Kafka becomes one of ours, or several: ours have 1 MiB and 12,000 records at most. Kafka itself cuts a change of more
than 10,000 records in the same way. Control and data records never share a batch here; in Kafka neither, except that an unknown
control record becomes a `NoOp`, which is data.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from metadata_log.disk.files import Directory
from metadata_log.format.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, HEADER_BYTES, Batch, encode
from metadata_log.format.codec import encode_record
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset
from metadata_log.format.records import FIRST_CONTROL_TYPE, TYPE_NUMBERS
from snapshots.offline.kafka.batches import Batch as KafkaBatch
from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.log_files import KafkaLog
from snapshots.offline.kafka.records import records
from snapshots.offline.kafka.scan import Scanned, scan_log
from snapshots.offline.kafka.transcribe.records import Transcriber

_PAYLOAD_MAX: Final = BATCH_BYTES_MAX - HEADER_BYTES


class Transcription:
    """The batches of one log, made one by one. The chain is ours: it begins with `chain`, and has no counterpart in Kafka."""

    def __init__(self, transcriber: Transcriber, chain: bytes) -> None:
        self._transcriber = transcriber
        self.chain = chain

    def batches(self, found: Iterable[Scanned], directory: Directory) -> Iterator[Batch]:
        """Return the batches, without damage. A torn tail ends the log.

        Raises:
            CorruptLog: the log is damaged; the error names file, position and offset.
        """
        for scanned in found:
            if scanned.is_torn:
                return
            file = f"{directory.path_text}/{scanned.file}"
            if scanned.error is not None or scanned.batch is None:
                raise CorruptLog.at(file, scanned.position, scanned.expected_offset, scanned.error or "")
            try:
                made = self.pieces(scanned.batch)
            except KafkaFormatError as e:
                raise CorruptLog.at(file, scanned.position, scanned.batch.base_offset, str(e)) from e
            yield from made

    def pieces(self, batch: KafkaBatch) -> list[Batch]:
        """Return one batch of Kafka as batches of ours.

        Raises:
            KafkaFormatError: a record is damaged, or is larger than a batch of ours.
        """
        pieces: list[Batch] = []
        pending: list[bytes] = []
        size, base, was_control = 0, batch.base_offset, False
        for placed in records(batch):
            record = self._transcriber.record(placed, batch.base_offset)
            is_control = TYPE_NUMBERS[type(record)] >= FIRST_CONTROL_TYPE
            packed = encode_record(record)
            if len(packed) > _PAYLOAD_MAX:
                raise KafkaFormatError(
                    f"the record at offset {placed.offset} has {len(packed)} bytes; metaquorum's have {_PAYLOAD_MAX} at most, so "
                    "it cannot be transcribed"
                )
            is_full = size + len(packed) > _PAYLOAD_MAX or len(pending) == BATCH_RECORDS_MAX
            if pending and (is_full or is_control != was_control):
                pieces.append(self._seal(batch, base, pending, was_control))
                base, pending, size = placed.offset, [], 0
            was_control = is_control
            pending.append(packed)
            size += len(packed)
        pieces.append(self._seal(batch, base, pending, was_control))
        return pieces

    def _seal(self, batch: KafkaBatch, base: Offset, packed: list[bytes], is_control: bool) -> Batch:
        made = encode(
            b"".join(packed),
            base_offset=base,
            epoch=batch.epoch,
            record_count=len(packed),
            first_timestamp_ms=max(0, batch.first_timestamp_ms),
            last_timestamp_ms=max(0, batch.max_timestamp_ms),
            is_control=is_control,
            previous_chain=self.chain,
        )
        self.chain = made.chain
        return made


def transcribed(
    log: KafkaLog, transcriber: Transcriber, chain: bytes, since: Offset, until: Offset | None = None
) -> Iterator[Batch]:
    """Return the batches of [since, until), both ends of batches of Kafka. Raises as `Transcription.batches`."""
    transcription = Transcription(transcriber, chain)
    for batch in transcription.batches(scan_log(log, since, until), log.directory):
        if batch.base_offset >= since and (until is None or batch.end_offset <= until):
            yield batch
