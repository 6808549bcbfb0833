"""What a broker's fetch is answered with, given where the broker stands and what is committed here.

A broker is only ever given committed batches: from the very offset that it asked for, never past the high watermark; whole ones,
or one in parts where it is larger than what was asked for (`metadata_log.format.pieces`). So what brokers hold is
always a prefix of the
one history, and a leader change never takes anything back.
"""

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, OffsetAndEpoch
from metadata_log.format.pieces import as_asked
from metadata_log.store.log_view import LogView
from quorum.controller.controller import BrokerStanding
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.requests import FetchResult, MetadataFetch, MetadataFetched, Refused

ANSWER_BYTES_MAX = 2 << 20
"""At most this much in one answer, whatever the broker asks for: half of gRPC's default receive limit."""


def position_verdict(fetch: MetadataFetch, log: LogView, high_watermark: Offset) -> MetadataFetched | Refused | None:
    """Whether the broker must change its position first; None if it stands on this log's committed history."""
    shape = log.shape
    if fetch.offset == 0 and shape.snapshot is not None:
        return _use_snapshot(shape.snapshot, high_watermark)
    if fetch.offset < shape.start.offset:
        assert shape.snapshot is not None, "a log that starts above 0 stands on a snapshot"
        return _use_snapshot(shape.snapshot, high_watermark)
    if fetch.offset > high_watermark:
        # Everything that any broker was ever given was committed, and an active controller's high watermark covers
        # all that was committed before its epoch. A broker above it holds another history.
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
    """The committed batches from the broker's offset on, as many as fit; none if there is nothing new.

    Delivers up to what this node has *applied*, so that the standing and the digest are never older than the batches.
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
    )
