"""`quorum recover` of a log with a batch that no node can apply: it reads no records, and keeps the batch and its skip."""

from pathlib import Path
from typing import cast

import pytest

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import read_identity
from metadata_log.format.records import FeatureLevel, Record, RemoveTopic, SkippedBatch, Topic
from metadata_log.store.log import Log
from quorum.runtime.protocol.requests import BatchSkipped
from tests.quorum.cli.recover.test_recover import batches, controller, recovered
from tests.quorum.runtime.active.test_skipping import skip
from tests.quorum.runtime.active.test_transactions import is_active, settle
from tests.quorum.runtime.lone_node import LoneNode
from tests.sim.world.disk import MemoryDirectory

POISON = RemoveTopic("nobody", b"n" * 16)


def started(path: Path) -> LoneNode:
    """The only voter of the recovered cluster, once it leads and has applied what it can."""
    directory = RealDirectory(path)
    lone = LoneNode(cast(MemoryDirectory, directory), identity=read_identity(directory))
    while not lone.node.core.is_leading:
        lone.run_until_idle()
        lone.now_ms += 1_000
        lone.turn()
    settle(lone)
    return lone


@pytest.mark.parametrize("was_skipped", [True, False])
def test_a_log_with_a_poison_batch_is_recovered(tmp_path: Path, was_skipped: bool) -> None:
    """With its skip, the only voter becomes active. Without it, the voter leads, and an operator can skip the batch then."""
    written: list[Record] = [FeatureLevel("metadata.version", 2), POISON, Topic("behind", b"b" * 16)]
    path = controller(tmp_path / "c", [(1, record) for record in written])
    _, poison, _ = batches(path)
    if was_skipped:
        record = SkippedBatch(poison.base_offset, poison.epoch, poison.chain, poison.base_offset, poison.end_offset)
        log = Log.open(RealDirectory(path).subdirectory("@metadata"))
        log.append([record], 1, log.last_timestamp_ms)
        log.flush()
        log.close()
    recovered("--directory", path)
    lone = started(path)
    assert is_active(lone) is was_skipped
    if not was_skipped:
        assert isinstance(skip(lone, poison), BatchSkipped)
    assert is_active(lone)
    assert [topic.name for topic in lone.node.state.committed.topics()] == ["behind"]
    lone.node.log.close()
