"""A node runs, and deletes a snapshot or a segment while a job reads its directory."""

import errno
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from metadata_log.format.ids import OffsetAndEpoch
from snapshots.offline.commands import running, shared
from snapshots.offline.shares import job
from snapshots.offline.shares.dealing import topics_of
from snapshots.offline.shares.replayed import add_up, result_of
from snapshots.offline.shares.share import Share
from tests.snapshots.failing.test_unfinished_files import LOG, compact_to


def test_a_snapshot_that_was_deleted_before_the_replay_ends_it_without_a_finding(tmp_path: Path) -> None:
    """The audit of a running cluster ended with `a record is not MessagePack: ... is gone`."""
    source = job.Source(str(tmp_path), OffsetAndEpoch(5, 1), 5, 9, (), ())
    rows = [*job._Deal(source, topics_of((), 2))._rows(0)]
    share = Share(0, [9])
    for _, generation, _, offsets, sizes, payload in rows:
        share.take(generation, offsets, sizes, payload)
    share.finish()
    replayed = add_up([result_of(share, 0)], [9])
    assert not replayed.is_whole


def test_a_snapshot_that_was_deleted_before_the_comparison_is_none(tmp_path: Path) -> None:
    """The file was written and verified; only the node's own one is gone."""
    end = OffsetAndEpoch(100, 1)
    made = compact_to(tmp_path, 100, LOG._replace(path=str(tmp_path / "node"), snapshots=(end,)))
    assert (made.end, made.same_as_source) == (end, None)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/node/@metadata/5-1.checkpoint"),
        PySparkException(
            "x\nFileNotFoundError: [Errno 2] No such file or directory: '/node/@metadata/5-1.checkpoint'\n"
        ),
    ],
)
def test_a_file_that_is_gone_is_told_with_the_next_step(error: Exception) -> None:
    with (
        pytest.raises(shared.Failed, match=r"5-1\.checkpoint'; .*: run the command again$"),
        running.failing_in_one_line(),
    ):
        raise error
