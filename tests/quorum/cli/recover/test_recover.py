"""A majority is lost for good: what is left is read, the best log wins, and one directory becomes the quorum."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import google_crc32c
import pytest
from click.testing import CliRunner, Result

from broker_agent.store import BrokerStore
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import read_identity, write_identity
from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    FeatureLevel,
    LeaderChange,
    NoOp,
    Record,
    SnapshotMark,
    Topic,
    Voters,
)
from metadata_log.store.log import Log
from quorum.__main__ import open_locked
from quorum.cli.main import cli
from quorum.config import QuorumConfig
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.epochs import EPOCHS_AHEAD_MAX
from quorum.runtime.disk import election_file
from quorum.runtime.disk.format_directory import format_directory, parse_initial_controllers, voters_record
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, Opened, open_directory
from quorum.runtime.disk.recovery_plan import UnfinishedRecovery
from quorum.runtime.protocol.node_config import NodeConfig
from service_kit.process.config import load_config
from tests.quorum.cli.recover.following import follow
from tests.quorum.runtime.lone_node import LoneNode
from tests.sim.world.disk import MemoryDirectory

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
INITIAL = ",".join(f"{i}@127.0.0.1:900{i}:{c * 21}A" for i, c in ((1, "B"), (2, "C"), (3, "D")))
CONTROLLERS = parse_initial_controllers(INITIAL)
Written = Sequence[tuple[Epoch, Record]]

OLD: Written = [(1, NoOp())] * 5
"""What all have."""


def controller(path: Path, written: Written, *, node_id: int = 1, cluster_id: str = CLUSTER_ID) -> Path:
    """A controller's directory with these records, each a batch."""
    format_directory(path, cluster_id=cluster_id, node_id=node_id, role="controller", controllers=CONTROLLERS)
    opened = reopened(path)
    for epoch, record in written:
        opened.log.append([record], epoch, wall_ms=1_000 + opened.log.end)
    opened.log.flush()
    opened.log.close()
    epoch = max((epoch for epoch, _ in written), default=0)
    if written:
        election_file.save(RealDirectory(path), ElectionState(epoch, None, 1))
    return path


def reopened(path: Path) -> Opened:
    """As quorumd opens it."""
    directory = RealDirectory(path)
    identity = read_identity(directory)
    assert identity is not None
    return open_directory(directory, identity, NodeConfig())


def batches(path: Path) -> tuple[Batch, ...]:
    log = Log.open(RealDirectory(path / LOG_DIRECTORY))
    try:
        return log.read(log.shape.start.offset, 1 << 30)
    finally:
        log.close()


def broker(path: Path, fetched_from: Path, end: Offset | None = None) -> Path:
    """A broker's directory that has fetched from that controller up to `end`, and written the snapshots that were due."""
    format_directory(path, cluster_id=CLUSTER_ID, node_id=101, role="broker")
    store = BrokerStore(RealDirectory(path))
    fetched = [each for each in batches(fetched_from) if end is None or each.end_offset <= end]
    follow(store, fetched, reopened_chain_at_start(fetched_from))
    return path


def reopened_chain_at_start(path: Path) -> bytes:
    log = Log.open(RealDirectory(path / LOG_DIRECTORY))
    try:
        found = log.chain_at(log.shape.start.offset)
        assert found is not None
        return found
    finally:
        log.close()


def recover(*words: object) -> Result:
    return CliRunner().invoke(cli, ["quorum", "recover", *[str(word) for word in words]])


