"""What the voters have said about a place where two logs differ. Who asks and who judges is told in `disputes`."""

from dataclasses import dataclass, field

from metadata_log.format.ids import Epoch, NodeId, Offset
from quorum.core.protocol.messages import ChainRequest, FetchRequest


@dataclass(slots=True)
class Dispute:
    """At `offset`, below which is a record of `epoch`, this node has `chain`, and `with_whom` another."""

    offset: Offset
    epoch: Epoch
    chain: bytes
    with_whom: NodeId
    said: dict[NodeId, bytes] = field(default_factory=dict)
    asked: set[NodeId] = field(default_factory=set)
    """Who has been asked and has not answered yet."""

    def is_at(self, request: ChainRequest | FetchRequest) -> bool:
        if isinstance(request, FetchRequest):
            return (self.offset, self.epoch) == (request.fetch_offset, request.last_fetched_epoch)
        return (self.offset, self.epoch) == (request.offset, request.epoch)
