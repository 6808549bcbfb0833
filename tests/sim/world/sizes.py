"""How much of the log, or of a snapshot, a message carries: what takes its time on a slow link."""

from metadata_log.format import fetch_size
from quorum.core.protocol.messages import FetchResponse, FetchSnapshotResponse, ReadLogResponse, ReadSnapshotResponse
from quorum.runtime.protocol.requests import MetadataFetched
from quorum.runtime.protocol.world import Answer


def content_bytes(answer: Answer) -> int:
    match answer:
        case FetchResponse(batches=batches, part=part) | MetadataFetched(batches=batches, part=part):
            return fetch_size.content_bytes(batches, part)
        case ReadLogResponse(batches=batches):
            return fetch_size.content_bytes(batches, None)
        case FetchSnapshotResponse(data=data) | ReadSnapshotResponse(data=data):
            return len(data)
        case _:
            return 0
