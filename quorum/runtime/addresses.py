"""The addresses of the controllers, from the node's own log and configuration.

The configuration overrides the log. `quorum.wire.peers.peer_addresses` adds the addresses that other controllers report.

Example: node 1 has the voters {1, 2, 3} in its log, with 3 at `c:9093`.
    1. the operator moves node 3 to `d:9093`, and writes the new address into the configuration of node 1;
    2. node 1 dials `d:9093`, although its log still says `c:9093`;
    3. a client asks node 1 for the leader 3: node 1 answers `d:9093`;
    4. node 2 asks node 1 for the leader 3: node 1 answers `c:9093`, because `d:9093` may be right for node 1 only.
"""

from collections.abc import Mapping

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Endpoint
from quorum.core.raft import RaftCore
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import LeaderHint


class Addresses:
    """Reads the voter set and the leader from the core at each call, so every answer is up to date."""

    def __init__(self, core: RaftCore, node_id: NodeId, config: NodeConfig) -> None:
        self._core = core
        self._node_id = node_id
        self._config = config

    def endpoints(self) -> dict[NodeId, Endpoint]:
        """The address of each voter: from the configuration, otherwise from the voter set. The node's own address always
        comes from its configuration.
        """
        return {**self._recorded(), **self._config.voter_endpoints, **self._mine()}

    def last_named_leader(self) -> dict[NodeId, Endpoint]:
        """The leader's address in the newest voter set of the log that contains the leader; empty if no leader is known.

        The leader may be missing in the present voter set, for two reasons:
            * leader 1 has removed itself. It leads until the removal is committed, and followers must fetch from node 1
              until then;
            * node 3 was removed long ago and was added again at another address. This log does not have the second record
              yet, so the address is old. Every other report of node 3's address is newer and takes precedence.
        """
        leader_id = self._core.leader_id
        named = None if leader_id is None else self._core.voter_history.last_named(leader_id)
        return {named.node_id: named.endpoints[0]} if named is not None and named.endpoints else {}

    def leader_hint(self, now_ms: int) -> LeaderHint:
        """The hint for a client that asked the wrong node. A leader that the node remembers but no longer follows is left out."""
        return self._hint(self._core.followed(now_ms).leader_id, self.endpoints())

    def named_leader(self) -> LeaderHint:
        """The hint for another controller. A leader that the node only remembers counts, too.

        An address from the node's configuration is left out if the log does not have it, because the other controller may be
        unable to reach that address.
        """
        return self._hint(self._core.leader_id, {**self._recorded(), **self._mine()})

    def _hint(self, leader_id: NodeId | None, endpoints: Mapping[NodeId, Endpoint]) -> LeaderHint:
        known = {**self.last_named_leader(), **endpoints}
        return LeaderHint(leader_id, self._core.epoch, None if leader_id is None else known.get(leader_id))

    def _recorded(self) -> dict[NodeId, Endpoint]:
        return {voter.node_id: voter.endpoints[0] for voter in self._core.voters.voters if voter.endpoints}

    def _mine(self) -> dict[NodeId, Endpoint]:
        return {self._node_id: self._config.endpoints[0]} if self._config.endpoints else {}
