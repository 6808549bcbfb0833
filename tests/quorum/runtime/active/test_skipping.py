"""A committed batch that replay cannot apply: it is shown, and an operator can skip it on a leader that stands still."""

from collections.abc import Sequence

import pytest

from metadata_log.format.batch import Batch
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import (
    METADATA_VERSION,
    EndTransaction,
    FeatureLevel,
    MetadataRecord,
    RemoveTopic,
    SkippedBatch,
    Topic,
)
from quorum.controller.protocol.happenings import TopicsCreated
from quorum.controller.protocol.topic_commands import CreateTopics, CreateTopicsReply, NewTopic
from quorum.core.protocol import inputs
from quorum.core.protocol.problem import ProblemCode
from quorum.runtime.active import skipping
from quorum.runtime.protocol.requests import BatchSkipped, Refused, SkipRequest
from quorum.runtime.protocol.world import Answer, SkipWanted, SnapshotWanted
from tests.quorum.runtime.active.test_transactions import CONFIG, LARGE, is_active, replayed, settle, started, submit
from tests.quorum.runtime.lone_node import LoneNode

STRAY = Topic("stray", b"stray".ljust(16))
UNKNOWN = RemoveTopic("another", bytes(range(16)))
"""A record that does not fit: there is no such topic."""


def poison(lone: LoneNode, records: Sequence[MetadataRecord] = (STRAY, UNKNOWN)) -> Batch:
    """The active controller appends a batch, and takes it for one with the first record only, as a buggy controller would."""
    node = lone.node
    staged = node.state.stage(records[:1], node.log.end)
    batch = node.log.seal(records, node.core.epoch, lone.wall_ms)
    node._writer.append_proposal(batch, lone.now_ms)
    node.state.propose(staged, batch)
    lone.turn()
    settle(lone)
    assert node.state.applied == batch.end_offset
    return batch


def restarted(lone: LoneNode) -> LoneNode:
    again = LoneNode(lone.disk, lone.config)
    again.now_ms = lone.now_ms
    settle(again)
    return again


def stuck() -> tuple[LoneNode, Batch]:
    """The leader of one voter, which does not become active: its replay stands in front of the batch."""
    lone = started()
    batch = poison(lone)
    return restarted(lone), batch


def skip(lone: LoneNode, batch: Batch, **changes: object) -> Answer:
    reply_to = lone.new_reply_to()
    request = {"offset": batch.base_offset, "epoch": batch.epoch, "chain": batch.chain, **changes}
    lone.turn(SkipWanted(SkipRequest(**request), reply_to, lone.now_ms + 1_000))  # type: ignore[arg-type]
    settle(lone)
    return lone.answers[reply_to]


def refused(answer: Answer) -> ErrorCode:
    assert isinstance(answer, Refused), answer
    assert "nothing was done" in answer.message
    return answer.code


def creates(lone: LoneNode, name: str = "orders") -> bool:
    reply_to = submit(lone, CreateTopics((NewTopic(name, 1, 1),)))
    settle(lone)
    return isinstance(lone.answers.get(reply_to), CreateTopicsReply)


def test_a_leader_that_stands_still_names_the_batch() -> None:
    """The problem has the offset, the epoch, the chain, the error, and the command that shows the batch."""
    lone, batch = stuck()
    assert lone.node.core.is_leading and not is_active(lone)
    text = lone.problems[ProblemCode.REPLAY_STOPPED]
    assert f"replay stopped at offset {batch.base_offset + 1}" in text
    assert f"[{batch.base_offset}, {batch.end_offset}) of epoch {batch.epoch}, with chain {batch.chain.hex()}" in text
    assert f"--from-offset {batch.base_offset} --to-offset {batch.end_offset}" in text


