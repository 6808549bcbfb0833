"""Where the other controllers are, if several say so, and differently.

configured    counts most: it may be a proxy's address, of which nobody else knows anything
told          by the leader, of itself: until a later voter set says something else of it. A voter that was away while
              the leader moved has its old address in the log, and could fetch no newer set from there
heard         of the leader, by whoever was asked, until a later voter set says something else of it: whom the leader itself
              does not reach, because one of the two has joined or moved lately, hears it from nobody else
recorded      by the voter set
last named    by a voter set that is none any more: a leader that has removed itself leads on until that is committed
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Endpoint

NOWHERE: Mapping[NodeId, Endpoint] = MappingProxyType({})


class Whereabouts:
    """See the file's head. What may change them says whether it has."""

    def __init__(self, configured: Collection[NodeId] = ()) -> None:
        """Of those in `configured`, what is recorded is what this node's configuration says: of itself, for one."""
        self._configured = configured
        self._recorded = NOWHERE
        self._last_named = NOWHERE
        self._told = NOWHERE
        self._heard = NOWHERE
        self.endpoints = NOWHERE
        """Of everybody who can be reached."""

    def record(self, recorded: Mapping[NodeId, Endpoint], last_named: Mapping[NodeId, Endpoint] = NOWHERE) -> bool:
        """The voter set, overlaid by the configuration; and where others were who are needed all the same."""
        before, self._recorded, self._last_named = self._recorded, recorded, last_named
        changed = {each for each in (*before, *recorded) if before.get(each) != recorded.get(each)}
        self._told = {each: at for each, at in self._told.items() if each not in changed}
        self._heard = {each: at for each, at in self._heard.items() if each not in changed}
        return self._settle()

    def hear(self, leader_id: NodeId, endpoint: Endpoint) -> bool:
        """Somebody says that `leader_id` leads, and where."""
        if leader_id not in self._configured:
            self._heard = {leader_id: endpoint}
        return self._settle()

    def tell(self, leader_id: NodeId, endpoint: Endpoint) -> bool:
        """The leader says where it is."""
        if leader_id not in self._configured:
            self._told, self._heard = {leader_id: endpoint}, NOWHERE
        return self._settle()

    def _settle(self) -> bool:
        before = self.endpoints
        self.endpoints = {**self._last_named, **self._recorded, **self._heard, **self._told}
        return self.endpoints != before
