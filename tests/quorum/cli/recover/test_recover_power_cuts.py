"""The power goes at any moment of a recovery, and the disk keeps any part of what was not flushed: run again, it ends the same.

Over a disk in memory that is as bad as disks may be (`tests/sim/world/disk.py`), in each situation that a recovery can meet.
"""

import copy
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

import pytest

from broker_agent.store import BrokerStore
from metadata_log.disk.failures import FlushFailed
from metadata_log.disk.identity import Identity, read_identity, write_identity
from metadata_log.format.batch import Batch
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch
from metadata_log.format.records import FeatureLevel, NoOp, Record, SnapshotMark, Voters
from metadata_log.store.log import Log
from metadata_log.store.log_notes import FLUSHED_NAME, FlushedNote
from metadata_log.store.salvage import intact_batches
from quorum.core.protocol.effects import ElectionState
from quorum.recovery.carry_out import carry_out
from quorum.recovery.plan import plan
from quorum.recovery.survey import CannotRecover, survey
from quorum.runtime.disk import election_file, recovery_plan
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.format import snapshot_name
from snapshots.history.wanted import Wanted
from snapshots.store import SnapshotStore, genesis
from tests.quorum.cli.recover.following import follow
from tests.quorum.runtime.lone_node import CLUSTER_ID, directory_id, voters_of
from tests.sim.world.disk import MemoryDirectory, PowerCut

VOTERS = voters_of([1, 2, 3])
GENESIS = genesis(CLUSTER_ID, VOTERS)
SEEDS = 1
"""Of the dice of each power cut: what the disk keeps, and where the next one comes."""
OLD = [(1, NoOp())] * 5
NEW = [*OLD, *[(2, NoOp())] * 4]


class Situation(NamedTuple):
    """The first one goes on, and is the only one that is written to."""

    survivor: MemoryDirectory
    others: tuple[MemoryDirectory, ...] = ()
    promised_end: Offset = 0
    """All below was durable in the first one, which must not be forgotten before the plan is there."""
    point: Wanted | None = None
    """Where it is restored to; None: all is kept."""


def controller(node_id: int, written: Iterable[tuple[Epoch, Record]]) -> MemoryDirectory:
    directory = MemoryDirectory(f"/c{node_id}")
    metadata = directory.subdirectory(LOG_DIRECTORY)
    SnapshotStore(metadata).write_bootstrap(VOTERS)
    write_identity(directory, Identity(CLUSTER_ID, node_id, directory_id(node_id), 1, "controller", GENESIS))
    log = Log.open(metadata, chain=GENESIS)
    for epoch, record in written:
        log.append([record], epoch, wall_ms=1_000 + log.end)
        election_file.save(directory, ElectionState(epoch, None, 2))
    log.flush()
    log.close()
    return directory


def batches(directory: MemoryDirectory) -> tuple[Batch, ...]:
    log = Log.open(directory.subdirectory(LOG_DIRECTORY))
    try:
        return log.read(log.shape.start.offset, 1 << 30)
    finally:
        log.close()


def flip_bit_in(directory: MemoryDirectory, batch: Batch) -> None:
    metadata = directory.subdirectory(LOG_DIRECTORY)
    (segment,) = (name for name in metadata.names() if name.endswith(".log"))
    metadata.flip_bit(segment, bytes(metadata.read(segment, 1 << 30)).index(batch.data) + 81)


def broker(fetched_from: MemoryDirectory) -> MemoryDirectory:
    directory = MemoryDirectory("/b101")
    write_identity(directory, Identity(CLUSTER_ID, 101, directory_id(101), 1, "broker"))
    store = BrokerStore(directory)
    follow(store, batches(fetched_from), GENESIS)
    return directory


def test_a_note_that_the_disk_does_not_give_is_not_done_without() -> None:
    """It may say more than the bytes do: what is lost would be left out of the account, and nobody asked to accept it."""
    directory = controller(1, NEW)
    flip_bit_in(directory, batches(directory)[-1])
    assert survey(directory).durable.end == len(NEW)
    directory.subdirectory(LOG_DIRECTORY).break_sector(FLUSHED_NAME, 0)
    with pytest.raises(CannotRecover, match="copy the readable files"):
        survey(directory)


# --- the situations --------------------------------------------------------------------------------------------------


def alone() -> Situation:
    """It lacks nothing."""
    return Situation(controller(1, OLD))


def behind() -> Situation:
    """A broker has more, and what the survivor has beyond the common history goes."""
    return Situation(controller(1, [*OLD, *[(1, NoOp())] * 7]), (broker(controller(2, NEW)),))


