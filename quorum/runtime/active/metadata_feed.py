"""The content of the answer to a broker's fetch, from the broker's position and the committed log.

A broker receives committed batches only, from the requested offset on, and never past the high watermark. A batch larger than the
requested bytes is sent in parts (`metadata_log.format.fetch_size`). So each broker's log is always a prefix of the one committed
history, and a change of leader never takes records back. Example with high watermark 50 and log start 20:
    1. broker 101 fetches from 40 with the right chain: it receives the batches in [40, 50);
    2. broker 102 fetches from 10: it is told to load the snapshot;
    3. broker 103 fetches from 60, so its log has another history: the answer says where the two histories diverge.

An answer with a batch that was skipped (`metadata_log.image.skips`) has the record that skips the batch: a broker that cannot
apply the batch would not come to the record.
"""

from typing import NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.codec import encode_record
from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import BatchPart, as_asked
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.store.log_view import LogView
from quorum.controller.controller import BrokerStanding
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.requests import FetchResult, MetadataFetch, MetadataFetched, Refused

ANSWER_BYTES_MAX = 2 << 20
"""Maximum number of bytes in an answer: half of gRPC's default receive limit."""
RANGES_MAX = 8
"""Maximum number of ranges that are kept until the next commit."""


def position_verdict(fetch: MetadataFetch, log: LogView, high_watermark: Offset) -> MetadataFetched | Refused | None:
    """The answer that makes the broker change its position; None if its position is in the committed history of the log."""
    shape = log.shape
    if fetch.offset == 0 and shape.snapshot is not None:
        return _use_snapshot(shape.snapshot, high_watermark)
    if fetch.offset < shape.start.offset:
        assert shape.snapshot is not None, "a log that starts above 0 stands on a snapshot"
        return _use_snapshot(shape.snapshot, high_watermark)
    if fetch.offset > high_watermark:
        # Every broker receives committed records only, and the high watermark of an active controller covers all records
        # committed before its epoch. So a broker above the high watermark has another history.
        diverging = min(shape.end_of_epoch(fetch.epoch), OffsetAndEpoch(high_watermark, shape.last_epoch))
        return MetadataFetched(FetchResult.DIVERGED, 0, high_watermark, diverging=diverging)
    if fetch.offset == 0:
        return None
    ours = log.chain_at(fetch.offset)
    if ours is None or shape.epoch_below(fetch.offset) != fetch.epoch:
        return MetadataFetched(FetchResult.DIVERGED, 0, high_watermark, diverging=shape.end_of_epoch(fetch.epoch))
    if fetch.chain and fetch.chain != ours:
        return Refused(
            ErrorCode.CHAIN_MISMATCH,
            f"broker {fetch.broker_id} holds another history below offset {fetch.offset}: "
            f"its chain is {fetch.chain.hex()[:16]}, here it is {ours.hex()[:16]}; its store must be fetched anew",
        )
    return None


def _use_snapshot(snapshot: OffsetAndEpoch, high_watermark: Offset) -> MetadataFetched:
    return MetadataFetched(FetchResult.USE_SNAPSHOT, 0, high_watermark, snapshot=snapshot)


class Range(NamedTuple):
    """The part of an answer that is the same for all brokers that ask alike."""

    batches: tuple[Batch, ...]
    part: BatchPart | None
    previous_chain: bytes
    end_offset: Offset
    digest: bytes
    skips: tuple[bytes, ...]


class Ranges:
    """Reads ranges of the committed log, each once between two commits.

    Example with 1,000 brokers that wait at offset 40:
        1. a commit ends at 41; the answer to the first broker reads [40, 41);
        2. the answers to the other 999 brokers have the same range, and read nothing;
        3. a commit ends at 42: the next answer reads anew, also for a broker at 40.
    """

    def __init__(self, log: LogView, state: StateMachine) -> None:
        self.log = log
        self.state = state
        self._until: Offset = 0
        self._found: dict[tuple[Offset, int, int | None], Range] = {}

    def asked_by(self, fetch: MetadataFetch) -> Range:
        """The committed batches from the broker's offset on, as many as fit. Raises CorruptLog."""
        applied = self.state.applied
        if self._until != applied:
            self._until = applied
            self._found.clear()
        max_bytes = max(1, min(fetch.max_bytes, ANSWER_BYTES_MAX))
        asked = fetch.offset, max_bytes, fetch.part_position
        found = self._found.get(asked)
        if found is None:
            if len(self._found) >= RANGES_MAX:
                del self._found[next(iter(self._found))]
            found = self._found[asked] = self._read(fetch.offset, max_bytes, fetch.part_position)
        return found

    def _read(self, offset: Offset, max_bytes: int, part_position: int | None) -> Range:
        log, applied, image = self.log, self.state.applied, self.state.committed
        found = log.read(offset, max_bytes, applied) if offset < applied else ()
        batches, part = as_asked(found, max_bytes, part_position)
        end = batches[-1].end_offset if batches else offset
        if part is not None and part.is_last:
            end = found[0].end_offset
        return Range(
            batches,
            part,
            previous_chain=log.chain_at(offset) or b"",
            end_offset=end,
            digest=image.digest_bytes if image.provenance.offset == end else b"",
            skips=tuple(
                encode_record(skip) for at, skip in log.skipped() if skip.dropped_end > offset and at < applied
            ),
        )


def deltas(
    fetch: MetadataFetch, ranges: Ranges, *, epoch: Epoch, standing: BrokerStanding, lease_ms: int
) -> MetadataFetched:
    """The answer with the committed batches from the broker's offset on, as many as fit; empty without new records.

    The answer ends at the node's *applied* offset, so that standing and digest are never older than the batches.
    """
    found = ranges.asked_by(fetch)
    return MetadataFetched(
        FetchResult.BATCHES,
        controller_epoch=epoch,
        high_watermark=ranges.state.applied,
        batches=found.batches,
        previous_chain=found.previous_chain,
        end_offset=found.end_offset,
        digest=found.digest,
        digest_offset=found.end_offset,
        standing=standing,
        lease_ms=lease_ms,
        part=found.part,
        skips=found.skips,
    )
