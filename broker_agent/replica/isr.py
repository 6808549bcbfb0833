"""The ISR of one partition, as its leader knows it: the committed members, and at most one proposal in flight (KIP-497).

Only the controller changes the ISR. The leader proposes a change, and does not know until the answer if the controller has
committed the change. So two sets count:

    * the *committed* ISR decides what the leader may do: a write with acks=all needs `min.insync.replicas` committed members;
    * the *maximal* ISR, committed and proposed members together, decides the high watermark.

The controller may elect any member of the ISR, also a member that the leader has only proposed:

    1. Leader 1 has the ISR 1,2, and proposes 1,2,3. The controller commits the change; the answer is lost.
    2. Leader 1 appends record 7, and replica 2 has the record. With the committed ISR alone, record 7 would be acknowledged.
    3. Brokers 1 and 2 die, and the controller elects 3, which lacks record 7: the acknowledged record would be lost.

A member that the leader proposes to remove counts until the controller has removed it, for the same reason.

The answer decides the next step, by its code:

| answer | effect |
|---|---|
| NONE | the answer's ISR is committed |
| INELIGIBLE_REPLICA | the controller has written nothing: the proposal is dropped |
| FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, NEW_LEADER_ELECTED | the leader waits for newer metadata |
| INVALID_REQUEST, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION | the same |
| any other code, or no answer | the proposal may have been written: the leader sends it again |

The sender calls `NO_ANSWER` only a request that can no longer arrive. Otherwise a late request could be written after a later one
was refused, and its new member would not count. A request of an earlier partition epoch may arrive at any time: it is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker_agent.session.isr_proposals import IsrMember
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId
from metadata_log.format.partition_state import ISR, LEADER, LEADER_EPOCH, PARTITION_EPOCH, REPLICAS, PartitionState

ANY_BROKER_EPOCH: Final = -1
"""The broker epoch of a member that has not fetched from this leader: the controller does not compare it."""

_DROPPED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA})
_SUPERSEDED: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class PartitionMetadata(NamedTuple):
    """The state of one partition in the metadata, as far as its replicas need the state."""

    leader_id: NodeId
    leader_epoch: Epoch
    partition_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]

    @classmethod
    def of(cls, state: PartitionState) -> "PartitionMetadata":
        return cls(state[LEADER], state[LEADER_EPOCH], state[PARTITION_EPOCH], state[REPLICAS], state[ISR])


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Effect: send AlterPartition with this ISR to the controller, and then call `PartitionLeader.answered`."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    """The members in the order of the assignment."""

    @property
    def members(self) -> tuple[NodeId, ...]:
        return tuple(member.broker_id for member in self.isr)


class IsrAnswer(NamedTuple):
    """The controller's answer to a proposal. With NONE, the other fields are the partition's new state."""

    code: ErrorCode
    leader_epoch: Epoch = 0
    partition_epoch: int = 0
    isr: tuple[NodeId, ...] = ()


NO_ANSWER: Final = IsrAnswer(ErrorCode.REQUEST_TIMED_OUT)
"""The proposal may have been written, or may not."""


class IsrState:
    """The ISR of one partition in one leader epoch. Attributes without an underscore are for reading only."""

    def __init__(self, metadata: PartitionMetadata) -> None:
        self.leader_epoch = metadata.leader_epoch
        self.partition_epoch = metadata.partition_epoch
        self.replicas = metadata.replicas
        self.committed = frozenset(metadata.isr)
        self.proposal: ProposeIsr | None = None
        """The proposal whose outcome is not known."""
        self.retry_at_ms: int | None = None
        """When the same proposal is to be sent again; None while a request is in flight, or none is needed."""

    @property
    def maximal(self) -> frozenset[NodeId]:
        """All brokers that may be in the ISR at the controller."""
        return self.committed if self.proposal is None else self.committed | frozenset(self.proposal.members)

    @property
    def may_propose(self) -> bool:
        return self.proposal is None

    def propose(self, members: frozenset[NodeId], broker_epochs: Mapping[NodeId, int | None]) -> ProposeIsr:
        """Begin a proposal. `broker_epochs` has the epoch of each member's last fetch."""
        assert self.proposal is None, "one proposal at a time"
        isr = []
        for broker_id in self.replicas:
            if broker_id in members:
                epoch = broker_epochs.get(broker_id)
                isr.append(IsrMember(broker_id, ANY_BROKER_EPOCH if epoch is None else epoch))
        self.proposal = ProposeIsr(self.leader_epoch, self.partition_epoch, tuple(isr))
        return self.proposal

    def answered(self, proposal: ProposeIsr, answer: IsrAnswer, retry_at_ms: int) -> bool:
        """Note the answer to `proposal`, the object that `propose` returned; return True if the ISR may have changed.

        If newer metadata has arrived before the answer, the proposal is not the awaited one, and the answer has no effect.
        """
        if proposal is not self.proposal:
            return False
        if answer.code is ErrorCode.NONE:
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return False
            self._commit(answer.partition_epoch, answer.isr)
            return True
        if answer.code in _DROPPED:
            self.proposal = None
            return True
        if answer.code not in _SUPERSEDED:
            self.retry_at_ms = retry_at_ms
        return False

    def retry(self, now_ms: int) -> ProposeIsr | None:
        """Return the proposal if it is due to be sent again."""
        if self.retry_at_ms is None or now_ms < self.retry_at_ms:
            return None
        self.retry_at_ms = None
        return self.proposal

    def updated(self, metadata: PartitionMetadata) -> bool:
        """Take newer metadata of this leader epoch, which ends a proposal; return False if the metadata is not newer."""
        assert metadata.leader_epoch == self.leader_epoch, "another leader epoch is another leadership"
        if metadata.partition_epoch <= self.partition_epoch:
            return False
        self.replicas = metadata.replicas
        self._commit(metadata.partition_epoch, metadata.isr)
        return True

    def _commit(self, partition_epoch: int, isr: tuple[NodeId, ...]) -> None:
        self.partition_epoch = partition_epoch
        self.committed = frozenset(isr)
        self.proposal = None
        self.retry_at_ms = None

    def __str__(self) -> str:
        proposed = "" if self.proposal is None else f" proposed {sorted(self.proposal.members)}"
        return f"ISR {sorted(self.committed)}{proposed} (partition epoch {self.partition_epoch})"
