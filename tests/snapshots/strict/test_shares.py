"""The strict replay in shares finds a misfit if and only if a replay stops, at the same record, for any number of shares."""

import random
from pathlib import Path

import msgpack
import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.codec import encode_record, encode_valid
from metadata_log.format.ids import Offset
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.records import (
    METADATA_VERSION,
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    NoOp,
    Partition,
    PartitionChange,
    RegisterBroker,
    Topic,
)
from metadata_log.image.metadata_image import EMPTY_IMAGE
from metadata_log.image.replay import Replay, ReplayStopped
from snapshots.format import genesis
from snapshots.offline.shares.dealing import topics_in
from snapshots.offline.shares.misfits import MISFITS_MAX, Found, Misfits
from snapshots.offline.shares.replayed import Replayed
from tests.metadata_log.image.histories import LogWriter, broker, uuid
from tests.metadata_log.image.strays import stray
from tests.snapshots.nodes import CLUSTER_ID, VOTERS, Node
from tests.snapshots.strict.planting import planted
from tests.snapshots.strict.shares import replay_shares

START = genesis(CLUSTER_ID, VOTERS)


def is_beyond_replay(found: Found) -> bool:
    return found.rule == "leader-fenced" or found.reason == "this topic id was used before"


def strict(replayed: Replayed) -> list[Found]:
    return [each for each in replayed.misfits if not is_beyond_replay(each)]


def history(path: Path, seed: int) -> tuple[list[Batch], list[MetadataRecord], list[Offset]]:
    """Return a healthy log, its records, and the offsets of records without effect, which a fault may replace."""
    node, gaps = Node(path, seed), []

    def gap() -> None:
        node.write_out()
        gaps.append(node.journal.shape.end)
        node.log_records(NoOp())

    node.live(12)
    for commit in (True, False, True):
        gap()
        node.work(8)
        node.write_out()
        node.log_records(BeginTransaction("t"))
        gap()
        node.log_records(EndTransaction() if commit else AbortTransaction("changed my mind"))
        gap()
        node.mark()
    node.work(5)
    node.write_out()
    return [*node.journal.read(0, 1 << 30)], node.log_of_all(), gaps


def fault(dice: random.Random, log: list[MetadataRecord]) -> bytes:
    """Return the bytes of a record that most often does not fit."""
    kind = dice.randrange(12)
    if kind == 0:
        return bytes(msgpack.packb([dice.choice((50, 63)), 0, b"x"]))
    if kind == 1:
        return bytes(msgpack.packb([dice.choice((5, 2, 27)), dice.choice((0, 1)), b"x"]))
    if kind == 2:
        return encode_record(dice.choice((BeginTransaction("u"), EndTransaction(), AbortTransaction("why"))))
    if kind == 3:
        return encode_record(LeaderChange(1, (1,), (1,)))
    if kind == 4:
        return encode_record(FeatureLevel(METADATA_VERSION, dice.choice((1, 2))))
    return encode_valid(stray(dice, log))


def check_against_replay(batches: list[Batch], shares: int) -> bool:
    """Compare with the replay of a node; return True if it has stopped."""
    replay, stopped = Replay(), None
    try:
        replay.apply(batches)
    except ReplayStopped as e:
        stopped = e
    end = batches[-1].end_offset
    result = replay_shares(batches, [end], shares=shares)
    found = strict(result)
    if stopped is None:
        assert found == []
        assert result.digests[end] == (replay.image.digest_bytes, replay.image.record_count)
        return False
    first = next(batch for batch in batches if batch.base_offset <= stopped.offset < batch.end_offset)
    assert found, stopped
    is_in_batch = first.base_offset <= found[0].offset < first.end_offset
    assert is_in_batch if found[0].rule == "record-malformed" else found[0].offset == stopped.offset, (stopped, found)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_misfit_is_found_iff_a_replay_stops(tmp_path: Path, seed: int) -> None:
    """One record of a healthy log is replaced by a stray one; replay is the oracle."""
    dice = random.Random(seed)
    batches, log, gaps = history(tmp_path / "node", seed)
    assert not check_against_replay(batches, 1)
    stops = 0
    for _ in range(25):
        log_with_fault = planted(batches, START, dice.choice(gaps), fault(dice, log))
        stops += check_against_replay(log_with_fault, dice.randint(1, 5))
    assert stops > 5


def test_a_batch_that_cannot_be_split_is_one_finding(tmp_path: Path) -> None:
    batches, _, gaps = history(tmp_path / "node", 3)
    wrong = planted(batches, START, gaps[0], b"\xc1")
    assert check_against_replay(wrong, 3)
    (found,) = strict(replay_shares(wrong, [wrong[-1].end_offset]))
    assert (found.rule, found.offset) == ("record-malformed", gaps[0])


