"""The addresses of the other controllers, when several sources disagree. The first source that names a controller decides:

configured    this node's configuration. The address may be a proxy's, and then no other source knows it
told          the leader, about itself, until a later voter set changes the leader's address
heard         any other controller, about the leader, until a later voter set changes the leader's address
recorded      the voter set
last named    an older voter set. A leader that has removed itself leads until the removal is committed

Why `told` comes before `recorded`: voter 3 is down while the leader, controller 1, moves to a new address. The log of voter 3
has the old address, and voter 3 could fetch no newer voter set from there. Controller 1 tells its new address in
BeginQuorumEpoch.

Why `heard` is needed: controller 4 has just joined, and the leader does not know its address yet. Controller 4 asks any voter,
and the refusal names the leader's address.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Endpoint

NOWHERE: Mapping[NodeId, Endpoint] = MappingProxyType({})


class PeerAddresses:
    """The address of each controller. Methods return whether an address has changed."""

    def __init__(self, configured: Collection[NodeId] = ()) -> None:
        """`configured`: the controllers whose recorded address comes from this node's configuration, such as its own."""
        self._configured = configured
        self._recorded = NOWHERE
        self._last_named = NOWHERE
        self._told = NOWHERE
        self._heard = NOWHERE
        self.endpoints = NOWHERE
        """The chosen address of each controller."""

    def record(self, recorded: Mapping[NodeId, Endpoint], last_named: Mapping[NodeId, Endpoint] = NOWHERE) -> bool:
        """Takes the voter set with this node's configuration laid over, and old addresses of controllers that are still
        needed."""
        before, self._recorded, self._last_named = self._recorded, recorded, last_named
        changed = {each for each in (*before, *recorded) if before.get(each) != recorded.get(each)}
        self._told = {each: at for each, at in self._told.items() if each not in changed}
        self._heard = {each: at for each, at in self._heard.items() if each not in changed}
        return self._settle()

    def hear(self, leader_id: NodeId, endpoint: Endpoint) -> bool:
        """Takes the leader's address from another controller."""
        if leader_id not in self._configured:
            self._heard = {leader_id: endpoint}
        return self._settle()

    def tell(self, leader_id: NodeId, endpoint: Endpoint) -> bool:
        """Takes the leader's address from the leader itself."""
        if leader_id not in self._configured:
            self._told, self._heard = {leader_id: endpoint}, NOWHERE
        return self._settle()

    def _settle(self) -> bool:
        before = self.endpoints
        self.endpoints = {**self._last_named, **self._recorded, **self._heard, **self._told}
        return self.endpoints != before
