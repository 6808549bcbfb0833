"""Where nobody's log reaches back to the damage any more, another's snapshot takes the place of what is lost."""

import pytest

from metadata_log.format.errors import CorruptLog, ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from quorum.runtime.disk.peer_reads import read_snapshot
from quorum.runtime.disk.repair import PATIENCE_ROUNDS, REST_MS
from quorum.runtime.log_repair import READ_TIMEOUT_MS
from quorum.runtime.protocol.peer_answers import answered, unanswered
from quorum.runtime.protocol.world import RaftRequest
from snapshots.format import snapshot_name
from snapshots.store import SnapshotStore
from tests.quorum.runtime.disk.damaged_node import CONFIG, LAST_EPOCH, DamagedNode, Snapshot
from tests.quorum.runtime.lone_node import LoneNode, directory_id, voters_of
from tests.sim.world.disk import MemoryDirectory

IN_THE_MIDDLE = SEGMENT_HEADER_BYTES + 300


def ask_in_vain(it: DamagedNode, snapshot: OffsetAndEpoch | None) -> None:
    """Both others say that their logs start above the damage; the snapshot is theirs."""
    for _ in range(2):
        it.answer(it.too_old(it.end, snapshot))


def load(it: DamagedNode, snapshot: Snapshot, piece_bytes: int = 300) -> int:
    count = it.give_pieces(snapshot.data, piece_bytes)
    it.lone.run_until_idle()
    return count


def test_a_log_starts_at_anothers_snapshot_and_keeps_what_stands_above() -> None:
    """The end is what it was, so are its chain and the vote that it is good for. Then it may run."""
    it = DamagedNode(IN_THE_MIDDLE)
    node, before = it.lone.node, it.lone.node.log.shape
    damaged = node.log.damage[0]
    assert node.state.applied == 0 and damaged.end < 19
    snapshot = it.snapshot_at(19)
    ask_in_vain(it, snapshot.meta.end)
    assert load(it, snapshot) > 1
    shape = node.log.shape
    assert (node.log.damage, shape.start, shape.snapshot) == ((), snapshot.meta.end, snapshot.meta.end)
    assert node.disk.status().damage_mended == 1
    assert (shape.end, shape.chain, shape.last_epoch) == (before.end, before.chain, before.last_epoch)
    assert node.core.high_watermark == node.state.applied == 19
    assert node.state.committed.digest_bytes == snapshot.image.digest_bytes
    assert node.core.shape == shape and not node.core.disk_trust.damaged
    assert it.stand_for_election() != []
    assert it.lone.stopped is None


def test_the_log_is_read_the_same_after_a_restart() -> None:
    it = DamagedNode(IN_THE_MIDDLE)
    snapshot = it.snapshot_at(19)
    ask_in_vain(it, snapshot.meta.end)
    load(it, snapshot)
    shape = it.lone.node.log.shape
    again = LoneNode(it.disk, CONFIG)
    again.run_until_idle()
    assert again.node.log.shape == shape
    assert again.node.state.applied == 19


@pytest.mark.parametrize("restart", [False, True])
def test_a_snapshot_that_ends_within_the_damage_leaves_the_rest_to_be_mended(restart: bool) -> None:
    """The others' logs still hold that: it is proven by the chain, the snapshot with it."""
    it = DamagedNode(IN_THE_MIDDLE)
    before = it.lone.node.log.shape
    damaged = it.lone.node.log.damage[0]
    assert damaged.end - damaged.start >= 2
    snapshot = it.snapshot_at(damaged.start + 1)
    ask_in_vain(it, snapshot.meta.end)
    load(it, snapshot)
    node = it.lone.node
    (left,) = node.log.damage
    assert (left.start, left.end) == (damaged.start + 1, damaged.end)
    assert node.disk.status().damage_mended == 0
    assert node.core.disk_trust.damaged and it.stand_for_election() == []
    if restart:
        it.lone = LoneNode(it.disk, CONFIG)
        it.lone.run_until_idle()
        it.lone.turn()
        node = it.lone.node
        assert [(each.start, each.end) for each in node.log.damage] == [(left.start, left.end)]
    else:
        it.wait(REST_MS)
    it.answer_all()
    shape = node.log.shape
    assert (node.log.damage, shape.start, shape.end, shape.chain) == (
        (),
        snapshot.meta.end,
        before.end,
        before.chain,
    )
    assert it.lone.stopped is None
    again = LoneNode(it.disk, CONFIG)
    assert again.node.log.shape._replace(snapshot=None) == shape._replace(snapshot=None)
    assert again.node.log.damage == ()
    assert [batch.data for batch in again.node.log.read(left.start, 1 << 20)] == [
        batch.data for batch in it.written if batch.base_offset >= left.start
    ]


