"""A snapshot file on a stopped node: what is refused, and what the node has after a crash at any step."""

import copy
from collections.abc import Callable
from random import Random

import pytest

from broker_agent.store import BrokerStore
from metadata_log.disk.identity import Identity, read_identity, write_identity
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import FeatureLevel, NoOp, Record, SnapshotMark
from metadata_log.image.metadata_image import EMPTY_IMAGE
from metadata_log.store.log import Log
from quorum.core.protocol.effects import ElectionState
from quorum.recovery.snapshot_install import CannotInstall, SnapshotFile, carry_out, judge, read_file
from quorum.runtime.disk import election_file, recovery_plan
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.format import SnapshotMeta, part_name, snapshot_name
from snapshots.store import SnapshotStore
from snapshots.writer import write_records
from tests.quorum.cli.recover.test_recover_power_cuts import VOTERS, batches, broker, controller
from tests.quorum.runtime.lone_node import CLUSTER_ID, directory_id
from tests.sim.world.disk import MemoryDirectory, PowerCut

HISTORY: list[tuple[int, Record]] = [
    (1, NoOp()), (1, VOTERS), (1, FeatureLevel("metadata.version", 2)), (2, NoOp()), (2, SnapshotMark("")), (2, NoOp()),
]  # fmt: skip
END = OffsetAndEpoch(5, 2)
NAME = snapshot_name(END)
Prepared = Callable[[], MemoryDirectory]


def made() -> MemoryDirectory:
    """A directory with the snapshot below 5 that the nodes of this history write."""
    return broker(controller(2, HISTORY)).subdirectory(LOG_DIRECTORY)


def the_file() -> SnapshotFile:
    return read_file(made(), NAME)


def far_behind() -> MemoryDirectory:
    """A voter with the first two records, that has voted in epoch 9."""
    directory = controller(1, HISTORY[:2])
    election_file.save(directory, ElectionState(9, None, 2))
    return directory


def fresh_controller() -> MemoryDirectory:
    """Formatted, and never started: there is no vote yet, and no log."""
    directory = controller(1, [])
    metadata = directory.subdirectory(LOG_DIRECTORY)
    for name in [each for each in metadata.names() if not each.startswith("0" * 20 + "-")]:
        metadata.remove(name)
    metadata.flush()
    assert not directory.exists(election_file.FILE_NAME)
    return directory


def torn() -> MemoryDirectory:
    """A voter whose process was killed while it wrote a batch that nobody was told of."""
    directory = far_behind()
    log = Log.open(directory.subdirectory(LOG_DIRECTORY))
    log.append([NoOp()], 1, 3_000)
    log.close()
    return directory


def broker_behind() -> MemoryDirectory:
    return broker(controller(2, HISTORY[:2]))


def fresh_broker() -> MemoryDirectory:
    directory = MemoryDirectory("/b101")
    write_identity(directory, Identity(CLUSTER_ID, 101, directory_id(101), 1, "broker"))
    return directory


EVERY_NODE = pytest.mark.parametrize(
    "prepared", [far_behind, fresh_controller, torn, broker_behind, fresh_broker], ids=lambda each: str(each.__name__)
)


def contents(directory: MemoryDirectory) -> dict[str, bytes]:
    parts = [directory, *([directory.subdirectory(LOG_DIRECTORY)] if directory.exists(LOG_DIRECTORY) else [])]
    return {
        f"{each.path_text}/{name}": each.read(name, 1 << 20)
        for each in parts
        for name in each.names()
        if name != LOG_DIRECTORY
    }


def installed(directory: MemoryDirectory, file: SnapshotFile) -> str:
    """As the command does it, after the confirmation."""
    standing = judge(directory, file)
    carry_out(directory, file, standing)
    return "unchanged" if standing.has_it else "installed"


