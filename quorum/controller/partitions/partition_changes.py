"""The change of one partition: the new ISR, the eligible leader replicas (ELR, KIP-966), and the new leader.

The first rule that fits decides. *Active* means registered, unfenced, not shutting down, and not being fenced now. A *resting*
broker is in maintenance, or is being drained.

A replica in an offline log directory counts as one on an inactive broker: the caller leaves it out of `active`
(`broker_view.present`).

    1  The leader is active, in the ISR, and does not rest: it stays leader.
    2  The first replica of the assignment that is active and in the ISR becomes leader. A resting broker leads only if all active
       members of the ISR rest; then the leader stays, if it is one of them. So maintenance causes no outage.
    3  The first replica of the assignment that is active and in the ELR becomes leader, alone in the ISR.
    4  ISR and ELR are empty, and the last known leader is active: it becomes leader, alone in the ISR, RECOVERING.
    5  If the topic allows unclean elections, the first active replica of the assignment becomes leader, in the same way.
    6  The partition has no leader.

The rules 3 and 5 choose a resting broker only if there is no other. The rules 1 to 3 are clean: no record below the high
watermark is lost. The rules 4 and 5 may lose records.

Example: orders-0, replicas 101,102,103, ISR 101,102, leader 101, without ELR

    101 is fenced                        ISR 102, leader 102
    102 is fenced too                    ISR 102, no leader: 103 may lack records, and only 102 is known to have all
    ... and the topic allows unclean     ISR 103, leader 103, RECOVERING: records may be lost

The last member of an ISR stays in the ISR, even when it is fenced; only an unclean election replaces it (M3, M4).

With ELR a member that leaves the ISR is remembered, if the ISR is smaller than `min.insync.replicas` afterwards. Such a member is
a safe leader: the high watermark stands still while the ISR is so small. The same partition, with `min.insync.replicas` 2:

    101 is fenced                        ISR 102, ELR 101, leader 102: the high watermark stands still
    102 is fenced too                    ISR -, ELR 101,102, no leader
    101 is back                          ISR 101, ELR 102, leader 101: rule 3
    102 is back, and catches up          ISR 101,102, ELR -: the high watermark moves again

A broker that stopped without a clean shutdown may have lost the end of its log. Its next registration takes it out of ISR and ELR
(`distrusting`), and then the last known leader is the best guess (rule 4).

Every clean change also finishes the partition's reassignment, if the new ISR allows it (`target_replicas`), before a leader is
elected, and again with the ISR that rule 3 makes. A replica that leaves the assignment takes no part in the election. The leader
epoch then goes up even if the leader stays, so that the removed replica notices its removal. An unclean election takes a replica
that a reassignment is adding last: such a replica may have no records at all.
"""

from collections.abc import Set

from metadata_log.format.ids import NO_LEADER, NodeId, Uuid
from metadata_log.format.partition_state import (
    ADDING,
    ELR,
    ISR,
    LAST_KNOWN_ELR,
    LEADER,
    RECOVERY_STATE,
    REMOVING,
    REPLICAS,
    NodeIds,
    PartitionState,
)
from metadata_log.format.records import RECOVERING, PartitionChange
from quorum.controller.partitions.election_rules import ElectionRules
from quorum.controller.partitions.target_replicas import Assignment, finished