def far_behind() -> Situation:
    """The broker's log begins beyond the survivor's end, at a snapshot."""
    more: list[tuple[Epoch, Record]] = [*OLD, (2, VOTERS), (2, NoOp()), (2, SnapshotMark(""))]
    gone = controller(2, more)
    first = broker(gone).subdirectory(LOG_DIRECTORY)
    end = OffsetAndEpoch(8, 2)
    late = MemoryDirectory("/b102")
    write_identity(late, Identity(CLUSTER_ID, 102, directory_id(102), 1, "broker"))
    store = BrokerStore(late)
    store.recover()
    store.write_part(end, 0, first.read(snapshot_name(end), 1 << 20))
    store.install(end)
    log = Log.open(gone.subdirectory(LOG_DIRECTORY))
    for _ in range(2):
        store.apply(log.append([NoOp()], 2, 9_000).data, store.position.chain)
    log.close()
    store.close()
    return Situation(controller(1, OLD[:2]), (late,))


def formatted_anew() -> Situation:
    """Only a broker has anything."""
    return Situation(controller(1, []), (broker(controller(2, NEW)),))


def lossy() -> Situation:
    """It has lost its end, and noted that; nothing else is left."""
    directory = controller(1, NEW)
    flip_bit_in(directory, batches(directory)[-1])
    log = Log.open(directory.subdirectory(LOG_DIRECTORY), accept_loss=True)
    assert log.lost is not None
    log.close()
    return Situation(directory)


def broken(*offsets: Offset, noted_end: Offset) -> MemoryDirectory:
    """A log of seven records with a snapshot below 4, damage where these records are, and a durable note of how far it was."""
    directory = controller(1, [(1, NoOp()), (1, VOTERS), (1, NoOp()), (1, SnapshotMark("")), *[(1, NoOp())] * 3])
    metadata = directory.subdirectory(LOG_DIRECTORY)
    name = snapshot_name(OffsetAndEpoch(4, 1))
    metadata.write_atomic(name, broker(directory).subdirectory(LOG_DIRECTORY).read(name, 1 << 20))
    history = batches(directory)
    for offset in offsets:
        flip_bit_in(directory, history[offset])
    note = FlushedNote(metadata)
    note.write(noted_end, history[noted_end - 1].chain)
    note.flush()
    note.close()
    return directory


def broken_below_its_snapshot() -> Situation:
    """The last record below it is not what it was, and the note is an old one."""
    return Situation(broken(3, noted_end=1))


def broken_on_both_sides_of_its_snapshot() -> Situation:
    """What stands behind the second damage goes, and had been durable."""
    return Situation(broken(2, 5, noted_end=7), promised_end=7)


def broken_across_its_snapshots_end() -> Situation:
    """The note is an old one, and what stands above the damage was durable all the same: nothing tears below a snapshot."""
    return Situation(broken(3, 4, noted_end=1), promised_end=7)


def ended_below_its_snapshot() -> Situation:
    """The disk has lost the end of the log, from record 2 on; the snapshot holds all that the note says."""
    directory = broken(noted_end=4)
    metadata = directory.subdirectory(LOG_DIRECTORY)
    (segment,) = (name for name in metadata.names() if name.endswith(".log"))
    at, _ = next(intact_batches(metadata.open(segment), 0, 2))
    metadata.edit(segment, lambda content: content.__delitem__(slice(at, None)))
    return Situation(directory, promised_end=4)


def forgetful() -> Situation:
    """Its vote is gone."""
    directory = controller(1, OLD)
    directory.remove(election_file.FILE_NAME)
    directory.flush()
    return Situation(directory)


def regretted() -> Situation:
    """A snapshot and four records behind it are undone; a snapshot below stays, and the log begins there."""
    records: list[Record] = [NoOp(), VOTERS, SnapshotMark(""), FeatureLevel("metadata.version", 1), SnapshotMark("")]
    written = [(1, each) for each in [*records, *[NoOp()] * 4]]
    directory = controller(1, written)
    metadata = directory.subdirectory(LOG_DIRECTORY)
    for end in (3, 5):
        name = snapshot_name(OffsetAndEpoch(end, 1))
        metadata.write_atomic(
            name, broker(controller(2, written[:end])).subdirectory(LOG_DIRECTORY).read(name, 1 << 20)
        )
    log = Log.open(metadata)
    log.drop_prefix(OffsetAndEpoch(3, 1))
    log.close()
    return Situation(directory, promised_end=3, point=Wanted(offset=4))


def regretted_behind() -> Situation:
    """A broker has more, of which a part is undone."""
    return Situation(controller(1, OLD), (broker(controller(2, NEW)),), point=Wanted(offset=len(NEW) - 1))


SITUATIONS = (
    regretted,
    regretted_behind,
    alone,
    behind,
    far_behind,
    formatted_anew,
    lossy,
    broken_below_its_snapshot,
    broken_on_both_sides_of_its_snapshot,
    broken_across_its_snapshots_end,
    ended_below_its_snapshot,
    forgetful,
)
EVERY_SITUATION = pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: str(each.__name__))


