"""A damaged log is mended from what other controllers hold: who gives what, and what the damaged one makes of it."""

from metadata_log.errors import ErrorCode
from metadata_log.ids import ReplicaKey
from metadata_log.log import Log, LogConfig
from metadata_log.records import Topic
from quorum.core.messages import ReadLogRequest
from quorum.runtime.repair import read_log
from tests.quorum.runtime.lone_node import directory_id
from tests.sim.disk import MemoryDirectory

ASKING = ReplicaKey(2, directory_id(2))


def a_log(batches: int = 20) -> Log:
    log = Log.open(MemoryDirectory(), config=LogConfig(segment_bytes=2048, tail_bytes=700))
    for i in range(batches):
        log.append([Topic(f"topic-{i}", bytes(16))] * 2, 1, 1000 + i)
    log.flush()
    return log


def test_only_what_is_committed_is_given() -> None:
    """Whole batches, from the very offset that was asked for, below the end that was asked for and the committed one."""
    log = a_log()
    for offset, end_offset, committed, expected in (
        (4, 10, 40, [4, 6, 8]),
        (4, 9, 40, [4, 6]),
        (4, 10, 8, [4, 6]),
        (38, 90, 40, [38]),
    ):
        request = ReadLogRequest(ASKING, offset, end_offset, 1 << 20)
        answer = read_log(request, log, committed, epoch=3, leader_id=1)
        assert (answer.error, answer.epoch, answer.leader_id) == (ErrorCode.NONE, 3, 1)
        assert [batch.base_offset for batch in answer.batches] == expected


def test_what_is_not_held_is_out_of_range() -> None:
    """Above the committed end, below the start, in the middle of a batch, and nonsense."""
    log = a_log()
    start = log.shape.epoch_below(10)
    assert start is not None
    log.drop_prefix(log.shape.start._replace(offset=10, epoch=start))
    for offset, end_offset, committed in (
        (8, 20, 40),
        (20, 40, 20),
        (11, 20, 40),
        (40, 60, 40),
        (30, 20, 40),
        (-5, 7, 40),
    ):
        answer = read_log(ReadLogRequest(ASKING, offset, end_offset, 1 << 20), log, committed, epoch=3, leader_id=None)
        assert (answer.error, answer.batches, answer.log_start) == (ErrorCode.OFFSET_OUT_OF_RANGE, (), 10), offset


def test_an_answer_has_at_least_one_batch_and_at_most_a_mebibyte() -> None:
    log = a_log()
    answer = read_log(ReadLogRequest(ASKING, 0, 40, -1), log, 40, epoch=3, leader_id=None)
    assert len(answer.batches) == 1
    for _ in range(5):
        log.append([Topic("t" * 600_000, bytes(16))], 1, 5_000)
    log.flush()
    answer = read_log(ReadLogRequest(ASKING, 40, 45, 1 << 30), log, 45, epoch=3, leader_id=None)
    assert len(answer.batches) == 1