def test_the_leader_that_stands_still_skips_the_batch_and_becomes_active() -> None:
    """The whole batch is dropped, and nothing else: also its good record has no effect. A restart drops the batch again."""
    lone, batch = stuck()
    answer = skip(lone, batch)
    assert isinstance(answer, BatchSkipped)
    assert (answer.dropped_start, answer.dropped_end) == (batch.base_offset, batch.end_offset)
    assert "another" in answer.reason and answer.batches == (batch,)
    assert is_active(lone) and lone.problems == {}
    assert lone.node.state.committed.topic("stray") is None
    assert creates(lone)
    assert replayed(lone.node).image == lone.node.state.committed
    again = restarted(lone)
    assert is_active(again)
    assert again.node.state.committed.digest_bytes == lone.node.state.committed.digest_bytes


def test_a_dry_run_changes_nothing_and_shows_what_is_lost() -> None:
    lone, batch = stuck()
    end = lone.node.log.end
    answer = skip(lone, batch, validate_only=True)
    assert isinstance(answer, BatchSkipped)
    assert (answer.offset, lone.node.log.end, answer.batches) == (end, end, (batch,))
    assert not is_active(lone)


def test_a_repeated_skip_is_done_once() -> None:
    lone, batch = stuck()
    first, again = skip(lone, batch), skip(lone, batch)
    assert isinstance(first, BatchSkipped) and isinstance(again, BatchSkipped)
    assert (first.offset, first.dropped_end) == (again.offset, again.dropped_end)
    assert len(lone.node.log.skipped()) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"offset": 7}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offset": 1 << 40}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"epoch": 77}, ErrorCode.CHAIN_MISMATCH),
        ({"chain": bytes(32)}, ErrorCode.CHAIN_MISMATCH),
    ],
)
def test_only_the_named_batch_is_skipped(changes: dict[str, object], code: ErrorCode) -> None:
    """Offset, epoch and chain have to match the leader's log: an operator has looked at this very batch."""
    lone, batch = stuck()
    assert batch.base_offset == 6, "so offset 7 is inside of the batch"
    end = lone.node.log.end
    assert refused(skip(lone, batch, **changes)) is code
    assert lone.node.log.end == end


def test_a_batch_in_front_of_which_no_replay_stands_is_not_skipped() -> None:
    """A control batch never is, and a batch that the leader has applied only with a flag of its own."""
    lone = started()
    creates(lone)
    control, *_, data = lone.node.log.read(0, 1 << 20)
    assert control.is_control and not data.is_control
    assert refused(skip(lone, control)) is ErrorCode.POLICY_VIOLATION
    assert refused(skip(lone, data)) is ErrorCode.POLICY_VIOLATION
    stuck_lone, _ = stuck()
    good = next(each for each in stuck_lone.node.log.read(0, 1 << 20) if not each.is_control)
    assert refused(skip(stuck_lone, good, although_applied=True)) is ErrorCode.POLICY_VIOLATION


def test_below_level_2_nothing_is_skipped() -> None:
    """A node of release 0.1.0 would stop at the record that skips. The level is the level of the image in front of the batch."""
    at_level_1 = CONFIG._replace(controller=CONFIG.controller._replace(bootstrap_metadata_version=1))
    first = started(config=at_level_1)
    batch = poison(first)
    lone = restarted(first)
    assert refused(skip(lone, batch)) is ErrorCode.UNSUPPORTED_VERSION


def test_an_active_leader_drops_what_it_has_applied() -> None:
    """With the flag the leader makes its image anew, without the batch, and is active again with the same epoch."""
    lone = started()
    batch = poison(lone)
    assert creates(lone), "the leader goes on, although every other node would stop"
    assert lone.node.state.committed.topic("stray") is not None
    epoch = lone.node.core.epoch

    assert isinstance(skip(lone, batch, although_applied=True), BatchSkipped)
    assert is_active(lone) and lone.node.core.epoch == epoch
    assert lone.node.state.committed.topic("stray") is None
    assert lone.node.state.committed.topic("orders") is not None
    assert creates(lone, "payments")
    assert replayed(lone.node).image == lone.node.state.committed


