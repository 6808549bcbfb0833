"""The state of one node, and the only file which changes the role, the epoch and the vote. (The name is Kafka's.)

All files of the roles (`votes`, `election`, `follower`, `leader`, `fetch_service`) work on one `QuorumState`: epoch,
vote and leader as saved on disk, the role, the log's shape, the voter set, the high watermark, and the effects of the
current step.

`QuorumState` keeps two rules for all of its users:

* Disk before speech. `become` and `vote_for` queue `SaveElectionState` before any message their callers queue. Two
  saves without a message between them become one, so a vote in a new epoch costs a single fsync.
* Fail-stop. A violation of safety raises `SafetyViolated` and stops the node (`StopNode`). No caller may skip a
  violation.

Example, a vote in a new epoch:

    1. Voter 1 is in epoch 4 and receives a vote request of voter 2 for epoch 5.
    2. `become_unattached(5)` queues SaveElectionState(epoch 5, no vote).
    3. `vote_for(2)` replaces the save by SaveElectionState(epoch 5, vote 2), because no message lies between.
    4. The reply "granted" is queued last. The node carries out effects in order, so the vote is on disk first.

Sources: KIP-595 (states, adoption of epochs), KIP-853 (directory ids, observers), KIP-996 (prospective).
"""

from dataclasses import replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import EPOCH_MAX, Epoch, NodeId, ReplicaKey
from quorum.core.protocol.effects import (
    ElectionState,
    LeadershipChanged,
    SaveElectionState,
)
from quorum.core.protocol.epochs import reach_of_reply
from quorum.core.protocol.pending_change import last_word
from quorum.core.roles import (
    TRANSITIONS,
    Follower,
    Leader,
    Prospective,
    Role,
    RoleState,
    Transition,
    Unattached,
    Why,
)
from quorum.core.state.node_state import NodeState


class SafetyViolated(Exception):
    """An event after which the cluster is no longer safe. The node stops and reports the message."""