def test_what_contradicts_the_snapshot_is_given_up() -> None:
    """Another epoch below its end: what this node has from there on was never committed, and never will be."""
    it = DamagedNode(IN_THE_MIDDLE, epoch=LAST_EPOCH + 1)
    node = it.lone.node
    right = it.snapshot_at(19)
    end = OffsetAndEpoch(19, LAST_EPOCH + 1)
    there = SnapshotStore(MemoryDirectory())
    image = right.image
    there.write(right.meta._replace(end=end), image)
    data = there.read_chunk(end, 0, 1 << 20)[1]
    ask_in_vain(it, end)
    it.give_pieces(data)
    it.lone.run_until_idle()
    shape = node.log.shape
    assert (shape.start, shape.end, shape.last_epoch, node.log.damage) == (end, 19, LAST_EPOCH + 1, ())
    assert node.core.shape == shape and it.lone.stopped is None


def test_a_snapshot_of_another_history_is_refused_and_leaves_nothing() -> None:
    """At an offset that this log has intact, of the same epoch, with another chain: somebody lies. Others are asked again."""
    it = DamagedNode(IN_THE_MIDDLE)
    node = it.lone.node
    before = node.log.shape
    forged = it.snapshot_at(19, chain=bytes(31) + b"x")
    ask_in_vain(it, forged.meta.end)
    load(it, forged)
    assert node.log.shape == before and node.log.damage
    assert not it.metadata.exists(snapshot_name(forged.meta.end))
    source = next(to for to, request in reversed(it.lone.sent) if isinstance(request, ReadSnapshotRequest))
    it.wait(REST_MS)
    ask_in_vain(it, forged.meta.end)
    to, request = it.lone.sent[-1]
    assert isinstance(request, ReadSnapshotRequest) and to != source, "the other one may have the right one"
    it.given.clear()
    load(it, it.snapshot_at(19))
    assert (node.log.damage, node.log.shape.start.offset) == ((), 19)
    assert it.lone.stopped is None


def test_who_votes_is_what_the_snapshot_says_and_the_log_above_it() -> None:
    four = voters_of([1, 2, 3, 4])
    it = DamagedNode(SEGMENT_HEADER_BYTES + 250, voters=four)
    assert list(it.lone.node.core.voters.ids) == [1, 2, 3]
    snapshot = it.snapshot_at(19, voters=four)
    ask_in_vain(it, snapshot.meta.end)
    load(it, snapshot)
    assert it.lone.node.core.voters.ids == (1, 2, 3, 4)


def test_the_batches_are_waited_for_while_somebody_may_have_them() -> None:
    """One says that its log starts above, the other does not answer. Only after some rounds a snapshot will do."""
    it = DamagedNode(IN_THE_MIDDLE)
    snapshot = it.snapshot_at(19)
    for rounds in range(1, PATIENCE_ROUNDS + 1):
        for _ in range(2):
            to, request = it.asked[-1]
            if to == 2:
                it.answer(it.too_old(it.end, snapshot.meta.end))
            else:
                it.lone.turn(unanswered(to, request, Failure.TIMED_OUT))
        asks_for_pieces = isinstance(it.lone.sent[-1][1], ReadSnapshotRequest)
        assert asks_for_pieces is (rounds == PATIENCE_ROUNDS)
        if not asks_for_pieces:
            it.wait(REST_MS)
    load(it, snapshot)
    assert it.lone.node.log.shape.start.offset == 19


def test_a_node_that_nobody_answers_waits() -> None:
    """It may be cut off; what it has lost may be with any of them. Its own snapshot would be a loss of history for nothing."""
    it = DamagedNode(None)
    node = it.lone.node
    it.keep_snapshot(19)
    rot(it)
    for _ in range(6 * PATIENCE_ROUNDS):
        to, request = it.asked[-1]
        it.lone.turn(unanswered(to, request, Failure.TIMED_OUT))
        it.wait(max(REST_MS, READ_TIMEOUT_MS))
    assert node.log.damage


def rot(it: DamagedNode) -> None:
    """While the node runs."""
    it.metadata.flip_bit(it.name, IN_THE_MIDDLE)
    it.lone.node.disk.found_damage(CorruptLog.at(f"{it.metadata.path_text}/{it.name}", IN_THE_MIDDLE, 0, "rot"))
    it.lone.turn()