def test_what_was_appended_before_a_skip_is_told_after_it() -> None:
    """1. The leader appends a topic, which is not committed yet. 2. The leader skips an older batch, and makes its image anew.
    3. The leader is active again, in the same epoch: the topic is in the log, and is told once, with the end of its batch."""
    lone = started()
    batch = poison(lone)
    lone.node.active.story.take()
    submit(lone, CreateTopics((NewTopic("orders", 1, 1),)))
    end = lone.node.log.end
    assert isinstance(skip(lone, batch, although_applied=True), BatchSkipped)
    assert is_active(lone)
    told = [(each.happening, each.offset) for each in lone.node.active.story.take()]
    assert told == [(TopicsCreated(1, 1, ("orders",)), end)]


def test_the_image_is_made_anew_from_the_newest_snapshot() -> None:
    """A mark in front of the batch is no obstacle: its snapshot does not have the effect, and the log goes on from there."""
    lone = started()
    assert creates(lone, "first")
    lone.turn(SnapshotWanted("a test", lone.new_reply_to(), lone.now_ms + 1_000))
    settle(lone)
    (snapshot,) = lone.node.snapshotter.store.list()
    batch = poison(lone)
    assert creates(lone, "second")
    assert isinstance(skip(lone, batch, although_applied=True), BatchSkipped)
    assert is_active(lone)
    names = {topic.name for topic in lone.node.state.committed.topics()}
    assert names == {"first", "second"} and snapshot.end.offset == batch.base_offset


def test_a_batch_in_a_snapshot_is_not_skipped() -> None:
    """A mark behind the batch means that nodes which applied the batch have written a snapshot with its effect."""
    lone = started()
    batch = poison(lone)
    reply_to = lone.new_reply_to()
    lone.turn(SnapshotWanted("a test", reply_to, lone.now_ms + 1_000))
    settle(lone)
    answer = skip(lone, batch, although_applied=True)
    assert refused(answer) is ErrorCode.POLICY_VIOLATION
    assert isinstance(answer, Refused) and "Only if" in answer.message