def recovered(*words: object) -> Any:
    """The document of a recovery that must succeed."""
    result = recover(*words, "--yes", "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    opened = reopened(Path(document["survivor"]["path"]))  # no recovery may leave a controller that does not start
    assert opened.voters.latest.ids == (opened.identity.node_id,) and not opened.log.damage
    opened.log.close()
    return document


def contents(*paths: Path) -> dict[Path, bytes]:
    files = (file for path in paths for file in path.rglob("*") if file.is_file() and file.name != ".lock")
    return {file: file.read_bytes() for file in files}


def test_the_last_controller_becomes_the_quorum(tmp_path: Path) -> None:
    """A new generation, an epoch that nobody can have come to, itself the only voter; the chain goes on, nothing is lost."""
    path = controller(tmp_path / "c", OLD)
    before = reopened(path)
    chain, end = before.log.shape.chain, before.log.end
    before.log.close()
    document = recovered("--directory", path)
    assert document["kept_end_offset"] == end

    after = reopened(path)
    assert after.identity.generation == document["generation"] > 1
    assert after.identity.genesis_chain == before.identity.genesis_chain
    me = ReplicaKey(1, after.identity.directory_id)
    assert after.election == ElectionState(1 + EPOCHS_AHEAD_MAX, me, None)
    assert after.voters.latest.ids == (1,)
    assert after.voters.latest.voters[0].endpoints[0].port == 9001
    assert after.log.chain_at(end) == chain
    assert (after.log.end, after.log.shape.last_epoch) == (end + 2, 1 + EPOCHS_AHEAD_MAX)
    (opening,) = after.log.read(end, 1 << 20)
    assert decode_batch(opening) == [LeaderChange(1, (1,), (1,)), Voters(after.voters.latest.voters)]
    assert after.log.shape.flushed_end == after.log.end
    after.log.close()


def test_a_log_that_ends_inside_of_a_transaction_is_recovered(tmp_path: Path) -> None:
    """The only voter leads, and aborts the transaction of the lost leader before it decides anything."""
    half: list[Record] = [FeatureLevel("metadata.version", 2), BeginTransaction("t"), Topic("half", b"h" * 16)]
    path = controller(tmp_path / "c", [(1, record) for record in half])
    recovered("--directory", path)
    directory = RealDirectory(path)
    lone = LoneNode(cast(MemoryDirectory, directory), identity=read_identity(directory))
    while not lone.node.active.on:
        lone.run_until_idle()
        lone.now_ms += 1_000
        lone.turn()
    lone.run_until_idle()
    state = lone.node.state
    assert state.transaction is None and state.committed.topic_count == 0
    records = [record for batch in lone.node.log.read(len(half), 1 << 20) for record in decode_batch(batch)]
    assert [type(each) for each in records][:4] == [LeaderChange, Voters, LeaderChange, AbortTransaction]
    lone.node.log.close()


def test_the_report_says_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    """Kept, known as committed, unknown, and lost; each with its offset."""
    path = controller(tmp_path / "c", OLD)
    store = broker(tmp_path / "b", path, end=3)
    result = recover("--directory", path, "--from-broker", store, "--dry-run")
    assert result.exit_code == 0, result.output
    for sentence in (
        "Controller 1 in", "Kept: all below offset 5 (epoch 1).", "Known to have been committed: all below 3",
        "From 3 to 5: written, perhaps committed, perhaps not.", "Lost: all records at offset 5 and later",
    ):  # fmt: skip
        assert sentence in result.stdout
    alone = recover("--directory", path, "--dry-run")
    assert "Nothing here proves what was committed" in alone.stdout


def test_nothing_changes_unless_it_is_said_twice(tmp_path: Path) -> None:
    """A dry run, and a run without --yes, leave every byte as it was."""
    path, store = controller(tmp_path / "c", OLD), tmp_path / "b"
    broker(store, path, end=3)
    before = contents(path, store)
    assert recover("--directory", path, "--from-broker", store, "--dry-run", "--yes").exit_code == 0
    refused = recover("--directory", path, "--from-broker", store)
    assert refused.exit_code == 2 and "--yes" in refused.stderr
    assert contents(path, store) == before


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_later_epoch_beats_the_longer_log(tmp_path: Path, order: tuple[int, int]) -> None:
    """Raft 5.4.1: what a later leader wrote stands on all that was committed before it."""
    longer = controller(tmp_path / "1", [*OLD, *[(1, NoOp())] * 9], node_id=1)
    later = controller(tmp_path / "2", [*OLD, (2, NoOp())], node_id=2)
    paths = [(longer, later)[i] for i in order]
    document = recovered("--directory", paths[0], "--directory", paths[1])
    assert document["survivor"]["node_id"] == 2
    assert (document["kept_end_offset"], document["taken_over_from"]) == (6, None)
    opened = reopened(longer)
    assert opened.identity.generation == 1
    opened.log.close()


def test_a_broker_that_is_ahead_gives_what_the_controller_lacks(tmp_path: Path) -> None:
    """It was only ever given committed records; the controller was behind."""
    gone = controller(tmp_path / "gone", [*OLD, *[(2, NoOp())] * 4], node_id=2)
    behind = controller(tmp_path / "c", OLD)
    store = broker(tmp_path / "b", gone)
    document = recovered("--directory", behind, "--from-broker", store)
    assert (document["kept_end_offset"], document["taken_over_from_offset"]) == (9, 5)
    assert [batch.data for batch in batches(behind)][:9] == [batch.data for batch in batches(gone)]


def test_records_that_were_never_committed_make_way(tmp_path: Path) -> None:
    """The survivor had led and written what nobody took; the broker holds what was committed in their place."""
    gone = controller(tmp_path / "gone", [*OLD, *[(2, NoOp())] * 4], node_id=2)
    ahead = controller(tmp_path / "c", [*OLD, *[(1, NoOp())] * 7])
    store = broker(tmp_path / "b", gone)
    report = recover("--directory", ahead, "--from-broker", store, "--dry-run").stdout
    assert "Its own records from 5 to 12 were never committed, and are deleted." in report
    recovered("--directory", ahead, "--from-broker", store)
    assert [batch.data for batch in batches(ahead)][:9] == [batch.data for batch in batches(gone)]
    opened = reopened(ahead)
    assert (opened.log.end, opened.voters.latest.ids) == (11, (1,))
    opened.log.close()


def test_a_broker_that_begins_beyond_the_controllers_end_gives_its_snapshot_too(tmp_path: Path) -> None:
    """Its log no longer holds what the controller lacks; its snapshot does, byte for byte the controllers' own."""
    voters = voters_record(CONTROLLERS)
    more: Written = [*OLD, (2, voters), (2, NoOp()), (2, SnapshotMark("")), (2, NoOp()), (2, NoOp())]
    gone = controller(tmp_path / "gone", more, node_id=2)
    behind = controller(tmp_path / "c", OLD[:2])
    (checkpoint,) = (broker(tmp_path / "first", gone) / LOG_DIRECTORY).glob("*.checkpoint")
    store = tmp_path / "b"
    format_directory(store, cluster_id=CLUSTER_ID, node_id=102, role="broker")
    late = BrokerStore(RealDirectory(store))
    late.recover()
    late.write_part(OffsetAndEpoch(8, 2), 0, checkpoint.read_bytes())
    late.install(OffsetAndEpoch(8, 2))
    for batch in batches(gone)[8:]:
        late.apply(batch.data, late.position.chain)
    late.close()
    document = recovered("--directory", behind, "--from-broker", store)
    assert (document["kept_end_offset"], document["taken_over_from_offset"]) == (10, None)
    opened = reopened(behind)
    assert (opened.log.shape.start.offset, opened.log.end) == (8, 12)
    assert opened.load is not None and opened.load.end.offset == 8
    assert opened.voters.latest.ids == (1,)
    opened.log.close()


def test_all_controllers_are_lost_and_a_broker_is_left(tmp_path: Path) -> None:
    """A new directory, formatted as in the beginning, takes over all that the broker holds."""
    gone = controller(tmp_path / "gone", [*OLD, (3, NoOp())], node_id=2)
    fresh = controller(tmp_path / "c", [])
    store = broker(tmp_path / "b", gone)
    assert recovered("--directory", fresh, "--from-broker", store)["kept_end_offset"] == 6
    assert [batch.data for batch in batches(fresh)][:6] == [batch.data for batch in batches(gone)]
    other = tmp_path / "other"
    format_directory(other, cluster_id=CLUSTER_ID, node_id=1, role="controller", controllers=CONTROLLERS[:2])
    before = contents(other)
    refused = recover("--directory", other, "--from-broker", store, "--yes")
    assert refused.exit_code == 4 and "other initial controllers" in refused.stderr
    identity = read_identity(RealDirectory(other))
    assert identity is not None and identity.generation == 1
    assert before.keys() <= contents(other).keys()


def test_killed_half_way_it_is_completed_and_no_controller_starts_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan lies there, whatever was written; the error names the command, and that command does the rest."""
    for number, (module, name) in enumerate(((election_file, "save"), (Log, "append"), (Log, "flush"))):
        path = controller(tmp_path / str(number), OLD)
        with monkeypatch.context() as broken:
            broken.setattr(module, name, _no_space)
            failed = recover("--directory", path, "--yes")
        assert failed.exit_code == 1 and "run the same command again" in failed.stderr
        with pytest.raises(UnfinishedRecovery) as refused:
            reopened(path)
        command = f"quorumctl quorum recover --directory {path} --yes"
        assert str(refused.value).endswith(command)
        document = recovered(*command.split()[3:-1])
        whole = reopened(path)
        assert (document["resumed"], document["generation"]) == (True, whole.identity.generation)
        assert whole.identity.generation > 1
        assert whole.voters.latest.ids == (1,)
        assert whole.election.epoch == whole.log.shape.last_epoch
        whole.log.close()


def _no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_runs_is_not_lost(tmp_path: Path) -> None:
    """Exit code 4, for controllers and brokers."""
    path = controller(tmp_path / "c", OLD)
    store = broker(tmp_path / "b", path)
    for running in (path, store):
        directory = RealDirectory(running)
        directory.lock()
        refused = recover("--directory", path, "--from-broker", store, "--yes")
        directory.unlock()
        assert refused.exit_code == 4 and "A node that runs is not lost" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_directories_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    """Another cluster, an older generation, the wrong role, no directory, one that is nobody's, one named twice."""
    path = controller(tmp_path / "c", OLD)
    other = controller(tmp_path / "other", OLD, node_id=2, cluster_id="another")
    left_behind = controller(tmp_path / "old", OLD, node_id=3)
    newer = controller(tmp_path / "newer", OLD, node_id=2)
    identity = read_identity(RealDirectory(newer))
    assert identity is not None
    write_identity(RealDirectory(newer), identity._replace(generation=2))
    (tmp_path / "empty").mkdir()
    for words, exit_code, text in (
        (("--directory", path, "--directory", other), 4, "is of cluster another"),
        (("--directory", left_behind, "--directory", newer), 4, "left behind by an earlier recovery"),
        (("--directory", path, "--from-broker", left_behind), 4, "is a controller's directory, not a broker's"),
        (("--directory", tmp_path / "nowhere"), 3, "is not a directory"),
        (("--directory", tmp_path / "empty"), 4, "is not formatted"),
        (("--directory", path, "--directory", path), 2, "named twice"),
        (("--directory", path, "--endpoint", "nowhere"), 2, "host:port expected"),
    ):
        refused = recover(*words, "--yes")
        assert (refused.exit_code, text in refused.stderr) == (exit_code, True), refused.output


def test_histories_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    """A broker holds committed records that the better log has not: no rule can say which of the two lies."""
    path = controller(tmp_path / "c", [*OLD, (3, NoOp())])
    stranger = controller(tmp_path / "s", [*OLD[:2], *[(2, NoOp())] * 2], node_id=2)
    store = broker(tmp_path / "b", stranger)
    before = contents(path, store)
    refused = recover("--directory", path, "--from-broker", store, "--yes")
    assert refused.exit_code == 4 and "is not of this history" in refused.stderr
    assert contents(path, store) == before


def test_a_damaged_log_is_read_up_to_its_damage(tmp_path: Path) -> None:
    """It does not become the quorum where another one can; what it holds before the damage is given to that. What stood behind
    had been durable, and nobody else has it: that wants a word of its own."""
    damaged = controller(tmp_path / "1", [*OLD, *[(2, NoOp())] * 4], node_id=1)
    (segment,) = (damaged / LOG_DIRECTORY).glob("*.log")
    data = bytearray(segment.read_bytes())
    last = batches(damaged)[-2]
    at = data.index(last.data) + 81
    data[at] ^= 1
    segment.write_bytes(data)
    behind = controller(tmp_path / "2", OLD, node_id=2)
    words = ("--directory", damaged, "--directory", behind)
    refused = recover(*words, "--yes")
    assert refused.exit_code == 2 and "say it with --accept-loss" in refused.stderr
    assert f"LOST FOR CERTAIN: from 7 to 9, perhaps committed: {damaged} held that durably once" in refused.stdout
    assert segment.read_bytes() == data
    document = recovered(*words, "--accept-loss")
    assert (document["survivor"]["node_id"], document["kept_end_offset"]) == (2, 7)


@pytest.mark.parametrize("left", [None, b"half a fi"])
def test_a_forgotten_vote_does_not_matter_any_more(tmp_path: Path, left: bytes | None) -> None:
    """quorum-state is gone, or unreadable: in an epoch that nobody has come to, nobody was promised anything."""
    path = controller(tmp_path / "c", OLD)
    (path / "quorum-state").unlink()
    if left is not None:
        (path / "quorum-state").write_bytes(left)
    recovered("--directory", path)
    opened = reopened(path)
    assert opened.election.epoch == 1 + EPOCHS_AHEAD_MAX
    assert opened.voters.latest.ids == (1,)
    opened.log.close()


def test_an_observer_needs_to_be_told_where_it_is_reached(tmp_path: Path) -> None:
    """No voter set names it."""
    path = controller(tmp_path / "c", [*OLD, (1, Voters(voters_record(CONTROLLERS).voters[1:]))])
    assert "--endpoint" in recover("--directory", path, "--yes").stderr
    document = recovered("--directory", path, "--endpoint", "c1:9009")
    assert document["survivor"]["endpoint"] == "c1:9009"


# --- a log that is not what it was -----------------------------------------------------------------------------------


def with_lost_tail(path: Path) -> Path:
    """Its last record is cut off, and a start has found that out: the note `lost` stands there, the log is intact again."""
    last = batches(path)[-1]
    (segment,) = (path / LOG_DIRECTORY).glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(last.data) + 81] ^= 1
    segment.write_bytes(data)
    log = Log.open(RealDirectory(path / LOG_DIRECTORY), accept_loss=True)
    assert log.lost is not None
    log.close()
    return path


