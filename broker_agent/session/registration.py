"""A broker's registration: the process behind a broker id, as the controllers know it.

A registration is a record in the log, and its offset is the *broker epoch*: the epoch tells this process from every earlier
process with the same id (KIP-631). The controllers never unfence a broker without an epoch.

A process that was never registered gives up after `initial.broker.registration.timeout.ms`: its configuration may be wrong. A
process that was registered once goes on trying, unless another process holds the id all that time
(DUPLICATE_BROKER_REGISTRATION).

If a controller belongs to another cluster, a broker with an empty store ends at once: its configuration is probably wrong. A
broker whose store has metadata was accepted by its own cluster before, so the broker asks the other controllers.

    1. Broker 101 registers. The record is at offset 40, so its broker epoch is 40.
    2. Broker 101 crashes and is started again. Its session of epoch 40 is still open for some seconds.
    3. The new process names the old one as `previous_incarnation`, so the controller replaces the registration at once. The new
       record is at offset 57, and a late request of epoch 40 is refused as STALE_BROKER_EPOCH.

A process that ends with a controlled shutdown leaves a proof in its store: its epoch. The next process deletes the proof, and
sends the epoch as `previous_broker_epoch`. Without the proof the controllers take broker 101 out of ISRs and ELRs, because the
end of its data may be lost (KIP-966). In the example broker 101 crashed, so the process of step 3 has no proof.
"""

from typing import Final

from broker_agent.session.lifecycle import LeaderHint, Position, RequestFailed
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Uuid

FATAL: Final = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Refusals that end a process before its first registration: an operator must change something. For a process that was registered
once they say more about the controller. For example, the machine of controller 2 is set up anew, and a controller of another
cluster listens at its address; or controller 2 no longer leads, and judges by an old image."""


class Registration:
    """One process's registration. Attributes without an underscore are for reading only."""

    def __init__(self, timeout_ms: int) -> None:
        self.broker_epoch: int | None = None
        self.unfenced = False
        """True if the controller's last answer said online or stopping."""
        self._timeout_ms = timeout_ms
        self._previous_incarnations: tuple[Uuid, ...] = ()
        self.was_registered = False
        """True if this process was ever registered, so that its configuration is right."""
        self._has_metadata = False
        self.previous_broker_epoch: int | None = None
        """The epoch of the last process of this store, if that process ended with a controlled shutdown; None once this process
        is registered."""
        self._until_ms = 0

    def recovered(
        self,
        previous_incarnations: tuple[Uuid, ...],
        *,
        has_metadata: bool,
        clean_broker_epoch: int | None = None,
    ) -> None:
        """Notes earlier processes of this store: a controller may still have such a process registered. `has_metadata`: the store
        is not empty, so its cluster has accepted this broker's cluster id before."""
        self._previous_incarnations = previous_incarnations
        self.previous_broker_epoch = clean_broker_epoch
        self._has_metadata = has_metadata

    def begin(self, now_ms: int) -> None:
        self.end()
        self._until_ms = now_ms + self._timeout_ms

    def complete(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self.was_registered = True
        self.previous_broker_epoch = None  # from now on this process may change the data

    def end(self) -> None:
        """Forgets the epoch: the controllers do not know this process, or no longer."""
        self.broker_epoch = None
        self.unfenced = False

    def hear(self, *, unfenced: bool) -> None:
        """Notes the controller's report of this broker's state."""
        assert self.broker_epoch is not None
        self.unfenced = unfenced

    def predecessor(self, failures: int) -> Uuid | None:
        """Returns the earlier process to replace, at the attempt after `failures`.

        A predecessor may have died after the controller registered it and before the store noted it. So the controller may know
        any of the previous processes, and the attempts name them in turn.
        """
        previous = self._previous_incarnations
        return previous[failures % len(previous)] if previous else None

    def is_fatal(self, code: ErrorCode) -> bool:
        """Tells whether a refusal with `code` ends the process at once.

        A process that was registered once has the right certificate, cluster id, endpoints and features. If a controller does not
        accept them, the next controller is asked. A store with metadata proves that the cluster id is right, and no more.
        """
        is_proven = self.was_registered or (self._has_metadata and code is ErrorCode.INCONSISTENT_CLUSTER_ID)
        return code in FATAL and not is_proven

    def believed_leader(self, failed: RequestFailed) -> LeaderHint | None:
        """Returns the leader that the controller named; None if the controller is not believed.

        A controller that does not accept a broker that was registered once is not believed: it might name itself for ever.
        """
        return None if failed.code in FATAL else failed.leader

    def is_given_up(self, code: ErrorCode, now_ms: int) -> bool:
        """Tells whether a refusal with `code` ends the attempts to register."""
        is_hopeless = not self.was_registered or code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        return is_hopeless and now_ms >= self._until_ms

    def is_applied(self, position: Position) -> bool:
        """Tells whether a store at `position` holds this registration: the broker is unfenced only after that."""
        return self.broker_epoch is not None and position.offset > self.broker_epoch
