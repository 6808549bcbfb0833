"""One node by itself: a memory disk, a clock that the test sets, jobs that run when the test says so."""

import random
from collections.abc import Sequence

from metadata_log.disk.identity import Identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, ReplicaKey, uuid_text
from metadata_log.format.records import Endpoint, Voter, Voters
from quorum.core.protocol.messages import FetchRequest, PeerRequest, PeerResponse, VoteRequest, VoteResponse
from quorum.core.protocol.problem import ProblemCode
from quorum.runtime.disk.lost_vote import NewDirectoryId
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.node import Node
from quorum.runtime.protocol.jobs import FlushJob, Job
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.world import Answer, Event, JobDone, RaftRequest, ReplyTo, Tick
from quorum.runtime.status import problems_of
from snapshots.store import SnapshotStore
from tests.sim.world.disk import MemoryDirectory

CLUSTER_ID = uuid_text(b"a lonely cluster")


def directory_id(node_id: NodeId) -> bytes:
    return node_id.to_bytes(16, "big")


def voters_of(node_ids: Sequence[NodeId]) -> Voters:
    return Voters(tuple(Voter(i, directory_id(i), (Endpoint("CONTROLLER", "127.0.0.1", 9_090 + i),)) for i in node_ids))


def formatted_disk(voters: Voters) -> MemoryDirectory:
    disk = MemoryDirectory("/lone")
    SnapshotStore(disk.subdirectory(LOG_DIRECTORY)).write_bootstrap(voters)
    return disk


class LoneNode:
    """Node 1 and its world: what it sends, answers and starts is kept for the test to look at."""

    def __init__(
        self,
        disk: MemoryDirectory,
        config: NodeConfig | None = None,
        new_directory_id: NewDirectoryId | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.config = config or NodeConfig()
        self.disk = disk
        self.now_ms = 1_000
        self.sent: list[tuple[NodeId, PeerRequest]] = []
        self.answers: dict[ReplyTo, Answer] = {}
        self.jobs: list[Job] = []
        self.stopped: str | None = None
        self._last_reply_to = 0
        identity = identity or Identity(CLUSTER_ID, 1, directory_id(1), 1, "controller")
        opened = open_directory(disk, identity, self.config, new_directory_id)
        self.node = Node(opened, self.config, self, random.Random(1), self.now_ms, self.wall_ms)
        self.node.start(self.now_ms, self.wall_ms)

    @property
    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    # --- what the test does ----------------------------------------------------------------------------------------

    @property
    def problems(self) -> dict[ProblemCode, str]:
        """What the node reports as wrong, by code."""
        return {each.code: each.text for each in problems_of(self.node, self.now_ms)}

    def turn(self, *events: Event) -> None:
        self.node.turn(events or (Tick(),), self.now_ms, self.wall_ms)

    def new_reply_to(self) -> ReplyTo:
        self._last_reply_to += 1
        return self._last_reply_to

    def run_until_idle(self) -> None:
        """Every job, and what follows, until nothing is left."""
        while self.jobs:
            self.finish(self.jobs[0])

    def finish(self, job: Job) -> None:
        """Runs this one job and hands it back."""
        self.jobs.remove(job)
        try:
            job.run()
        except Exception as e:  # as in production, the node judges what a job died of
            self.turn(JobDone(job, e))
        else:
            self.turn(JobDone(job))

    def flushes(self) -> list[Job]:
        return [job for job in self.jobs if isinstance(job, FlushJob)]

    @property
    def asked(self) -> FetchRequest:
        """The last fetch of the node. Its offset is the end that the node acknowledges."""
        return [request for _, request in self.sent if isinstance(request, FetchRequest)][-1]

    def respond(self, response: PeerResponse) -> None:
        """Answers what the node has sent last."""
        destination, request = self.sent[-1]
        self.turn(answered(destination, request, response))

    def elect(self) -> None:
        """Whoever is asked for a vote gives it, until this node leads. What it starts then is left for the test to run."""
        seen = 0
        while not self.node.core.is_leading:
            self.now_ms = max(self.now_ms, self.node.next_deadline_ms() or 0)
            self.turn()
            asked, seen = self.sent[seen:], len(self.sent)
            for destination, request in asked:
                if isinstance(request, VoteRequest):
                    granted = VoteResponse(ErrorCode.NONE, request.epoch, None, vote_granted=True)
                    self.turn(answered(destination, request, granted))

    def fetched_by(self, replica: ReplicaKey, offset: Offset, applied_offset: Offset = 0, digest: bytes = b"") -> None:
        """`replica` holds all below `offset`, and has applied all below `applied_offset`."""
        shape, chain = self.node.log.shape, self.node.log.chain_at(offset)
        epoch = shape.epoch_below(offset)
        assert chain is not None and epoch is not None
        request = FetchRequest(replica, self.node.core.epoch, 1, offset, epoch, chain, 0, 150, 1 << 20)
        request = request._replace(applied_offset=applied_offset, digest=digest)
        self.turn(RaftRequest(request, self.new_reply_to()))

    # --- World -----------------------------------------------------------------------------------------------------

    def send(self, destination: NodeId, request: PeerRequest, timeout_ms: int) -> None:
        self.sent.append((destination, request))

    def reply(self, reply_to: ReplyTo, answer: Answer) -> None:
        assert reply_to not in self.answers, f"{reply_to} is answered twice"
        self.answers[reply_to] = answer

    def start_job(self, job: Job) -> None:
        self.jobs.append(job)

    def stop_node(self, reason: str) -> None:
        self.stopped = reason