def test_a_log_that_has_lost_its_end_says_so_and_only_gives(tmp_path: Path) -> None:
    """It is the better one by epoch and length, every byte that it has is intact, and yet it is not what it was."""
    lossy = with_lost_tail(controller(tmp_path / "1", [*OLD, *[(2, NoOp())] * 4]))
    whole = controller(tmp_path / "2", OLD, node_id=2)
    words = ("--directory", lossy, "--directory", whole)
    report = recover(*words, "--dry-run", "-o", "json")
    document = json.loads(report.stdout)
    assert document["candidates"][0]["damage"] == "lost durable records below 9"
    assert document["losses"] == [{"path": str(lossy), "durable_end_offset": 9, "was_committed": False}]
    before = contents(lossy, whole)
    refused = recover(*words, "--yes")
    assert refused.exit_code == 2 and refused.stderr.endswith("say it with --accept-loss\n")
    assert contents(lossy, whole) == before
    document = recovered(*words, "--accept-loss")
    assert (document["survivor"]["node_id"], document["taken_over_from"]) == (2, str(lossy))
    assert document["kept_end_offset"] == 8


def test_a_log_that_has_lost_its_end_goes_on_if_nothing_else_is_left(tmp_path: Path) -> None:
    """That is said in so many words; from then on it is a log like any other."""
    lossy = with_lost_tail(controller(tmp_path / "c", OLD))
    assert recover("--directory", lossy, "--yes").exit_code == 2
    assert recovered("--directory", lossy, "--accept-loss")["kept_end_offset"] == 4
    opened = reopened(lossy)
    assert (opened.log.end, opened.log.lost, opened.voters.latest.ids) == (6, None, (1,))
    opened.log.close()