class QuorumState(NodeState):
    """The state of one Raft node between two inputs. See the module's docstring."""

    __slots__ = ()

    def _save(self, election: ElectionState) -> None:
        if election == self.election:
            return
        assert election.epoch >= self.election.epoch, f"epoch {self.election.epoch} would fall to {election.epoch}"
        self.election = election
        # No message was queued since the last save, so no message depends on that save: one fsync serves both.
        for index in range(len(self.effects) - 1, -1, -1):
            effect = self.effects[index]
            if isinstance(effect, SaveElectionState):
                self.effects[index] = SaveElectionState(election)
                return
            if not isinstance(effect, LeadershipChanged):
                break
        self.effects.append(SaveElectionState(election))

    def announce(self) -> None:
        """Tells the state machine about a changed leader or epoch."""
        leading = isinstance(self.role, Leader)
        now = (self.epoch, self.leader_id, leading)
        if now != self.announced:
            self.announced = now
            self.effects.append(LeadershipChanged(*now))

    # --- changes of role ------------------------------------------------------------------------------------------

    def become(self, role: RoleState, why: Why, election: ElectionState) -> None:
        """Changes the role: the only function to do so.

        Saves `election` first. A leader leaving office answers all parked requests.
        """
        left = self.role
        edge = (left.role, role.role, why)
        assert edge in TRANSITIONS, f"no such transition: {edge}; {self.me} epoch {self.epoch} -> {election}"
        self.role = role
        self._save(election)
        self._note_transition(left, why)
        self.fetch.restart(self.now_ms)
        if isinstance(left, Leader) or isinstance(role, Leader):
            self.disputes.clear()
        if isinstance(left, Leader):
            began_ms = left.last_round_began_ms(self.latest_voters, self.me)
            if began_ms is not None:
                self.contact.heard(min(began_ms, self.now_ms))
            for parked in left.parked.values():
                self.reply(parked.reply_to, self.fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, parked.request))
            left.parked.clear()
            wish = left.changes.pending
            if wish is not None and wish.reply_to is not None:
                word = last_word(wish, self.epoch, self.leader_hint, self.known_high_watermark)
                self.reply(wish.reply_to, word)
            left.changes.end()
        # A new leader first appends the record that opens its epoch; then `leader.lead` announces the leader.
        if role.role is not Role.LEADER:
            self.announce()

    def _note_transition(self, left: RoleState, why: Why) -> None:
        had_leader = isinstance(left, Leader) or (isinstance(left, Follower) and left.heard_ms is not None)
        leader_id = self.leader_id if isinstance(self.role, Leader | Follower) else None
        end, now_ms = self.shape.end, self.now_ms
        self.transitions.append(
            Transition(now_ms, left.role, self.role.role, why, self.epoch, leader_id, end, had_leader)
        )

    def update_role(self, role: RoleState) -> None:
        """Replaces the role's values, within the same role. `become` changes to another role."""
        assert role.role is self.role.role, f"{self.role.role} becomes {role.role} without a reason"
        self.role = role

    def become_unattached(self, epoch: Epoch, why: Why) -> None:
        """Enters `epoch` without a leader, and without a vote if the epoch is a new one."""
        election = self.election if epoch == self.epoch else ElectionState(epoch, None, None)
        self.become(Unattached(self.election_deadline_ms()), why, election)
        # Usually another node is about to win and to announce itself. The node asks for a leader only after a delay.
        self.fetch.wait_until(self.now_ms + self.config.retry_backoff_ms)

    def become_follower(self, epoch: Epoch, leader_id: NodeId, why: Why = Why.LEARNED_LEADER) -> None:
        assert leader_id != self.me.node_id, "a node does not follow itself"
        self.fetch.pieces.start_small()  # another leader is reached over another link
        voted_for = self.election.voted_for if epoch == self.epoch else None
        self.become(
            Follower(leader_id, self.now_ms + self.config.fetch_timeout_ms),
            why,
            ElectionState(epoch, voted_for, leader_id),
        )

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Saves a vote before the reply, and restarts the election timer to give the candidate time."""
        assert self.election.voted_for in (None, candidate), f"a second vote in epoch {self.epoch}"
        self._save(self.election._replace(voted_for=candidate))
        match self.role:
            case Unattached():
                self.role = Unattached(self.election_deadline_ms())
            case Prospective():
                self.role = replace(self.role, deadline_ms=self.election_deadline_ms())
            case _:
                raise AssertionError(f"a vote as {self.role}")

    def learn_leader(self, leader_id: NodeId) -> None:
        """Adopts `leader_id` as the leader of the current epoch, as another node reports.

        Raises:
            SafetyViolated: another node was known to lead the epoch.
        """
        known = self.election.leader_id
        if known is not None and known != leader_id:
            raise SafetyViolated(f"epoch {self.epoch} has two leaders: {known} and {leader_id}")
        match self.role.role:
            case Role.UNATTACHED | Role.CANDIDATE:
                self.become_follower(self.epoch, leader_id)
            case Role.PROSPECTIVE if known is None:
                self.become_follower(self.epoch, leader_id)
            case _:
                pass

    def absorb(self, epoch: Epoch, leader_id: NodeId | None) -> bool:
        """Adopts the epoch and the leader of a reply. Returns False if the reply is of an older epoch and must be
        ignored.

        An epoch out of reach (`epochs`) raises the epoch as far as it may, and the reply is ignored otherwise.

        A reply naming this very node as the leader is not believed, because the node itself would know. (A node with a
        new disk may hear of its former self.)
        """
        if leader_id == self.me.node_id:
            leader_id = None
        if epoch < self.epoch or epoch >= EPOCH_MAX:
            return False
        if epoch - self.epoch > (farthest := reach_of_reply(self.epoch)):
            if farthest:
                self.become_unattached(self.epoch + farthest, Why.HIGHER_EPOCH)
            return False
        if epoch == self.epoch:
            if leader_id is not None:
                self.learn_leader(leader_id)
        elif leader_id is not None:
            self.become_follower(epoch, leader_id)
        else:
            self.become_unattached(epoch, Why.HIGHER_EPOCH)
        return True
