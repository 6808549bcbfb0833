"""The one history out of all logs that are left: what a majority holds, and who contradicts it."""

from collections.abc import Sequence
from pathlib import Path

from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import Batch
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import TOPIC_RESOURCE, Config, Record, RemoveTopic, Topic
from metadata_log.image.metadata_image import EMPTY_IMAGE
from metadata_log.image.replay import Replay, ReplayStopped
from metadata_log.store.log import Log
from tests.chaos.clients import REGISTER
from tests.chaos.judge.committed import NOTHING_KNOWN, committed
from tests.chaos.judge.final_log import FinalLog
from tests.chaos.judge.history import Kind, Operation, Outcome
from tests.chaos.judge.judging import against
from tests.sim.world.disk import MemoryDirectory

TOPICS: list[Record] = [Topic(f"t{n}", n.to_bytes(16, "big")) for n in range(1, 31)]


def logged(
    records: Sequence[Record | list[Record]], *, epoch: int = 1, after: Sequence[Batch] = (), into: Path | None = None
) -> list[Batch]:
    """Each record in a batch of its own, or a list of them, in a log that goes on from what is there. `into`: where its files are
    kept."""
    start = OffsetAndEpoch(after[-1].end_offset, after[-1].epoch) if after else OffsetAndEpoch(0, 0)
    chain = after[-1].chain if after else b"g" * 32
    directory = MemoryDirectory("/log") if into is None else RealDirectory(into)
    log = Log.open(directory, start=start, chain=chain)
    batches = [
        log.append(each if isinstance(each, list) else [each], epoch, number) for number, each in enumerate(records)
    ]
    log.flush()
    log.close()
    return [*after, *batches]


def digest_of(batches: Sequence[Batch]) -> bytes:
    replay = Replay()
    try:
        replay.apply(batches)
    except ReplayStopped:
        return bytes(32)
    return replay.image.digest_bytes


def left(
    name: str, batches: list[Batch], *, begins: int = 0, digest: bytes | None = None, snapshot: int = 0
) -> FinalLog:
    """A controller's log that begins with the batch number `begins`, and knows all below `snapshot` to be committed."""
    return FinalLog(name, batches[begins:], digest_of(batches) if digest is None else digest, snapshot)


def value(number: int) -> Config:
    return Config(TOPIC_RESOURCE, "t1", REGISTER, str(number))


def test_the_tail_of_one_log_is_not_committed(tmp_path: Path) -> None:
    """Controller 1 was cut off while it led, and was down when the run ended: its tail was taken for the log, and what its
    client had sent again for a change that was made two times.
    """
    common = logged(TOPICS[:5])
    tail = logged([value(7)], epoch=1, after=common)
    others = logged([TOPICS[20:22], value(7), value(8)], epoch=2, after=common)
    joined = committed([left("c1", tail), left("c2", others), left("c3", others)], tmp_path)

    assert joined.problems == []
    assert [each.end_offset for each in joined.changes if each.state is not None] == [8, 9]
    assert (joined.end, joined.tails) == (9, ("c1 from 5 to 6",))

    def did(number: int, kind: Kind, outcome: Outcome, offset: int | None) -> Operation:
        return Operation(number, 1, "t1", kind, number, outcome, number, number + 1, offset)

    history = [did(7, Kind.SET, Outcome.UNKNOWN, None), did(8, Kind.SET, Outcome.DONE, 9)]
    assert against(history, joined).problems == []


def test_what_only_one_log_holds_was_not_kept(tmp_path: Path) -> None:
    """An acknowledged change that no majority holds is lost, though one log has it."""
    common = logged(TOPICS[:5])
    longer = logged([value(7)], after=common)
    joined = committed([left("c1", longer), left("c2", common), left("c3", common)], tmp_path)
    history = [Operation(7, 1, "t1", Kind.SET, 7, Outcome.DONE, 1, 2, 6)]

    assert (joined.problems, joined.end) == ([], 5)
    assert against(history, joined).lost == 1


def test_a_follower_that_is_behind_is_no_contradiction(tmp_path: Path) -> None:
    """Nor is one that holds a snapshot only, and so nothing of what lies below."""
    batches = logged(TOPICS)
    joined = committed(
        [left("c1", batches[:20]), left("c2", batches), left("c3", batches, begins=25, snapshot=25)], tmp_path
    )
    assert (joined.known_from, joined.end, joined.problems, joined.tails) == (0, 30, [], ())


def test_a_batch_that_two_logs_have_is_held_by_whoever_began_behind_it(tmp_path: Path) -> None:
    """Controller 3 has lost its log to a snapshot at 20: what is below that has a majority, with controller 1 alone beside it."""
    batches = logged(TOPICS[:20])
    other = logged([TOPICS[25]], epoch=1, after=batches[:10])
    joined = committed(
        [left("c1", batches), left("c2", other), left("c3", logged([TOPICS[28]], after=batches), begins=20)], tmp_path
    )
    assert (joined.end, joined.problems, joined.tails) == (20, [], ("c2 from 10 to 11", "c3 from 20 to 21"))


def test_a_log_that_was_cut_at_its_end_may_have_no_batch_that_can_be_read(tmp_path: Path) -> None:
    """Controller 3 was cut at a snapshot of all that it had, and a bit has flipped below: it still has the image."""
    batches = logged(TOPICS)
    empty = FinalLog("c3", [], digest_of(batches), committed_below=30, chain=batches[-1].chain)
    logs = [left("c1", batches), left("c2", batches[:20]), empty]
    joined = committed(logs, tmp_path, equal_at=(20, batches[19].chain))
    assert (joined.known_from, joined.end, joined.problems, joined.tails) == (0, 30, [], ())
    (problem,) = committed(
        [left("c1", batches), left("c2", batches), empty._replace(digest=bytes(32))], tmp_path
    ).problems
    assert "images differ" in problem