def recovered(situation: Situation) -> None:
    """As the command does it."""
    candidates = [survey(each) for each in (situation.survivor, *situation.others)]
    try:
        carry_out(plan(candidates, None, wall_ms=5_000, point=situation.point))
    except CannotRecover as e:
        assert "is the only voter already" in str(e), e


def outcome(directory: MemoryDirectory) -> object:
    """All that a controller of this directory begins with."""
    identity = read_identity(directory)
    assert identity is not None
    opened = open_directory(directory, identity, NodeConfig())
    opened.log.close()
    snapshots = [info.end for info in opened.snapshotter.store.list()]
    assert opened.log.shape.flushed_end == opened.log.end and opened.log.lost is None and not opened.log.damage
    return identity, opened.election, opened.voters.latest, snapshots, batches(directory)


def check_harmless(now: Situation) -> None:
    """What is left: nothing has begun, or no controller starts, or all is done."""
    directory = copy.deepcopy(now.survivor)
    if directory.exists(recovery_plan.FILE_NAME):
        identity = read_identity(directory)
        assert identity is not None
        with pytest.raises(recovery_plan.UnfinishedRecovery, match=r"/c1.* --yes$"):
            open_directory(directory, identity, NodeConfig())
        return
    identity = read_identity(directory)
    assert identity is not None
    assert identity.generation > 1 or survey(directory).durable.end >= now.promised_end
    voters = _newest_voters(directory)
    assert (identity.generation > 1, voters) in ((False, (1, 2, 3)), (True, (1,)))


def _newest_voters(directory: MemoryDirectory) -> tuple[int, ...]:
    candidate = survey(directory)
    assert candidate.first_voters is not None
    log = Log.open(directory.subdirectory(LOG_DIRECTORY), chain=GENESIS, accept_loss=True)
    found = [record for _, record in log.control_records() if isinstance(record, Voters)]
    log.close()
    return tuple(each.node_id for each in (found or [candidate.first_voters])[-1].voters)


@pytest.mark.slow
@EVERY_SITUATION
def test_the_power_goes_at_any_change_of_the_disk(situation: Callable[[], Situation]) -> None:
    """And while it is done again, and again; sometimes it is only the process that ends."""
    before = situation()
    undisturbed = copy.deepcopy(before)
    first = undisturbed.survivor.operations
    recovered(undisturbed)
    changes = undisturbed.survivor.operations - first
    wanted = outcome(undisturbed.survivor)
    for number in range(1, changes + 1):
        for seed in range(SEEDS):
            rng = Random(number * SEEDS + seed)
            now = copy.deepcopy(before)
            at: int | None = number
            while at is not None:
                now.survivor.cut_power_after(at)
                try:
                    recovered(now)
                    at = None
                except PowerCut:
                    is_kill = rng.random() < 0.3
                    now = now._replace(survivor=now.survivor.kill() if is_kill else now.survivor.crash(rng))
                    check_harmless(now)
                    at = rng.randint(1, changes) if rng.random() < 0.5 else 1 << 60
            now.survivor.heal()
            assert outcome(now.survivor) == wanted, (number, seed)


@pytest.mark.slow
@EVERY_SITUATION
def test_the_disk_is_full_at_any_moment(situation: Callable[[], Situation]) -> None:
    """Refused, with nothing changed for the worse; when there is room, it is run again."""
    before = situation()
    undisturbed = copy.deepcopy(before)
    recovered(undisturbed)
    wanted = outcome(undisturbed.survivor)
    refusals = 0
    for room in (*range(0, 2_000, 150), 60_000, 300_000, 3_000_000):
        now = copy.deepcopy(before)
        now.survivor.limit_space(now.survivor.used_bytes + room)
        try:
            recovered(now)
        except OSError:
            refusals += 1
        now.survivor.heal()
        check_harmless(now)
        recovered(now)
        assert outcome(now.survivor) == wanted, room
    assert refusals > 0


@EVERY_SITUATION
def test_a_flush_that_fails_ends_it_and_the_next_run_does_it_again(situation: Callable[[], Situation]) -> None:
    """The pages are clean by then, and not on the disk: what the next run finds, it writes anew before it counts on it."""
    before = situation()
    undisturbed = copy.deepcopy(before)
    recovered(undisturbed)
    wanted = outcome(undisturbed.survivor)
    names = {*undisturbed.survivor.names(), *undisturbed.survivor.subdirectory(LOG_DIRECTORY).names()}
    failed = 0
    for name in [
        *sorted(f"{name}{suffix}" for name in names for suffix in ("", ".tmp", ".part")),
        "/c1",
        "/c1/@metadata",
    ]:
        now = copy.deepcopy(before)
        now.survivor.fail_next_flush(name)
        try:
            recovered(now)
        except FlushFailed:
            failed += 1
            now = now._replace(survivor=now.survivor.kill())
            recovered(now)
        now = now._replace(survivor=now.survivor.crash(Random(1)))
        assert outcome(now.survivor) == wanted, name
    assert failed > 3
