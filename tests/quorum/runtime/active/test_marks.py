"""Snapshot marks that operators ask for."""

from metadata_log.format.batch import BATCH_BYTES_MAX
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import METADATA_VERSION, METADATA_VERSION_MAX, FeatureLevel, level_of
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.controller.protocol.topic_commands import CreateTopicsReply
from quorum.runtime.active.marks import MARK_REASON_CHARS_MAX
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.protocol.jobs import WriteSnapshotJob
from quorum.runtime.protocol.requests import Refused, SnapshotMarked
from quorum.runtime.protocol.world import Answer, SnapshotWanted
from snapshots.reader import read_snapshot
from tests.quorum.runtime.active.test_transactions import LARGE, settle, started, submit
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of


def _asked(lone: LoneNode, reason: str) -> Answer:
    reply_to = lone.new_reply_to()
    lone.turn(SnapshotWanted(reason, reply_to, lone.now_ms + 1_000))
    lone.run_until_idle()
    return lone.answers[reply_to]


def test_a_reason_that_is_no_reason_is_refused() -> None:
    """It would not fit into any batch, or would stay in the log for ever; the node goes on, and the next mark is committed."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    end = lone.node.log.shape.end
    for length in (MARK_REASON_CHARS_MAX + 1, 3 * BATCH_BYTES_MAX):
        refused = _asked(lone, "r" * length)

        assert isinstance(refused, Refused)
        assert refused.code is ErrorCode.INVALID_REQUEST
        assert str(MARK_REASON_CHARS_MAX) in refused.message
        assert (lone.stopped, lone.node.log.shape.end) == (None, end)

    assert isinstance(_asked(lone, "r" * MARK_REASON_CHARS_MAX), SnapshotMarked)


def test_a_snapshot_is_written_at_the_level_at_its_mark() -> None:
    """The log has a transaction, which needs level 2. After the downgrade a snapshot has nothing above level 1, and is loaded."""
    lone = started()
    large = submit(lone, LARGE)
    settle(lone)
    assert isinstance(lone.answers[large], CreateTopicsReply)
    levels = []
    for level, upgrade_type in ((METADATA_VERSION_MAX, UpgradeType.UPGRADE), (1, UpgradeType.SAFE_DOWNGRADE)):
        submit(lone, UpdateFeatures((FeatureUpdate(METADATA_VERSION, level, upgrade_type),)))
        settle(lone)
        marked = _asked(lone, "look")
        assert isinstance(marked, SnapshotMarked)
        settle(lone)
        newest = lone.node.snapshotter.store.list()[-1]
        assert newest.end.offset == marked.offset
        first, *others = read_snapshot(lone.disk.subdirectory(LOG_DIRECTORY), newest.end).records
        assert isinstance(first, FeatureLevel)
        assert max(map(level_of, others)) <= first.level
        levels.append(first.level)
    assert levels == [METADATA_VERSION_MAX, 1]
    in_the_log = [record for batch in lone.node.log.read(0, 1 << 24) for record in decode_batch(batch)]
    assert max(level_of(record) for record in in_the_log if isinstance(record, tuple)) == 2
    again = started(lone.disk)
    assert again.node.state.committed.digest == lone.node.state.committed.digest
    assert again.node.state.committed.metadata_version == 1


def _marked(lone: LoneNode) -> int:
    """Commits a mark, without any job but flushes. Returns the end of its snapshot."""
    reply_to = lone.new_reply_to()
    lone.turn(SnapshotWanted("asked", reply_to, lone.now_ms + 1_000))
    for flush in lone.flushes():
        lone.finish(flush)
    answer = lone.answers[reply_to]
    assert isinstance(answer, SnapshotMarked)
    return answer.offset


def _writing(lone: LoneNode) -> list[WriteSnapshotJob]:
    return [job for job in lone.jobs if isinstance(job, WriteSnapshotJob)]


def test_the_newest_mark_that_was_committed_meanwhile_is_written_next() -> None:
    """Otherwise a start would replay the whole log above the first mark. The images are those at the marks."""
    lone = started()
    first, _, third = _marked(lone), _marked(lone), _marked(lone)
    (job,) = _writing(lone)
    assert job.meta.end.offset == first
    lone.finish(job)
    (job,) = _writing(lone)
    assert job.meta.end.offset == job.image.provenance.offset == third
    lone.finish(job)
    assert _writing(lone) == []
    assert [info.end.offset for info in lone.node.snapshotter.store.list()][-2:] == [first, third]
    settle(lone)
    again = started(lone.disk)
    assert again.node.state.committed.digest == lone.node.state.committed.digest


def test_a_mark_below_a_snapshot_of_the_leader_is_not_written() -> None:
    """The leader's snapshot has replaced the log meanwhile, so this log has no chain at the mark."""
    lone = started()
    _marked(lone)
    second = _marked(lone)
    snapshotter, log = lone.node.snapshotter, lone.node.log
    log.reset_to(OffsetAndEpoch(second + 5, lone.node.core.epoch), bytes(32), 1_000)
    assert snapshotter.job_for_passed(log) is None