def test_what_one_has_lost_and_another_still_has_is_not_lost(tmp_path: Path) -> None:
    """The chain proves that it is the very same history. `--yes` is enough."""
    whole = controller(tmp_path / "2", [*OLD, *[(2, NoOp())] * 4], node_id=2)
    lossy = with_lost_tail(controller(tmp_path / "1", [*OLD, *[(2, NoOp())] * 4]))
    assert recovered("--directory", lossy, "--directory", whole)["losses"] == []


@pytest.mark.parametrize("zeros", [False, True])
def test_a_log_that_ends_too_early_is_not_whole(tmp_path: Path, zeros: bool) -> None:
    """Cut at a batch's boundary, or zero from there on, it reads like one that never was longer. The note knows better."""
    path = controller(tmp_path / "c", OLD)
    (segment,) = (path / LOG_DIRECTORY).glob("*.log")
    data = segment.read_bytes()
    at = data.index(batches(path)[-1].data)
    segment.write_bytes(data[:at] + (bytes(len(data) - at) if zeros else b""))
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 2 and "LOST FOR CERTAIN" in refused.stdout
    assert recovered("--directory", path, "--accept-loss")["kept_end_offset"] == 4


def test_damage_in_the_middle_and_nothing_else_left(tmp_path: Path) -> None:
    """All behind it goes, intact or not: there is nobody to prove what stood between."""
    path = controller(tmp_path / "c", OLD)
    (segment,) = (path / LOG_DIRECTORY).glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(batches(path)[2].data) + 81] ^= 1
    segment.write_bytes(data)
    assert recover("--directory", path, "--yes").exit_code == 2
    assert recovered("--directory", path, "--accept-loss")["kept_end_offset"] == 2
    opened = reopened(path)
    assert (opened.log.end, opened.log.damage, opened.log.lost) == (4, (), None)
    opened.log.close()