def outcome(directory: MemoryDirectory) -> object:
    """All that a node of this directory begins with: vote, history, image."""
    identity = read_identity(directory)
    assert identity is not None
    if identity.role == "broker":
        store = BrokerStore(directory)
        recovered = store.recover()
        assert recovered.dropped is None
        found = (identity, recovered.position, recovered.image.record_count, recovered.voters)
        store.close()
        return found
    opened = open_directory(directory, identity, NodeConfig())
    shape, chain = opened.log.shape, opened.log.shape.chain
    opened.log.close()
    image = EMPTY_IMAGE
    if opened.load is not None:
        opened.load.run()
        assert opened.load.image is not None
        image = opened.load.image
    return identity, opened.election, opened.voters.latest, shape.start, shape.end, chain, image.digest_bytes


@EVERY_NODE
def test_the_node_begins_at_the_snapshot(prepared: Prepared) -> None:
    """The log is empty and begins at the snapshot's end, with its chain; vote and epoch are what they were."""
    directory, file = prepared(), the_file()
    before = election_file.load(directory)
    assert installed(directory, file) == "installed"
    log = Log.open(directory.subdirectory(LOG_DIRECTORY))
    assert (log.shape.start, log.end, log.shape.chain) == (END, END.offset, file.meta.chain)
    log.close()
    if before is not None:
        assert election_file.load(directory) == before
    assert directory.subdirectory(LOG_DIRECTORY).read(NAME, 1 << 20) == file.directory.read(NAME, 1 << 20)
    outcome(directory)
    assert installed(directory, file) == "unchanged"


@EVERY_NODE
def test_the_node_goes_on_with_the_records_that_follow(prepared: Prepared) -> None:
    """The next batch of the cluster continues the chain, so that nothing has to be fetched anew."""
    directory = prepared()
    installed(directory, the_file())
    (following,) = [each for each in batches(controller(2, HISTORY)) if each.base_offset == END.offset]
    log = Log.open(directory.subdirectory(LOG_DIRECTORY))
    log.append_batches([following])
    assert log.end == END.offset + 1
    log.close()


@pytest.mark.slow
@EVERY_NODE
def test_the_power_goes_at_any_change_of_the_disk(prepared: Prepared) -> None:
    """The node has the old state or the new one, as a start sees it; run again, the command ends as if undisturbed."""
    before, file = prepared(), the_file()
    undisturbed = copy.deepcopy(before)
    first = undisturbed.operations
    installed(undisturbed, file)
    changes = undisturbed.operations - first
    new = outcome(undisturbed)
    old = [outcome(copy.deepcopy(before)), *(outcome(copy.deepcopy(before).crash(Random(seed))) for seed in range(8))]
    assert new not in old
    for number in range(1, changes + 1):
        for seed in range(2):
            rng = Random(number * 2 + seed)
            now = copy.deepcopy(before)
            now.cut_power_after(number)
            with pytest.raises(PowerCut):
                installed(now, file)
            now = now.kill() if seed == 0 else now.crash(rng)
            assert outcome(copy.deepcopy(now)) in (*old, new), number
            installed(now, file)
            assert outcome(now) == new, number


@EVERY_NODE
def test_the_disk_is_full(prepared: Prepared) -> None:
    """Refused with the disk's error: the node has the old state or the new one, and no half file."""
    before, file = prepared(), the_file()
    old = outcome(copy.deepcopy(before))
    full = 0
    for room in (0, 200, 400, 600, 800, 1_200, 5_000, 100_000, 3_000_000):
        now = copy.deepcopy(before)
        now.limit_space(now.used_bytes + room)
        try:
            installed(now, file)
        except OSError:
            full += 1
        now.heal()
        if now.exists(LOG_DIRECTORY):
            assert not now.subdirectory(LOG_DIRECTORY).exists(part_name(END))
        installed(now, file)
        assert outcome(now) != old
    assert full > 0


# --- refused ---------------------------------------------------------------------------------------------------------


def refused(directory: MemoryDirectory, file: SnapshotFile, match: str) -> None:
    """The node must be as it was."""
    before = contents(directory)
    with pytest.raises(CannotInstall, match=match):
        judge(directory, file)
    assert contents(directory) == before


