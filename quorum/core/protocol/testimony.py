"""The voters' testimony about a place where two logs differ. The theory is in `disputes`."""

from dataclasses import dataclass, field

from metadata_log.format.ids import Epoch, NodeId, Offset
from quorum.core.protocol.messages import ChainRequest, FetchRequest


@dataclass(slots=True)
class Dispute:
    """At `offset`, above a record of `epoch`, this node has `chain`, and node `with_whom` has another."""

    offset: Offset
    epoch: Epoch
    chain: bytes
    with_whom: NodeId
    said: dict[NodeId, bytes] = field(default_factory=dict)
    asked: set[NodeId] = field(default_factory=set)
    """The voters with a request in flight."""

    def ask(self, voter: NodeId) -> None:
        """Notes a request to `voter`."""
        self.asked.add(voter)

    def answered(self, voter: NodeId, chain: bytes | None) -> None:
        """Notes the testimony of `voter`. None: the voter has no record at the place, or did not answer."""
        self.asked.discard(voter)
        if chain is not None:
            self.said[voter] = chain

    def is_at(self, request: ChainRequest | FetchRequest) -> bool:
        if isinstance(request, FetchRequest):
            return (self.offset, self.epoch) == (request.fetch_offset, request.last_fetched_epoch)
        return (self.offset, self.epoch) == (request.offset, request.epoch)
