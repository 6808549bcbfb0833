"""A node whose log is damaged, and what other controllers would give it."""

from typing import NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, OffsetAndEpoch
from metadata_log.format.records import Topic, Voters
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import Replay
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, base_offset_of
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.messages import (
    ReadLogRequest,
    ReadLogResponse,
    ReadSnapshotRequest,
    ReadSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from quorum.runtime.disk import election_file
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered
from quorum.runtime.protocol.world import SnapshotWanted
from snapshots.format import SnapshotMeta, genesis
from snapshots.store import SnapshotStore
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

VOTERS = voters_of([1, 2, 3])
CONFIG = NodeConfig(log=LogConfig(segment_bytes=2048, tail_bytes=700))
LAST_EPOCH = 4


class Snapshot(NamedTuple):
    """What there is to know of one, and the bytes of its file."""

    meta: SnapshotMeta
    image: MetadataImage
    data: bytes


class DamagedNode:
    """Node 1 with a history of 20 topics, made by others; and what another controller would answer it."""

    def __init__(
        self,
        damaged_at: int | None = SEGMENT_HEADER_BYTES + 90,
        voters: Voters | None = None,
        config: NodeConfig = CONFIG,
        epoch: int = LAST_EPOCH,
    ) -> None:
        """`epoch`: the epoch that the node knows."""
        self.disk = formatted_disk(VOTERS)
        self.metadata = self.disk.subdirectory(LOG_DIRECTORY)
        self.given: list[ReadSnapshotRequest] = []
        election_file.save(self.disk, ElectionState(epoch, None, None))
        log = Log.open(self.metadata, chain=genesis(CLUSTER_ID, VOTERS), config=config.log)
        for i in range(20):
            records = [voters] if voters is not None and i == 2 else [Topic(f"topic-{i}", (i + 1).to_bytes(16, "big"))]
            log.append(records, 1 + i // 6, 1000 + i)
        log.flush()
        self.written = log.read(0, 1 << 20)
        self.end = log.shape.end
        log.close()
        self.name = next(name for name in self.metadata.names() if base_offset_of(name) == 0)
        self.intact = self.metadata.read(self.name, 1 << 20)
        if damaged_at is not None:
            self.metadata.flip_bit(self.name, damaged_at)
        self.lone = LoneNode(self.disk, config)
        self.lone.run_until_idle()
        self.lone.turn()

    @property
    def asked(self) -> list[tuple[NodeId, ReadLogRequest]]:
        return [(to, request) for to, request in self.lone.sent if isinstance(request, ReadLogRequest)]

    def right_answer(self, request: ReadLogRequest, batches: int = 1) -> ReadLogResponse:
        given = [each for each in self.written if request.offset <= each.base_offset < request.end_offset]
        return ReadLogResponse(ErrorCode.NONE, LAST_EPOCH, None, tuple(given[:batches]), 0)

    def too_old(self, log_start: Offset, snapshot: OffsetAndEpoch | None = None) -> ReadLogResponse:
        return ReadLogResponse(ErrorCode.OFFSET_OUT_OF_RANGE, LAST_EPOCH, None, (), log_start, snapshot)

    def answer(self, response: ReadLogResponse) -> None:
        to, request = self.asked[-1]
        self.lone.turn(answered(to, request, response))

    def snapshot_at(self, end: Offset, *, chain: bytes | None = None, voters: Voters = VOTERS) -> "Snapshot":
        """The snapshot at `end`, as another node has it."""
        replay = Replay()
        image = replay.apply([batch for batch in self.written if batch.end_offset <= end]).image
        last = next(batch for batch in self.written if batch.end_offset == end)
        meta = SnapshotMeta(last.end, last.last_timestamp_ms, chain or last.chain, voters, 1)
        there = SnapshotStore(MemoryDirectory())
        return Snapshot(meta, image, there.read_chunk(there.write(meta, image).end, 0, 1 << 20)[1])

    def keep_snapshot(self, end: Offset) -> "Snapshot":
        """As `snapshot_at`; and this node has it too."""
        snapshot, node = self.snapshot_at(end), self.lone.node
        node.snapshotter.store.write(snapshot.meta, snapshot.image)
        node.log.note_snapshot(snapshot.meta.end)
        return snapshot

    def give_pieces(self, data: bytes, piece_bytes: int = 300) -> int:
        """Answers as long as the node asks for pieces of a snapshot; gives how many those were."""
        for count in range(100):
            to, request = self.lone.sent[-1]
            if not isinstance(request, ReadSnapshotRequest) or request in self.given:
                return count
            self.given.append(request)
            piece = data[request.position : request.position + piece_bytes]
            answer = ReadSnapshotResponse(ErrorCode.NONE, LAST_EPOCH, None, len(data), request.position, piece)
            self.lone.turn(answered(to, request, answer))
        raise AssertionError("the node never has enough")

    def wait(self, ms: int) -> None:
        self.lone.now_ms += ms
        self.lone.turn()

    def answer_all(self) -> None:
        for _ in range(20):
            if not self.lone.node.log.damage:
                return
            self.answer(self.right_answer(self.asked[-1][1]))
        raise AssertionError("the node is not content with what it gets")

    def stand_for_election(self) -> list[VoteRequest]:
        before = len(self.lone.sent)
        self.lone.now_ms += self.lone.config.raft.election_timeout_max_ms * 2
        self.lone.turn()
        return [one for _, one in self.lone.sent[before:] if isinstance(one, VoteRequest)]

    def lead(self) -> None:
        """Elected by node 2; nothing of its epoch is committed yet."""
        assert self.stand_for_election()
        for pre_vote in (True, False):
            asked = [
                (to, one) for to, one in self.lone.sent if isinstance(one, VoteRequest) and one.pre_vote is pre_vote
            ]
            to, request = next(each for each in asked if each[0] == 2)
            self.lone.turn(answered(to, request, VoteResponse(ErrorCode.NONE, request.epoch, None, True)))
        assert self.lone.node.core.is_leading


def lone_voter_with_sealed_segments() -> LoneNode:
    """The only voter, which leads; its log has two of them at least."""
    lone = LoneNode(formatted_disk(voters_of([1])), CONFIG)
    lone.run_until_idle()
    while len(lone.node.log.extents()) < 2:
        lone.turn(SnapshotWanted("r" * 400, lone.new_reply_to(), lone.now_ms + 1_000))
        lone.run_until_idle()
    return lone
