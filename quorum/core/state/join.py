"""The state of the requests a node sends to its leader on its own behalf (`quorum.core.membership.auto_join`)."""

from metadata_log.format.records import Endpoint
from quorum.core.protocol.messages import QuorumChangeRequest
from quorum.core.protocol.voters import VoterSet


class JoinState:
    """One node's request to join, or to update its endpoints."""

    __slots__ = ("_failures", "ask_at_ms", "asked", "endpoints", "settled")

    def __init__(self, endpoints: tuple[Endpoint, ...], now_ms: int) -> None:
        self.endpoints = endpoints
        """The node's own endpoints, as configured. Empty: the node requests nothing."""
        self.ask_at_ms = now_ms
        """When the next request may leave."""
        self.asked: QuorumChangeRequest | None = None
        """The request in flight."""
        self.settled: VoterSet | None = None
        """The voter set known to match the configuration. As long as this set is the latest, the node requests nothing."""
        self._failures = 0

    def settle(self, voters: VoterSet) -> None:
        """Notes that `voters` matches the configuration."""
        self.settled = voters

    def sent(self, request: QuorumChangeRequest) -> None:
        """Notes `request` as the one in flight."""
        self.asked = request

    def answered(self, at_ms: int) -> None:
        """Lets the next request leave at `at_ms`, after a request without an error."""
        self.asked, self.ask_at_ms, self._failures = None, at_ms, 0

    def failed(self, now_ms: int, wait_ms: int, doublings_max: int) -> None:
        """Lets the next request leave after `wait_ms`, doubled for each earlier failure."""
        self.asked, self.ask_at_ms = None, now_ms + (wait_ms << min(self._failures, doublings_max))
        self._failures += 1
