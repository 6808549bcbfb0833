"""The laws, checked after every event. Each law has the number of an invariant.

    quorum      elections, epochs, logs, commits, disk before speech     R1 - R16, L5, D1
    following   a leader's followers, and the leader's rights meanwhile  L5, C5, the lease
    damage      damaged logs, and lost durable ends                      D3
    snapshots   applied records, and the contents of snapshots           R13, S1 - S7
    metadata    the changes allowed to committed records                 M1 - M7, M9
    modes       the modes that operators give to brokers                 M10
    eligible    eligible leader replicas, as far as metadata can show    M13
    directories log directories, and the replicas in them                M18
    features    levels of features, up and down                          M14 - M16
    deaths      processes of brokers that are known to have ended        M19
    policies    the controllers' rules about topics and configs          M12
    placement   the replicas of new partitions                           M17
    proposals   the ISR proposals granted to leaders of partitions       M2, M4, M5
    partitions  replicated partitions: what is committed, and who leads  P1 - P8
    brokers     answers to brokers, and how long brokers may serve       F1 - F7, M2, M8, the lease
    requests    requests done once, remembered, and forgotten            C3
    clients     answers to clients                                       C1 - C5, C8
    transactions  the records inside of a transaction                    C8
    entities    transactions of entities, ephemerals, sessions, locks    E1 - E5
    story       the happenings told by active controllers                T1 - T3

The checks are incremental: each check looks at the possible changes of one event, and compares with `history`.

Example: in seed 7, controller 2 commits offset 90. `quorum` checks that a majority of the voters holds the records
below 91 durably (R11), and adds the batch to `history`. `metadata` checks the records of the batch.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Voters
from quorum.controller.protocol.commands import AlterPartition, AlterPartitionReply, CommandReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.messages import PeerRequest, PeerResponse
from quorum.runtime.protocol.requests import MetadataFetched, ReadView, Refused
from quorum.runtime.protocol.world import Answer, BrokerFetch, Event, KeepAlive, RaftRequest, Read, Submission
from tests.sim.coverage import Coverage
from tests.sim.history import History
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.laws.brokers import BrokerLaws
from tests.sim.laws.clients import ClientLaws
from tests.sim.laws.deaths import DeathLaws
from tests.sim.laws.eligible import EligibleLaws
from tests.sim.laws.entities import EntityLaws
from tests.sim.laws.features import FeatureLaws
from tests.sim.laws.metadata import MetadataLaws
from tests.sim.laws.modes import ModeLaws
from tests.sim.laws.partitions import PartitionLaws
from tests.sim.laws.policies import PolicyLaws
from tests.sim.laws.proposals import ProposalLaws
from tests.sim.laws.quorum import QuorumLaws
from tests.sim.laws.replicas.directories import DirectoryLaws
from tests.sim.laws.replicas.placement import PlacementLaws
from tests.sim.laws.requests import RequestLaws
from tests.sim.laws.snapshots import SnapshotLaws
from tests.sim.laws.story import StoryLaws
from tests.sim.laws.transactions import TransactionLaws
from tests.sim.options import Options
from tests.sim.world.disk import Observer

if TYPE_CHECKING:
    from tests.sim.nodes.brokers import SimBroker
    from tests.sim.nodes.controllers import SimController

__all__ = ["LawBroken", "Laws", "hold"]


class Laws:
    """All laws, and the order of the checks."""

    def __init__(
        self,
        options: Options,
        coverage: Coverage,
        controllers: "Sequence[SimController]",
        brokers: "Mapping[NodeId, SimBroker]",
        bootstrap: Voters,
    ) -> None:
        self.history = History(bootstrap)
        self._observer = Observer()
        self.quorum = QuorumLaws(self.history, options, coverage, controllers)
        self.snapshots = SnapshotLaws(self.history)
        self.brokers = BrokerLaws(self.history, options, coverage, brokers, self.quorum.following.spoke_majority_ms)
        self.deaths = DeathLaws(coverage, brokers)
        self.directories = DirectoryLaws(coverage)
        self.metadata = MetadataLaws(coverage, self.brokers.has_applied, self.directories)
        self.reassignments = self.metadata.reassignments
        self.modes = ModeLaws(coverage)
        self.eligible = EligibleLaws(coverage)
        self.features = FeatureLaws(self.history, coverage)
        self.policies = PolicyLaws(options.policy_partitions_max, coverage)
        self.placement = PlacementLaws(coverage)
        self.transactions = TransactionLaws()
        self.proposals = ProposalLaws(coverage)
        self.requests = RequestLaws()
        self.clients = ClientLaws(self.history, self.metadata)
        self.partitions = PartitionLaws(self.history, coverage)
        self.story = StoryLaws(self.history, coverage)
        self.entities = EntityLaws(self.history, options, coverage)

    # --- controllers -----------------------------------------------------------------------------------------------

    def about_to_take(self, controller: "SimController", event: Event, now_ms: float) -> None:
        """Called before the controller processes `event`."""
        match event:
            case RaftRequest(request, _):
                self.quorum.about_to_take(controller, request, now_ms)
            case Read(reply_to, _):
                self.quorum.following.read_taken(controller, reply_to, now_ms)
            case Submission(command, _, _, RequestIdentity() as identity):
                assert controller.node is not None
                self.requests.asked(command, identity, controller.node.core.epoch)
            case KeepAlive(sessions, _):
                self.entities.sessions.about_to_hear(controller, sessions, now_ms)
            case BrokerFetch(fetch, _):
                self.brokers.about_to_take(controller, fetch, now_ms)
            case _:
                pass

    def forget_question(self) -> None:
        """Called before several events are processed at once: the cause of a change will be unknown."""
        self.quorum.forget_question()
        self.brokers.forget_stale()

    def observe(self, controller: "SimController", now_ms: float) -> None:
        """Called after an event at a running controller."""
        with self._observer:
            self._observe_commits(controller)
            self.quorum.observe(controller, now_ms)
            self.snapshots.observe(controller)
            self.brokers.observe_controller(controller, now_ms)
            self.story.observe(controller)
            self.modes.observe(controller)
            self.entities.observe(controller, now_ms)
            assert controller.node is not None
            controller.node.check_invariants()
            # Production refuses a decision after an internal error, and continues. The simulator must fail on every
            # such error.
            mistake = controller.node.active.accidents.problem(controller.clock.now_ms())
            hold(not mistake, "M9 NoMistakes", f"{controller.name}: {mistake}")

    def _observe_commits(self, controller: "SimController") -> None:
        """Called in the middle of a turn, too: before a crash, a node may already have sent news of a commit."""
        for step in self.quorum.check_watermark(controller):
            self.quorum.committed(step)
            self.metadata.committed(step)
            self.modes.committed(step)
            self.deaths.committed(step)
            self.eligible.committed(step)
            self.directories.committed(step)
            self.features.committed(step)
            self.policies.committed(step)
            self.placement.committed(step)
            self.transactions.committed(step)
            self.proposals.committed(step)
            self.requests.committed(step)
            self.clients.committed()
            self.partitions.committed(step)
            self.story.committed(step)
            self.entities.committed(step)
            for broker_id, broker_epoch in sorted(self.metadata.led_away):
                self.brokers.led_away(broker_id, broker_epoch, step.batch.end_offset)

    def about_to_send(self, controller: "SimController", request: PeerRequest, now_ms: float) -> None:
        with self._observer:
            self._observe_commits(controller)
            self.quorum.about_to_send(controller, request, now_ms)

    def about_to_reply(self, controller: "SimController", event: Event, answer: Answer, now_ms: float) -> None:
        """Called before `answer` to the earlier `event` leaves."""
        with self._observer:
            self._observe_commits(controller)
            self._about_to_reply(controller, event, answer, now_ms)

    def _about_to_reply(self, controller: "SimController", event: Event, answer: Answer, now_ms: float) -> None:
        if isinstance(event, Submission) and isinstance(answer, CommandReply):
            self.clients.not_inside_transaction(answer.offset)
        match event:
            case RaftRequest(request, _):
                assert isinstance(answer, PeerResponse), f"a voter's request is answered, not refused: {answer}"
                self.quorum.about_to_reply(controller, request, answer, now_ms)
            case BrokerFetch(fetch, _):
                assert isinstance(answer, MetadataFetched | Refused)
                self.brokers.answered(controller, fetch, answer, now_ms)
            case Read(reply_to, _) if isinstance(answer, ReadView):
                self.quorum.following.read_answered(controller, reply_to, now_ms)
            case Submission(AlterPartition() as command, _, _, _) if isinstance(answer, AlterPartitionReply):
                self.proposals.answered(command, answer)
            case Submission(_, _, _, RequestIdentity() as identity):
                self.requests.answered(controller, identity, answer)
            case _:
                pass

    # --- brokers ---------------------------------------------------------------------------------------------------

    def observe_broker(self, broker: "SimBroker") -> None:
        """Called after an event at a running broker."""
        self.brokers.observe(broker)
