"""The laws, checked after every event. Each bears the number of the invariant that it stands for.

    quorum      elections, epochs, logs, commits, disk before speech     R1 - R16, L5, D1
    following   who follows a leader, and what it may do while that lasts L5, C5, the lease
    damage      holes in logs, and durable ends that are lost             D3
    snapshots   what is applied and what snapshots hold                   R13, S1 - S6
    metadata    what committed records may do                             M1 - M7, M9
    proposals   what leaders of partitions are granted                    M2, M4, M5
    brokers     what brokers are given, and how long they may serve       F1 - F7, M2, M8, the lease
    requests    what is done once, remembered, and forgotten              C3
    clients     what clients were told                                    C1 - C5

The checks are incremental: each looks at what the event may have changed. `history` is what they all compare with.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from metadata_log.format.ids import NodeId
from metadata_log.format.records import Voters
from quorum.controller.protocol.commands import AlterPartition, AlterPartitionReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.core.protocol.messages import PeerRequest, PeerResponse
from quorum.runtime.protocol.requests import MetadataFetched, ReadView, Refused
from quorum.runtime.protocol.world import Answer, BrokerFetch, Event, RaftRequest, Read, Submission
from tests.sim.coverage import Coverage
from tests.sim.disk import Observer
from tests.sim.history import History
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.laws.brokers import BrokerLaws
from tests.sim.laws.clients import ClientLaws
from tests.sim.laws.metadata import MetadataLaws
from tests.sim.laws.proposals import ProposalLaws
from tests.sim.laws.quorum import QuorumLaws
from tests.sim.laws.requests import RequestLaws
from tests.sim.laws.snapshots import SnapshotLaws
from tests.sim.options import Options

if TYPE_CHECKING:
    from tests.sim.brokers import SimBroker
    from tests.sim.controllers import SimController

__all__ = ["LawBroken", "Laws", "hold"]


class Laws:
    """All of them, and the order in which they look."""

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
        self.metadata = MetadataLaws(coverage, self.brokers.has_applied)
        self.proposals = ProposalLaws(coverage)
        self.requests = RequestLaws()
        self.clients = ClientLaws(self.history, self.metadata)

    # --- controllers -----------------------------------------------------------------------------------------------

    def about_to_take(self, controller: "SimController", event: Event, now_ms: float) -> None:
        """The controller is about to process `event`."""
        match event:
            case RaftRequest(request, _):
                self.quorum.about_to_take(controller, request, now_ms)
            case Read(reply_to, _):
                self.quorum.following.read_taken(controller, reply_to, now_ms)
            case Submission(command, _, _, RequestIdentity() as identity):
                self.requests.asked(command, identity)
            case BrokerFetch(fetch, _):
                self.brokers.about_to_take(controller, fetch, now_ms)
            case _:
                pass

    def forget_question(self) -> None:
        """Several events are about to be processed at once: whose doing a change is cannot be told."""
        self.quorum.forget_question()
        self.brokers.forget_stale()

    def observe(self, controller: "SimController", now_ms: float) -> None:
        """After an event at a controller that is still up."""
        with self._observer:
            self._observe_commits(controller)
            self.quorum.observe(controller, now_ms)
            self.snapshots.observe(controller)
            self.brokers.observe_controller(controller, now_ms)
            assert controller.node is not None
            controller.node.check_invariants()
            # Production refuses what it makes a mistake in, and goes on. Here every mistake is to be seen.
            mistake = controller.node.active.accidents.problem(controller.clock.now_ms())
            hold(not mistake, "M9 NoMistakes", f"{controller.name}: {mistake}")

    def _observe_commits(self, controller: "SimController") -> None:
        """Also in the middle of a turn: one that a crash cuts short may have spoken already of what it has committed."""
        for step in self.quorum.check_watermark(controller):
            self.quorum.committed(step)
            self.metadata.committed(step)
            self.proposals.committed(step)
            self.requests.committed(step)
            self.clients.committed()
            for broker_id, broker_epoch in sorted(self.metadata.led_away):
                self.brokers.led_away(broker_id, broker_epoch, step.batch.end_offset)

    def about_to_send(self, controller: "SimController", request: PeerRequest, now_ms: float) -> None:
        with self._observer:
            self._observe_commits(controller)
            self.quorum.about_to_send(controller, request, now_ms)

    def about_to_reply(self, controller: "SimController", event: Event, answer: Answer, now_ms: float) -> None:
        """`answer` to `event`, which came in earlier, is about to leave."""
        with self._observer:
            self._observe_commits(controller)
            self._about_to_reply(controller, event, answer, now_ms)

    def _about_to_reply(self, controller: "SimController", event: Event, answer: Answer, now_ms: float) -> None:
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
        """After an event at a broker that is still up."""
        self.brokers.observe(broker)