def test_another_history_where_it_was_known_to_be_committed(tmp_path: Path) -> None:
    """Controller 1 has a snapshot of what the others have not: two histories were committed."""
    common = logged(TOPICS[:5])
    mine = logged(TOPICS[5:9], epoch=1, after=common)
    others = logged(TOPICS[10:20], epoch=2, after=common)
    logs = [left("c1", mine, snapshot=7), left("c2", others), left("c3", others)]
    assert committed(logs, tmp_path).problems == ["c1 has another history from offset 5 on than what is committed"]

    logs = [left("c1", mine, snapshot=7), left("c2", common), left("c3", common)]
    assert committed(logs, tmp_path).problems == ["c1 has another history from offset 5 on than what is committed"]

    logs = [left("c1", mine, begins=7, snapshot=7), left("c2", common), left("c3", common)]
    assert committed(logs, tmp_path).problems == ["c1 has a snapshot at 7, and a majority holds 5"]


def test_who_was_equal_holds_that_still(tmp_path: Path) -> None:
    """The logs differ in what the stop itself has left; each holds all that they held when they were equal."""
    batches = logged(TOPICS[:10])
    longer = logged(TOPICS[10:12], after=batches)
    shorter = batches[:8]
    at = batches[-1].end_offset, batches[-1].chain

    assert (
        committed([left("c1", batches), left("c2", longer), left("c3", batches)], tmp_path, equal_at=at).problems == []
    )
    found = committed([left("c1", batches), left("c2", longer), left("c3", shorter)], tmp_path, equal_at=at)
    assert found.problems == ["c3 has not what all had when they were equal at 10; it ends at 8"]


def test_a_log_that_cannot_be_read_may_hold_anything(tmp_path: Path) -> None:
    """With one of three unread, what any other holds may be committed; of two tails the one of the later epoch."""
    common = logged(TOPICS[:5])
    long = logged(TOPICS[5:9], epoch=1, after=common)
    late = logged(TOPICS[10:12], epoch=2, after=common)
    joined = committed([left("c1", long), left("c2", late)], tmp_path, unread=1)
    assert (joined.end, joined.problems, joined.tails) == (7, [], ("c1 from 5 to 9",))


def test_a_log_that_has_lost_its_end_may_have_held_it(tmp_path: Path) -> None:
    """The nemesis had cut off the end of controller 2's log when the run ended: controller 1 alone has what both had had."""
    batches = logged(TOPICS[:10])
    cut = left("c2", batches[:6])._replace(had_below=10)
    assert committed([left("c1", batches), cut, left("c3", batches[:6])], tmp_path).end == 10


def test_images_of_one_history_that_differ(tmp_path: Path) -> None:
    batches = logged(TOPICS)
    logs = [left("c1", batches), left("c2", batches, begins=3, digest=bytes(32)), left("c3", batches[:9])]
    (problem,) = committed(logs, tmp_path).problems
    assert problem.startswith("images differ: c1 ") and "c3" not in problem


def test_logs_without_a_majority_tell_nothing(tmp_path: Path) -> None:
    """Three histories that have not one batch in common."""
    logs = [left(f"c{n}", logged(TOPICS[n : n + 2], epoch=n)) for n in (1, 2, 3)]
    assert committed(logs, tmp_path).problems == ["there is no history that a majority holds"]


def test_logs_that_all_begin_at_a_snapshot_are_replayed_from_what_was_recorded(tmp_path: Path) -> None:
    """Each image came from the one wrong snapshot: their digests agreed, and the replay from 0 was compared nowhere."""
    batches = logged(TOPICS[:20], into=tmp_path / "controller-1")
    wrong = EMPTY_IMAGE.digest_bytes

    joined = committed([left("a", batches, begins=12), left("b", batches, begins=8)], tmp_path)
    assert (joined.known_from, joined.problems) == (0, [])
    assert [each.end_offset for each in joined.changes] == [each.end_offset for each in batches]

    joined = committed(
        [left("a", batches, begins=12, digest=wrong), left("b", batches, begins=8, digest=wrong)], tmp_path
    )
    assert joined.problems == ["b has an image that is not the replay of its history from 0"]


def test_a_history_that_no_replay_takes(tmp_path: Path) -> None:
    """It is a text beside the others, not the end of the judge."""
    batches = logged([*TOPICS[:5], RemoveTopic("nobody", bytes(16)), *TOPICS[5:8]], into=tmp_path / "controller-1")
    (problem,) = committed([left("a", batches, begins=7)], tmp_path).problems
    assert problem.startswith("a has a history that cannot be replayed from 0")


def test_what_nobody_has_any_more(tmp_path: Path) -> None:
    """The history begins where the oldest log does, or what was recorded before it."""
    batches = logged(TOPICS[:20])
    joined = committed([left("a", batches, begins=12), left("b", batches, begins=8)], tmp_path)
    assert joined.known_from == batches[8].base_offset
    assert [each.end_offset for each in joined.changes] == [each.end_offset for each in batches[8:]]
    assert joined.problems == [f"nobody has the log from its beginning, the oldest is b with {joined.known_from}"]
    assert committed([], tmp_path) == NOTHING_KNOWN