@pytest.mark.parametrize("shares", [1, 2, 7])
def test_a_log_on_top_of_a_snapshot(tmp_path: Path, shares: int) -> None:
    """The shares of the snapshot and of the log together have the digest of the whole log."""
    node = Node(tmp_path / "node", 5).live(15)
    node.write_out()
    batches = node.journal.read(0, 1 << 30)
    mark, end = node.marks[0].offset, batches[-1].end_offset
    replay = Replay()
    replay.apply([batch for batch in batches if batch.end_offset <= mark])
    later = [batch for batch in batches if batch.base_offset >= mark]
    pieces = [*replay.image.canonical_pieces()]
    assert any(isinstance(piece, PartitionRun) for piece in pieces)
    at_mark = replay.image.digest_bytes, replay.image.record_count
    replay.apply(later)
    result = replay_shares(later, [mark, end], shares=shares, base=pieces, since=mark)
    assert strict(result) == []
    assert result.digests == {mark: at_mark, end: (replay.image.digest_bytes, replay.image.record_count)}
    assert sum(result.record_types.values()) == replay.image.record_count
    assert result.brokers == {broker_id: each.fenced for broker_id, each in replay.image.brokers.items()}


def test_a_snapshot_that_makes_no_image_is_found() -> None:
    base = (Topic("a", uuid(1)), Partition(uuid(1), 1, (1,), (1,), (), (), 1, 0, 0, 0))
    (found,) = replay_shares([], [10], base=base, since=10).misfits
    assert (found.rule, "record 1 of the snapshot" in found.reason) == ("snapshot-misfit", True)


def test_a_topic_that_does_not_fit_is_one_finding_with_its_followers() -> None:
    """100 partitions of a topic that could not be created are not 100 findings."""
    log = LogWriter()
    first = log.batch(broker(1), Topic("a", uuid(1)), Partition(uuid(1), 0, (1,), (1,), (), (), 1, 0, 0, 0))
    partitions = [Partition(uuid(2), number, (1,), (1,), (), (), 1, 0, 0, 0) for number in range(100)]
    batches = [first, log.batch(Topic("a", uuid(2)), *partitions), log.batch(PartitionChange(uuid(2), 5, isr=(1,)))]
    found = [each for each in replay_shares(batches, [log.end]).misfits if each.rule != "leader-fenced"]
    assert [(each.rule, each.offset, each.followers) for each in found] == [("topic-name-twice", 3, 101)]


def test_a_broker_that_could_not_register_explains_its_partitions() -> None:
    """The registration is refused in every share, and told by share 0; its followers are in other shares."""
    log = LogWriter()
    wrong: RegisterBroker = broker(7, broker_epoch=999)
    topics = [Topic(f"t{number}", uuid(number)) for number in range(1, 9)]
    replicas = [Partition(topic.topic_id, 0, (7,), (7,), (), (), 7, 0, 0, 0) for topic in topics]
    batches = [log.batch(wrong), log.batch(*topics), log.batch(*replicas)]
    (found,) = replay_shares(batches, [log.end], shares=4).misfits
    assert (found.rule, found.offset, found.followers) == ("broker-epoch-reused", 0, 8)


def test_an_empty_log_has_the_empty_image() -> None:
    assert replay_shares([], [0]).digests == {0: (EMPTY_IMAGE.digest_bytes, 0)}


@pytest.mark.parametrize("partition", [-1, -33, -200, -70_000, -(1 << 40), 1 << 40])
def test_a_change_of_a_partition_that_no_topic_can_have(tmp_path: Path, partition: int) -> None:
    """The number is negative, or larger than any number of a partition. The replay refuses it, and the shares do too."""
    batches, _, gaps = history(tmp_path / "node", 3)
    topic_id = next(topic_id for batch in batches for topic_id, _ in topics_in(batch))
    wrong = planted(batches, START, gaps[-1], encode_record(PartitionChange(topic_id, partition, isr=(1,))))
    (found,) = strict(replay_shares(wrong, [wrong[-1].end_offset]))
    assert (found.rule, found.offset) == ("reference-to-nothing", gaps[-1])


def test_nothing_is_counted_that_another_share_tells() -> None:
    """The list of a rule is full, and one more misfit comes that share 0 tells: there are no `0 more findings`."""
    misfits = Misfits()
    for offset in range(MISFITS_MAX):
        misfits.tell(Found(offset, "record-misfit", ("topic", str(offset)), "why"))
    untold = Found(MISFITS_MAX, "record-misfit", ("broker", "7"), "why", is_told=False)
    assert misfits.tell(untold) is None
    assert dict(misfits.more) == {}
    misfits.tell(untold._replace(is_told=True))
    assert dict(misfits.more) == {"record-misfit": 1}