class PartitionChangeBuilder:
    """Collects the wanted changes of one partition; `build` makes the record."""

    __slots__ = (
        "_active",
        "_assignment",
        "_directories",
        "_distrusted",
        "_elr",
        "_is_unclean",
        "_isr",
        "_last_known",
        "_partition",
        "_recovery_state",
        "_resting",
        "_rules",
        "_state",
        "_topic_id",
    )

    def __init__(
        self,
        topic_id: Uuid,
        partition: int,
        state: PartitionState,
        active: Set[NodeId],
        resting: Set[NodeId],
        rules: ElectionRules,
    ) -> None:
        """`active`: the brokers that may lead. `resting`: those of them that lead only if no other can."""
        self._topic_id = topic_id
        self._partition = partition
        self._state = state
        self._active = active
        self._resting = resting
        self._rules = rules
        self._assignment = Assignment(state[REPLICAS], state[REMOVING], state[ADDING])
        self._isr: NodeIds = state[ISR]
        self._elr: NodeIds = state[ELR]
        self._last_known: NodeIds = state[LAST_KNOWN_ELR]
        self._recovery_state: int = state[RECOVERY_STATE]
        self._directories: tuple[Uuid, ...] | None = None
        self._distrusted: NodeId = NO_LEADER
        self._is_unclean = False

    def without(self, broker_id: NodeId) -> "PartitionChangeBuilder":
        """Takes the broker out of the ISR. Without ELR the last member stays."""
        rest = tuple([member for member in self._isr if member != broker_id])
        if rest or self._rules.keeps_elr:
            self._isr = rest
        return self

    def distrusting(self, broker_id: NodeId) -> "PartitionChangeBuilder":
        """Takes the broker out of ISR and ELR: it stopped without a clean shutdown, and may have lost the end of its log."""
        assert self._rules.keeps_elr, "without ELR the last member of an ISR stays"
        self._distrusted = broker_id
        return self.without(broker_id)

    def leaving(self, broker_id: NodeId) -> "PartitionChangeBuilder":
        """Takes a broker that has lost the replica out of the ISR, and out of the ELR if the cluster keeps one."""
        return self.distrusting(broker_id) if self._rules.keeps_elr else self.without(broker_id)

    def with_directories(self, directories: tuple[Uuid, ...]) -> "PartitionChangeBuilder":
        """Records the log directories of the replicas, one for each. `active` is as of these directories."""
        assert len(directories) == len(self._state[REPLICAS])
        self._directories = directories
        return self

    def with_isr(self, isr: NodeIds, recovery_state: int) -> "PartitionChangeBuilder":
        """Takes the ISR that the leader proposes."""
        self._isr = isr
        self._recovery_state = recovery_state
        return self

    def with_assignment(self, assignment: Assignment) -> "PartitionChangeBuilder":
        """Takes other replicas. A dropped replica leaves ISR and ELR; the caller has checked that a safe leader remains."""
        self._assignment = assignment
        self._isr = tuple([member for member in self._isr if member in assignment.replicas])
        self._elr = tuple([member for member in self._elr if member in assignment.replicas])
        self._last_known = tuple([member for member in self._last_known if member in assignment.replicas])
        return self

    def led_uncleanly_by(self, broker_id: NodeId) -> "PartitionChangeBuilder":
        """Makes an active replica the leader, although it may lack records."""
        assert broker_id in self._active
        self._isr = (broker_id,)
        self._recovery_state = RECOVERING
        self._is_unclean = True
        return self

    def build(self) -> PartitionChange | None:
        """Makes the change; None if nothing changes."""
        self._drop_absent()
        self._finish_reassignment()
        self._note_eligible()
        leader = self._elected()
        self._note_last_known(leader)
        state, after = self._state, self._assignment
        before = Assignment(state[REPLICAS], state[REMOVING], state[ADDING])
        is_replica_removed = after != before and not set(after.replicas).issuperset(before.replicas)
        is_recovery_told = self._is_unclean or self._recovery_state != state[RECOVERY_STATE]
        change = PartitionChange(
            self._topic_id,
            self._partition,
            isr=None if self._isr == state[ISR] else self._isr,
            leader=None if leader == state[LEADER] and not is_replica_removed else leader,
            replicas=None if after.replicas == before.replicas else after.replicas,
            removing_replicas=None if after.removing == before.removing else after.removing,
            adding_replicas=None if after.adding == before.adding else after.adding,
            leader_recovery_state=self._recovery_state if is_recovery_told else None,
            directories=self._aligned(after.replicas),
            elr=None if self._elr == state[ELR] else self._elr,
            last_known_elr=None if self._last_known == state[LAST_KNOWN_ELR] else self._last_known,
        )
        return None if all(each is None for each in change[2:]) else change

    def _aligned(self, replicas: NodeIds) -> tuple[Uuid, ...] | None:
        """The directories that `with_directories` has named, in the order of the replicas after the change."""
        if self._directories is None:
            return None
        known = dict(zip(self._state[REPLICAS], self._directories, strict=True))
        return tuple([known[replica] for replica in replicas])

    def _elected(self) -> NodeId:
        leader, active = self._state[LEADER], self._active
        may_stay = leader in active and leader in self._isr
        if may_stay and leader not in self._resting:
            return leader
        in_sync = self._first_active(self._isr)
        if may_stay and in_sync in self._resting:
            return leader
        if in_sync != NO_LEADER:
            return in_sync
        eligible = self._first_active(self._elr)
        if eligible != NO_LEADER:
            self._isr = (eligible,)
            self._finish_reassignment()  # it may have waited for this ISR
            self._note_eligible()
            return eligible
        uncleanly = self._elected_uncleanly()
        if uncleanly != NO_LEADER:
            self.led_uncleanly_by(uncleanly)
            self._note_eligible()
        return uncleanly

    def _first_active(self, group: NodeIds) -> NodeId:
        """Returns the first replica of the assignment that is active and in `group`; a resting one only if there is no other."""
        first_resting = NO_LEADER
        for replica in self._assignment.replicas:
            if replica in group and replica in self._active:
                if replica not in self._resting:
                    return replica
                if first_resting == NO_LEADER:
                    first_resting = replica
        return first_resting

    def _elected_uncleanly(self) -> NodeId:
        if not self._isr and not self._elr and len(self._last_known) == 1 and self._last_known[0] in self._active:
            return self._last_known[0]
        if not self._rules.allows_unclean():
            return NO_LEADER
        former = tuple([replica for replica in self._assignment.replicas if replica not in self._assignment.adding])
        found = self._first_active(former)
        return found if found != NO_LEADER else self._first_active(self._assignment.adding)

    def _drop_absent(self) -> None:
        """Drops inactive members from the ISR of a partition that is about to get its leader back.

        Only the end of an ELR (`elr_clearing`) makes an ISR without leader that has several members.
        """
        if self._state[LEADER] == NO_LEADER and len(self._isr) > 1:
            present = tuple([member for member in self._isr if member in self._active])
            self._isr = present or self._isr

    def _finish_reassignment(self) -> None:
        """Finishes the reassignment, if the ISR allows it, unless the active members of the ISR would all be removed."""
        after = None if self._is_unclean else finished(self._assignment, self._isr)
        if after is None:
            return
        isr = [member for member in self._isr if member in after.replicas]
        if not self._active.isdisjoint(isr) or self._active.isdisjoint(self._isr):
            self.with_assignment(after)

    def _note_eligible(self) -> None:
        """Computes the ELR from the ISR: the members that have left an ISR which is too small for the high watermark to move."""
        if not self._rules.keeps_elr:
            return
        state, isr = self._state, self._isr
        if isr == state[ISR] and not state[ELR] and len(isr) == len(self._assignment.replicas):
            return  # nothing has left
        if self._is_unclean or len(isr) >= min(self._rules.min_isr(), len(self._assignment.replicas)):
            self._elr = ()
            return
        safe = {*state[ISR], *state[ELR]}.difference(isr, (self._distrusted,))
        self._elr = tuple([replica for replica in self._assignment.replicas if replica in safe])

    def _note_last_known(self, leader: NodeId) -> None:
        """Keeps the last leader of a partition that has none."""
        state = self._state
        if leader != NO_LEADER:
            self._last_known = ()
        elif self._rules.keeps_elr:
            if state[LEADER] != NO_LEADER:
                self._last_known = (state[LEADER],)
            elif not self._last_known and not self._isr and len(state[ISR]) == 1:
                # The partition lost its leader before the cluster kept ELRs: the last member of the ISR is the best guess.
                self._last_known = state[ISR]