@pytest.mark.parametrize("records", [5, 6])
def test_a_node_with_records_up_to_the_end_or_above_keeps_them(records: int) -> None:
    """Its majority may rest on them."""
    refused(controller(1, HISTORY[:records]), the_file(), f"has records up to offset {records}.*take one that ends")


def test_records_of_a_later_epoch_stay() -> None:
    """They are below the end, and in elections they count for more."""
    refused(
        controller(1, [(1, NoOp()), (3, NoOp())]), the_file(), "records of epoch 3, and the snapshot ends with epoch 2"
    )


def test_a_lost_end_is_not_covered_up() -> None:
    """The note says 6, and the disk gives 1: the node has acknowledged what it lacks."""
    directory = controller(1, HISTORY)
    metadata = directory.subdirectory(LOG_DIRECTORY)
    (segment,) = (name for name in metadata.names() if name.endswith(".log"))
    history = batches(directory)
    metadata.flip_bit(segment, bytes(metadata.read(segment, 1 << 20)).index(history[1].data) + 81)
    refused(directory, the_file(), "not in order.*Start the node")


def test_what_has_to_be_settled_first() -> None:
    """A lost vote, a directory that is not formatted, another cluster's log."""
    directory = far_behind()
    directory.remove(election_file.FILE_NAME)
    directory.flush()
    refused(directory, the_file(), "its vote is lost")
    refused(MemoryDirectory("/empty"), the_file(), "is not formatted")
    foreign = far_behind()
    write_identity(foreign, Identity("AAAAAAAAAAAAAAAAAAAAAA", 1, directory_id(1), 1, "controller", b"x" * 32))
    refused(foreign, the_file(), "of another cluster")


def test_an_unfinished_recovery_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = far_behind()
    monkeypatch.setattr(recovery_plan, "load", lambda _: object())
    refused(directory, the_file(), "a recovery was begun there")


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_damage_anywhere_in_the_file_is_found_with_its_place() -> None:
    size = made().size(NAME)
    for position in range(0, size, 7):
        directory = made()
        directory.flip_bit(NAME, position)
        with pytest.raises(LogFormatError, match=NAME):
            read_file(directory, NAME)
    for length in range(0, size, 31):
        directory = made()
        directory.edit(NAME, lambda content, length=length: content.__delitem__(slice(length, None)))  # type: ignore[misc]
        with pytest.raises(LogFormatError, match=NAME):
            read_file(directory, NAME)


@pytest.mark.parametrize("name", ["snapshot.bin", part_name(END), snapshot_name(OffsetAndEpoch(0, 0))])
def test_a_file_with_another_name_says_no_end(name: str) -> None:
    with pytest.raises(CannotInstall, match="does not have the name of a snapshot"):
        read_file(made(), name)


def test_a_file_under_the_name_of_another_end_is_damaged() -> None:
    directory = made()
    directory.rename(NAME, other := snapshot_name(OffsetAndEpoch(6, 2)))
    with pytest.raises(LogFormatError, match="the header says 5@2"):
        read_file(directory, other)


def test_a_file_of_a_newer_release_is_refused() -> None:
    """The node could not go on from it."""
    directory = MemoryDirectory("/newer")
    write_records(directory, SnapshotMeta(END, 1, b"c" * 32, VOTERS, 1), [FeatureLevel("metadata.version", 30_000)])
    with pytest.raises((CannotInstall, LogFormatError), match=r"metadata\.version"):
        read_file(directory, NAME)


def test_a_file_that_changes_meanwhile_is_not_installed() -> None:
    """The bytes that the quorum confirmed are the bytes that are installed."""
    directory, file = far_behind(), the_file()
    standing, old = judge(directory, file), outcome(copy.deepcopy(directory))
    source = file.directory
    assert isinstance(source, MemoryDirectory)
    source.flip_bit(NAME, 100)
    with pytest.raises(CannotInstall, match="has changed while it was read"):
        carry_out(directory, file, standing)
    assert outcome(directory) == old
    assert not SnapshotStore(directory.subdirectory(LOG_DIRECTORY)).list()