@pytest.mark.parametrize("others", ["behind", "damaged"])
def test_its_own_snapshot_will_do_when_the_only_one_that_answers_cannot_help(others: str) -> None:
    """Of three, one is dead, and the other's log ends below the damage, or is damaged there too. That one cannot lead.

    If this node waited for the dead, nobody would lead.
    """
    it = DamagedNode(None)
    node = it.lone.node
    it.keep_snapshot(19)
    rot(it)
    error = ErrorCode.OFFSET_OUT_OF_RANGE if others == "behind" else ErrorCode.STORAGE_ERROR
    for _ in range(PATIENCE_ROUNDS):
        assert node.log.damage
        for _ in range(2):
            to, request = it.asked[-1]
            if to == 2:
                it.answer(ReadLogResponse(error, LAST_EPOCH, None))
            else:
                it.lone.turn(unanswered(to, request, Failure.TIMED_OUT))
        it.wait(REST_MS)
    it.lone.run_until_idle()
    assert (node.log.damage, node.log.shape.start.offset) == ((), 19)
    assert not node.core.disk_trust.damaged
    assert it.stand_for_election(), "it runs again"


def test_a_download_that_breaks_off_is_gone_on_with() -> None:
    it = DamagedNode(IN_THE_MIDDLE)
    snapshot = it.snapshot_at(19)
    ask_in_vain(it, snapshot.meta.end)
    to, request = it.lone.sent[-1]
    assert isinstance(request, ReadSnapshotRequest) and request.position == 0
    piece = ReadSnapshotResponse(ErrorCode.NONE, LAST_EPOCH, None, len(snapshot.data), 0, snapshot.data[:100])
    it.lone.turn(answered(to, request, piece))
    to, request = it.lone.sent[-1]
    it.lone.turn(unanswered(to, request, Failure.BROKEN))
    it.wait(REST_MS)
    ask_in_vain(it, snapshot.meta.end)
    _, request = it.lone.sent[-1]
    assert isinstance(request, ReadSnapshotRequest) and request.position == 100
    load(it, snapshot)
    assert it.lone.node.log.shape.start.offset == 19


def test_nonsense_for_a_piece_is_passed_over() -> None:
    it = DamagedNode(IN_THE_MIDDLE)
    snapshot = it.snapshot_at(19)
    whole = len(snapshot.data)
    for answer in (
        ReadSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, LAST_EPOCH, None),
        ReadSnapshotResponse(ErrorCode.NONE, LAST_EPOCH, None, whole, 7, b"elsewhere"),
        ReadSnapshotResponse(ErrorCode.NONE, LAST_EPOCH, None, whole, 0, b""),
        ReadSnapshotResponse(ErrorCode.NONE, LAST_EPOCH, None, 3, 0, b"more than there is"),
    ):
        ask_in_vain(it, snapshot.meta.end)
        to, request = it.lone.sent[-1]
        assert isinstance(request, ReadSnapshotRequest)
        it.lone.turn(answered(to, request, answer))
        assert it.lone.stopped is None and it.lone.jobs == []
        it.wait(REST_MS)
    assert it.lone.node.log.damage


def test_any_node_gives_its_snapshots() -> None:
    """A follower too; a piece at a time; none that it does not have, and never the bootstrap one."""
    it = DamagedNode(None)
    store, snapshot = it.lone.node.snapshotter.store, it.snapshot_at(19)
    store.write(snapshot.meta, snapshot.image)
    end, size = snapshot.meta.end, len(snapshot.data)

    def ask(of: OffsetAndEpoch, position: int, max_bytes: int) -> ReadSnapshotResponse:
        reply_to = it.lone.new_reply_to()
        asker = it.lone.node.me._replace(node_id=2, directory_id=directory_id(2))
        it.lone.turn(RaftRequest(ReadSnapshotRequest(asker, of, position, max_bytes), reply_to))
        answer = it.lone.answers[reply_to]
        assert isinstance(answer, ReadSnapshotResponse)
        return answer

    first = ask(end, 0, 100)
    assert (first.error, first.size, first.position, first.data) == (ErrorCode.NONE, size, 0, snapshot.data[:100])
    assert ask(end, 100, 1 << 30).data == snapshot.data[100:]
    assert len(ask(end, 0, -1).data) == 1
    assert ask(end, size + 1, 10).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert ask(end, -1, 10).error is ErrorCode.POSITION_OUT_OF_RANGE
    for other in (OffsetAndEpoch(0, 0), OffsetAndEpoch(-1, 0), end._replace(epoch=99)):
        assert ask(other, 0, 10).error is ErrorCode.SNAPSHOT_NOT_FOUND
    store.withdraw(end)
    assert (
        read_snapshot(ReadSnapshotRequest(it.lone.node.me, end, 0, 10), store, epoch=1, leader_id=None).error
        is ErrorCode.SNAPSHOT_NOT_FOUND
    )
