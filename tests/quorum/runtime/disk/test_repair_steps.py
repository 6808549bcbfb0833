"""The decisions of the repair alone: inputs in, one effect out, without a log, a disk or a network."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Topic
from metadata_log.store.damage import DamagedRange
from metadata_log.store.log import Log
from quorum.core.protocol.messages import ReadLogRequest, ReadLogResponse, ReadSnapshotRequest, ReadSnapshotResponse
from quorum.runtime.disk.repair import (
    REST_MS,
    Ask,
    FetchPiece,
    KeepPiece,
    Load,
    LoadOver,
    Outcome,
    PieceOver,
    PutBack,
    PutBackOver,
    Repair,
    Seen,
    Tick,
)
from quorum.runtime.protocol.peer_answers import BatchesReceived, PieceReceived, ReadFailed
from tests.sim.world.disk import MemoryDirectory

ME = ReplicaKey(1, bytes(16))
SNAPSHOT = OffsetAndEpoch(20, 1)


def lost_range() -> tuple[DamagedRange, Log]:
    """The range [4, 6) of a log of ten batches."""
    log = Log.open(MemoryDirectory())
    batches = [log.append([Topic(f"t{i}", bytes(16))], 1, i) for i in range(10)]
    return DamagedRange(4, 6, batches[3].chain, batches[5].chain, "0.log", 600, 1, 5), log


DAMAGED, LOG = lost_range()
SEEN = Seen((DAMAGED,), None, 1, (2, 3), may_load=True)


def asked(repair: Repair, seen: Seen, now_ms: int) -> ReadLogRequest:
    effect = repair.step(seen, Tick(), now_ms)
    assert isinstance(effect, Ask)
    return effect.request


def too_old(snapshot: OffsetAndEpoch | None = None) -> ReadLogResponse:
    return ReadLogResponse(ErrorCode.OFFSET_OUT_OF_RANGE, 1, None, (), 20, snapshot)


def test_batches_are_put_back_once_the_range_is_complete() -> None:
    """1. Voter 2 does not answer. 2. Voter 3 sends the first batch. 3. Voter 3 sends the second batch: both are written."""
    repair = Repair(ME)
    assert repair.next_deadline_ms(has_damage=False) is None
    assert repair.step(SEEN, Tick(), 0) == Ask(2, first := ReadLogRequest(ME, 4, 6, 1 << 20))
    assert repair.step(SEEN, Tick(), 0) is None, "one request at a time"
    request = repair._asked
    assert request == first and isinstance(request, ReadLogRequest)
    assert repair.step(SEEN, ReadFailed(request), 0) is None
    for offset in (4, 5):
        request = asked(repair, SEEN, 0)
        assert (request.offset, request.end_offset) == (offset, 6)
        batches = LOG.read(offset, 1)
        effect = repair.step(SEEN, BatchesReceived(3, request, ReadLogResponse(ErrorCode.NONE, 1, None, batches, 0)), 0)
    assert effect == PutBack(DAMAGED, LOG.read(4, 1 << 20, until=6))
    assert repair.step(SEEN._replace(damage=()), PutBackOver(Outcome.DONE), 0) is None
    assert repair.mended_ranges == 1


def test_damage_before_the_range_is_repaired_first() -> None:
    """1. All batches of [4, 6) have arrived. 2. Writing them finds that [2, 4) is damaged, too. 3. The repair asks for [2, 4)."""
    repair = Repair(ME)
    arrived = ReadLogResponse(ErrorCode.NONE, 1, None, LOG.read(4, 1 << 20, until=6), 0)
    assert isinstance(repair.step(SEEN, BatchesReceived(2, asked(repair, SEEN, 0), arrived), 0), PutBack)
    before = DamagedRange(2, 4, LOG.chain_at(2) or b"", DAMAGED.chain_before, "0.log", 300, 1, 3)
    both = SEEN._replace(damage=(before, DAMAGED))
    assert repair.step(both, PutBackOver(Outcome.MORE_DAMAGE), 0) is None
    request = asked(repair, both, 0)
    assert (request.offset, request.end_offset) == (2, 4)


def test_the_repair_rests_after_batches_of_another_history() -> None:
    """Voters 2 and 3 have other records in the range. The leader will replace the range on this node, but this node's disk is
    full, and holds the fetch. 1. The batches of 2 lead to another chain: the repair asks 3 at once. 2. The batches of 3 do, too:
    the repair rests before it asks 2 again.
    """
    repair, now_ms = Repair(ME), 0
    arrived = ReadLogResponse(ErrorCode.NONE, 1, None, LOG.read(4, 1 << 20, until=6), 0)
    for source in (2, 3, 2, 3):
        effect = repair.step(SEEN, Tick(), now_ms)
        assert isinstance(effect, Ask) and effect.node_id == source
        request = effect.request
        assert isinstance(repair.step(SEEN, BatchesReceived(source, request, arrived), now_ms), PutBack)
        assert repair.step(SEEN, PutBackOver(Outcome.REFUSED), now_ms) is None
        now_ms += REST_MS if source == 3 else 0
        assert repair.next_deadline_ms(has_damage=True) == now_ms


def test_own_and_other_snapshots_take_one_path() -> None:
    """All voters are too old. The node's own snapshot comes first; if it cannot be used, another voter's is downloaded."""
    repair, seen, now_ms = Repair(ME), SEEN._replace(snapshot=SNAPSHOT), 0
    effects = [repair.step(seen, BatchesReceived(2, asked(repair, seen, 0), too_old()), now_ms) for _ in range(2)]
    assert effects == [None, Load(SNAPSHOT, is_own=True)]
    assert repair.next_deadline_ms(has_damage=True) is None, "the job is under way"
    assert repair.step(seen, LoadOver(is_usable=False), now_ms) is None

    now_ms += REST_MS
    for source in (2, 3):
        repair.step(seen, BatchesReceived(source, asked(repair, seen, now_ms), too_old(SNAPSHOT)), now_ms)
    assert repair.step(seen, Tick(), now_ms) == FetchPiece(3, SNAPSHOT)
    piece = ReadSnapshotRequest(ME, SNAPSHOT, 0, 1 << 20)
    whole = PieceReceived(piece, ReadSnapshotResponse(ErrorCode.NONE, 1, None, 3, 0, b"abc"))
    assert repair.step(seen, whole, now_ms) == KeepPiece(SNAPSHOT, 0, b"abc", is_last=True)
    assert repair.step(seen, PieceOver(is_kept=True, is_last=True), now_ms) == Load(SNAPSHOT, is_own=False)
    assert repair.step(seen._replace(damage=()), LoadOver(is_usable=True), now_ms) is None


def test_no_snapshot_is_fetched_while_the_core_downloads_one() -> None:
    """A node has one download at a time. The repair starts a new round after a rest."""
    repair = Repair(ME)
    for source in (2, 3):
        repair.step(SEEN, BatchesReceived(source, asked(repair, SEEN, 0), too_old(SNAPSHOT)), 0)
    assert repair.step(SEEN._replace(may_load=False), Tick(), 0) is None
    assert repair.next_deadline_ms(has_damage=True) == REST_MS


def test_a_lone_voter_has_its_own_snapshot_only() -> None:
    """Without a snapshot that covers the damage, the repair waits. A restart judges the disk anew."""
    alone = SEEN._replace(others=())
    repair = Repair(ME)
    for now_ms in range(0, 5 * REST_MS, REST_MS):
        assert repair.step(alone, Tick(), now_ms) is None
    assert repair.step(alone._replace(snapshot=SNAPSHOT), Tick(), 5 * REST_MS) == Load(SNAPSHOT, is_own=True)


def test_a_snapshot_of_a_later_epoch_waits_until_the_node_knows_the_epoch() -> None:
    """1. The node comes back in epoch 1, and the voters offer a snapshot of epoch 3: the log would have records of an epoch that
    the election file does not have (R4). 2. A fetch has told the node of epoch 4: the snapshot is used."""
    repair, now_ms = Repair(ME), 0
    newer = OffsetAndEpoch(20, 3)
    for epoch in (1, 4):
        seen = SEEN._replace(epoch=epoch)
        for source in (2, 3):
            repair.step(seen, BatchesReceived(source, asked(repair, seen, now_ms), too_old(newer)), now_ms)
        now_ms += REST_MS
        if epoch == 1:
            assert isinstance(repair.step(seen, Tick(), now_ms), Ask), "a new round, for batches"
            repair.step(seen, ReadFailed(repair._asked), now_ms)  # type: ignore[arg-type]
            asked_3 = repair.step(seen, Tick(), now_ms)
            assert isinstance(asked_3, Ask)
            repair.step(seen, ReadFailed(asked_3.request), now_ms)
            now_ms += REST_MS
    assert repair.step(SEEN._replace(epoch=4), Tick(), now_ms) == FetchPiece(3, newer)
