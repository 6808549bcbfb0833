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

from metadata_log.format.batch import Batch
from metadata_log.format.codec import encode_record
from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import as_asked
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.store.log_view import LogView
from quorum.controller.controller import BrokerStanding
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.requests import FetchResult, MetadataFetch, MetadataFetched, Refused

ANSWER_BYTES_MAX = 2 << 20
"""Maximum number of bytes in an answer: half of gRPC's default receive limit."""


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


def deltas(
    fetch: MetadataFetch,
    log: LogView,
    state: StateMachine,
    *,
    epoch: int,
    standing: BrokerStanding,
    lease_ms: int,
) -> MetadataFetched:
    """The answer with the committed batches from the broker's offset on, as many as fit; empty without new records.

    The answer ends at the node's *applied* offset, so that standing and digest are never older than the batches.
    """
    applied = state.applied
    found: tuple[Batch, ...] = ()
    max_bytes = max(1, min(fetch.max_bytes, ANSWER_BYTES_MAX))
    if fetch.offset < applied:
        found = log.read(fetch.offset, max_bytes, applied)
    batches, part = as_asked(found, max_bytes, fetch.part_position)
    end = batches[-1].end_offset if batches else fetch.offset
    if part is not None and part.is_last:
        end = found[0].end_offset
    image = state.committed
    return MetadataFetched(
        FetchResult.BATCHES,
        controller_epoch=epoch,
        high_watermark=applied,
        batches=batches,
        previous_chain=log.chain_at(fetch.offset) or b"",
        end_offset=end,
        digest=image.digest_bytes if image.provenance.offset == end else b"",
        digest_offset=end,
        standing=standing,
        lease_ms=lease_ms,
        part=part,
        skips=tuple(
            encode_record(skip) for at, skip in log.skipped() if skip.dropped_end > fetch.offset and at < applied
        ),
    )
