"""Where controllers are reached, as far as a node knows that by itself: its log says it, and its configuration knows better.

What others tell of it besides is weighed where controllers are dialled (`quorum.wire.peer_addresses`).
"""

from collections.abc import Mapping

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Endpoint
from quorum.core.raft import RaftCore
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import LeaderHint


class Addresses:
    """As of now, whenever asked."""

    def __init__(self, core: RaftCore, node_id: NodeId, config: NodeConfig) -> None:
        self._core = core
        self._node_id = node_id
        self._config = config

    def endpoints(self) -> dict[NodeId, Endpoint]:
        """What the voter set says, unless the configuration knows better: of this node itself most of all."""
        return {**self._recorded(), **self._config.voter_endpoints, **self._mine()}

    def last_named_leader(self) -> dict[NodeId, Endpoint]:
        """Where the leader was when the log last named it; empty while none is known.

        It may have removed itself: it leads on until that is committed, and nothing is unless it is fetched from. Or it is
        one that was removed long ago and added again elsewhere, of which this log does not tell yet: whatever is heard of
        where it leads is newer.
        """
        leader_id = self._core.leader_id
        named = None if leader_id is None else self._core.voter_history.last_named(leader_id)
        return {named.node_id: named.endpoints[0]} if named is not None and named.endpoints else {}

    def leader_hint(self, now_ms: int) -> LeaderHint:
        """For whoever came to the wrong node: the leader that this one follows as of `now_ms`, none that it only remembers."""
        return self._hint(self._core.followed(now_ms).leader_id, self.endpoints())

    def named_leader(self) -> LeaderHint:
        """For another controller, and to judge what one says of itself: a leader that is only remembered counts, too.

        An endpoint of a third one that only this node's configuration names is left out: it is perhaps nobody else's way there.
        """
        return self._hint(self._core.leader_id, {**self._recorded(), **self._mine()})

    def _hint(self, leader_id: NodeId | None, endpoints: Mapping[NodeId, Endpoint]) -> LeaderHint:
        known = {**self.last_named_leader(), **endpoints}
        return LeaderHint(leader_id, self._core.epoch, None if leader_id is None else known.get(leader_id))

    def _recorded(self) -> dict[NodeId, Endpoint]:
        return {voter.node_id: voter.endpoints[0] for voter in self._core.voters.voters if voter.endpoints}

    def _mine(self) -> dict[NodeId, Endpoint]:
        return {self._node_id: self._config.endpoints[0]} if self._config.endpoints else {}