def reads_of_turns(lone: LoneNode, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of the log each turn has read for the checks of a skip, except for the lookup of the batch by its offset."""
    turns, real, turn = [0], lone.node.log.read, lone.node.turn

    def read(offset: int, max_bytes: int, until: int | None = None) -> tuple[Batch, ...]:
        found = real(offset, max_bytes, until)
        turns[-1] += sum(len(each.data) for each in found) if max_bytes == skipping.SCAN_BYTES_PER_TURN else 0
        return found

    def counted(*args: object) -> None:
        turns.append(0)
        turn(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(lone.node.log, "read", read)
    monkeypatch.setattr(lone.node, "turn", counted)
    return turns


@pytest.mark.parametrize("although_applied", [False, True])
def test_no_turn_of_a_skip_is_long(although_applied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log around the batch is read once, a slice in a turn, so that the leader answers its followers in between."""
    monkeypatch.setattr(skipping, "SCAN_BYTES_PER_TURN", 2_000)
    lone = started()
    assert all(creates(lone, f"before-{number}") for number in range(30))
    batch = poison(lone)
    assert all(creates(lone, f"after-{number}") for number in range(30))
    if not although_applied:
        lone = restarted(lone)
    behind = sum(len(each.data) for each in lone.node.log.read(batch.end_offset, 1 << 30))
    before = sum(len(each.data) for each in lone.node.log.read(0, 1 << 30, batch.base_offset))
    turns = reads_of_turns(lone, monkeypatch)
    assert isinstance(skip(lone, batch, although_applied=although_applied), BatchSkipped)
    monkeypatch.undo()
    assert sum(turns) == behind + (before if although_applied else 0) > 4_000
    assert max(turns) <= 4_000, "the last slice in front of the batch, and the first one behind"
    assert is_active(lone)


def test_the_log_in_front_of_a_snapshot_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction is open at the end of a snapshot, so the search for an open transaction begins there."""
    lone = started()
    assert creates(lone, "before")
    lone.turn(SnapshotWanted("a test", lone.new_reply_to(), lone.now_ms + 1_000))
    settle(lone)
    batch = poison(lone)
    turns = reads_of_turns(lone, monkeypatch)
    assert isinstance(skip(lone, batch, although_applied=True), BatchSkipped)
    assert sum(turns) == 0


def test_a_leader_that_resigns_during_the_checks_has_done_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator is told so, and asks the next leader. A request whose time is over has done nothing either."""
    monkeypatch.setattr(skipping, "SCAN_BYTES_PER_TURN", 1)
    lone = started()
    assert all(creates(lone, name) for name in ("one", "two", "three"))
    batch = poison(lone)
    reply_to, late = lone.new_reply_to(), lone.new_reply_to()
    request = SkipRequest(batch.base_offset, batch.epoch, batch.chain, although_applied=True)
    lone.turn(SkipWanted(request, late, lone.now_ms + 10), SkipWanted(request, reply_to, lone.now_ms + 1_000))
    assert lone.node.has_more_to_do and not {late, reply_to} & set(lone.answers)
    lone.now_ms += 10
    lone.turn()
    assert refused(lone.answers[late]) is ErrorCode.NOT_READY
    lone.node._step(inputs.Resign(lone.node.core.epoch))
    assert refused(lone.answers[reply_to]) is ErrorCode.NOT_CONTROLLER
    assert not lone.node.log.skipped()


def test_a_batch_that_sets_the_level_is_not_dropped_once_it_is_applied() -> None:
    """The level is 1 in front of the batch. The leader is at level 2, and so are the records behind: without the batch they, and
    the record that skips, would be poison.
    """
    at_level_1 = CONFIG._replace(controller=CONFIG.controller._replace(bootstrap_metadata_version=1))
    lone = started(config=at_level_1)
    batch = poison(lone, [FeatureLevel(METADATA_VERSION, 2)])
    assert lone.node.state.committed.metadata_version == 2
    end = lone.node.log.end
    assert refused(skip(lone, batch, although_applied=True)) is ErrorCode.POLICY_VIOLATION
    assert lone.node.log.end == end


def test_a_batch_of_a_transaction_takes_the_transaction_along() -> None:
    """A transaction takes effect as a whole or not at all. Here its third slice cannot be applied, and its end is in the log."""
    lone = started()
    node = lone.node
    begin = node.log.end
    submit(lone, LARGE)
    lone.turn()
    batch = node.log.seal([UNKNOWN], node.core.epoch, lone.wall_ms)
    node._writer.append_proposal(batch, lone.now_ms)
    node.state.propose(node.state.stage([STRAY], node.log.end), batch)
    settle(lone)
    assert node.state.transaction is None and is_active(lone)
    last = next(each for each in node.log.read(batch.end_offset, 1 << 20) if EndTransaction() in decode_batch(each))

    again = restarted(lone)
    assert not is_active(again)
    answer = skip(again, batch)
    assert isinstance(answer, BatchSkipped)
    assert (answer.dropped_start, answer.dropped_end) == (begin, last.end_offset)
    assert is_active(again)
    assert again.node.state.committed.topic("large") is None
    assert creates(again)
    assert replayed(again.node).image == again.node.state.committed


def test_a_transaction_without_an_end_is_dropped_up_to_the_end_of_the_log() -> None:
    """The leader died inside of it. After the skip no transaction is open, and nothing is left to abort."""
    lone = started()
    node = lone.node
    begin = node.log.end
    submit(lone, LARGE)
    batch = node.log.seal([UNKNOWN], node.core.epoch, lone.wall_ms)
    node._writer.append_proposal(batch, lone.now_ms)
    node.state.propose(node.state.stage([STRAY], node.log.end), batch)
    node._report_growth()
    lone.turn()
    lone.jobs[0].run()
    again = restarted(lone)
    answer = skip(again, batch)
    assert isinstance(answer, BatchSkipped)
    assert answer.dropped_start == begin and answer.dropped_end >= batch.end_offset
    assert is_active(again) and again.node.state.transaction is None
    assert again.node.state.committed.topic("large") is None
    assert [type(record) for _, record in again.node.log.skipped()] == [SkippedBatch]
