"""A link with a limited rate. Messages travel one after the other, including messages no longer wanted."""

from metadata_log.format import fetch_size
from quorum.core.protocol.messages import FetchResponse, FetchSnapshotResponse, Response

ENVELOPE_BYTES = 100
"""How many bytes a message has besides its batches."""


class SlowLink:
    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_ms = 0
        self.carried = 0
        """The number of log and snapshot bytes carried, including those delivered too late."""

    def transmission_ms(self, response: Response, now_ms: int) -> int:
        """How long the link needs until the last byte of `response` arrives."""
        content = content_bytes(response)
        self.carried += content
        took_ms = 1_000 * (ENVELOPE_BYTES + content) // self._bytes_per_s
        self._free_at_ms = max(self._free_at_ms, now_ms) + took_ms
        return self._free_at_ms - now_ms


def content_bytes(response: Response) -> int:
    match response:
        case FetchResponse(batches=batches, part=part):
            return fetch_size.content_bytes(batches, part)
        case FetchSnapshotResponse(data=data):
            return len(data)
        case _:
            return 0