# --- run again, or otherwise -----------------------------------------------------------------------------------------


def begun(path: Path, *words: object) -> None:
    """A recovery that a full disk breaks off."""
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Log, "append", _no_space)
        assert recover("--directory", path, *words, "--yes").exit_code == 1


def test_after_success_it_says_that_nothing_is_left_to_do(tmp_path: Path) -> None:
    """Also where the others are named, which are of an older generation by then."""
    path = controller(tmp_path / "c", OLD)
    store = broker(tmp_path / "b", path)
    generation = recovered("--directory", path, "--from-broker", store)["generation"]
    before = contents(path, store)
    for words in (("--directory", path), ("--directory", path, "--from-broker", store)):
        again = recover(*words, "--yes")
        assert again.exit_code == 4
        assert f"is the only voter already, of generation {generation}. Start it" in again.stderr
    assert contents(path, store) == before


def test_of_equal_logs_the_order_of_the_options_decides_nothing(tmp_path: Path) -> None:
    """Two runs, the second with the directories in another order, must not make two quorums."""
    paths = [controller(tmp_path / str(node_id), OLD, node_id=node_id) for node_id in (1, 2, 3)]
    for order in (paths, paths[::-1], [paths[1], paths[2], paths[0]]):
        words = [word for path in order for word in ("--directory", path)]
        document = json.loads(recover(*words, "--dry-run", "-o", "json").stdout)
        assert document["survivor"]["node_id"] == 1


def test_what_was_begun_is_completed_with_the_same_directories_or_not_at_all(tmp_path: Path) -> None:
    """One more, one less, another endpoint: each is refused with the command that does it; in another order it is the same."""
    path, other = controller(tmp_path / "1", OLD), controller(tmp_path / "2", OLD[:3], node_id=2)
    store = broker(tmp_path / "b", path)
    begun(path, "--directory", other, "--from-broker", store)
    third = controller(tmp_path / "3", [*OLD, (9, NoOp())], node_id=3)
    before = contents(path, other, store, third)
    all_of_them = ("--from-broker", store, "--directory", other, "--directory", path)
    for words, text in (
        (("--directory", path, "--directory", other), f"{store} is missing"),
        ((*all_of_them, "--directory", third), f"{third} is no part of it"),
        ((*all_of_them, "--endpoint", "c1:9009"), "the planned endpoint is 127.0.0.1:9001"),
    ):
        refused = recover(*words, "--yes")
        assert refused.exit_code == 4 and text in refused.stderr, refused.stderr
        assert (
            f"quorumctl quorum recover --directory {path} --directory {other} --from-broker {store} --yes"
            in refused.stderr
        )
    assert contents(path, other, store, third) == before
    shown = recover(*all_of_them, "--dry-run")
    assert shown.exit_code == 0 and "A recovery was begun here and broken off" in shown.stdout
    assert recovered(*all_of_them)["resumed"]


def test_a_source_that_has_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    """Half of it is in the survivor already; what lies there now may be another history."""
    gone = controller(tmp_path / "gone", [*OLD, *[(2, NoOp())] * 4], node_id=2)
    behind = controller(tmp_path / "c", OLD)
    store = broker(tmp_path / "b", gone)
    begun(behind, "--from-broker", store)
    (segment,) = (store / LOG_DIRECTORY).glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole[: whole.index(batches(gone)[-1].data)])
    refused = recover("--directory", behind, "--from-broker", store, "--yes")
    assert refused.exit_code == 4 and "does not have the records any more that" in refused.stderr, refused.stderr
    segment.write_bytes(whole)
    moved = store.rename(tmp_path / "mounted-elsewhere")
    assert recovered("--directory", behind, "--from-broker", moved)["kept_end_offset"] == 9


def test_two_recoveries_that_were_begun_are_not_both_completed(tmp_path: Path) -> None:
    """There would be two quorums of one generation."""
    paths = [controller(tmp_path / str(node_id), OLD, node_id=node_id) for node_id in (1, 2)]
    for path in paths:
        begun(path)
    refused = recover("--directory", paths[0], "--directory", paths[1], "--yes")
    assert refused.exit_code == 4 and "there can be only one quorum" in refused.stderr


def test_two_survivors_that_are_recovered_apart_are_of_two_generations(tmp_path: Path) -> None:
    """Nobody who listens to one of them listens to the other. It is the same in a dry run, and in another order."""
    paths = [controller(tmp_path / str(node_id), OLD, node_id=node_id) for node_id in (1, 2)]
    shown = json.loads(recover("--directory", paths[0], "--dry-run", "-o", "json").stdout)
    generations = [recovered("--directory", path)["generation"] for path in paths]
    assert shown["generation"] == generations[0] != generations[1]


def test_there_is_no_generation_after_the_last(tmp_path: Path) -> None:
    """The wire has 31 bits for it."""
    path = controller(tmp_path / "c", OLD)
    identity = read_identity(RealDirectory(path))
    assert identity is not None
    write_identity(RealDirectory(path), identity._replace(generation=(1 << 31) - 1))
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 4 and "there is none after 2147483647" in refused.stderr


def test_what_ran_since_is_not_cut_back(tmp_path: Path) -> None:
    """Somebody has put the plan back from a copy, after the controller had led: its records are no half-done recovery."""
    path = controller(tmp_path / "c", OLD)
    begun(path)
    plan = (path / "recovery-plan").read_bytes()
    recovered("--directory", path)
    opened = reopened(path)
    opened.log.append([NoOp()], opened.election.epoch + 1, 1)
    opened.log.flush()
    opened.log.close()
    (path / "recovery-plan").write_bytes(plan)
    before = contents(path)
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 4 and "has been in use since" in refused.stderr
    assert contents(path) == before


@pytest.mark.parametrize("change", [lambda data: data[:-3], lambda data: b"{" + data, lambda _: b"[]\n0\n"])
def test_a_plan_that_cannot_be_read_is_not_guessed_at(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    """No crash leaves such a one. Neither the controller nor a recovery goes on with it."""
    path = controller(tmp_path / "c", OLD)
    begun(path)
    plan = path / "recovery-plan"
    plan.write_bytes(change(plan.read_bytes()))
    with pytest.raises(CorruptLog, match="put back the copy"):
        reopened(path)
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 4 and "put back the copy" in refused.stderr


def test_a_plan_of_an_older_release_is_finished_by_that(tmp_path: Path) -> None:
    """It began a damaged log anew at its own snapshot, where this one keeps what goes on there."""
    path = controller(tmp_path / "c", OLD)
    begun(path)
    plan = path / "recovery-plan"
    fields = json.loads(plan.read_bytes().split(b"\n")[0])
    assert fields["source"] is None
    text = json.dumps({**fields, "snapshot": [5, 1]}).encode()
    plan.write_bytes(b"%s\n%08x\n" % (text, google_crc32c.value(text)))
    with pytest.raises(UnfinishedRecovery, match=r"older release.*quorumctl quorum recover --directory .*/c --yes"):
        reopened(path)
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 4 and "finish it with that one" in refused.stderr


def test_a_controller_that_starts_just_as_a_recovery_ends_is_of_the_new_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked whose directory this is, and waits for nobody: what it has read is old when it gets the lock."""
    path = controller(tmp_path / "c", OLD)
    file = tmp_path / "c.yaml"
    file.write_text(f"node.id: 1\nlisteners: CONTROLLER://127.0.0.1:0\nmetadata.log.dir: {path}\n")
    config = load_config(QuorumConfig, file, {}, [])
    lock = RealDirectory.lock

    def recover_first(self: RealDirectory) -> None:
        monkeypatch.setattr(RealDirectory, "lock", lock)
        recovered("--directory", path)
        lock(self)

    monkeypatch.setattr(RealDirectory, "lock", recover_first)
    opened = open_locked(config, config.node_config())
    assert opened.identity.generation > 1 and opened.voters.latest.ids == (1,)
    opened.log.close()


def test_root_does_not_write_what_the_controller_cannot_read(tmp_path: Path) -> None:
    """The files would be root's, and the daemon would not start."""
    path = controller(tmp_path / "c", OLD)
    try:
        os.chown(path, 12345, -1)
    except PermissionError:
        pytest.skip("not root")
    refused = recover("--directory", path, "--yes")
    assert refused.exit_code == 4 and "sudo -u '#12345'" in refused.stderr
    assert recover("--directory", path, "--dry-run").exit_code == 0
