"""A controller that starts with a note older than its newest snapshot, as a power cut may leave one: what that proves of its log.

It has made the snapshot at 6 itself, of what was durable; or it has fetched that, and ended before its log was reset to it.
"""

from functools import partial

import pytest

from metadata_log.disk.identity import Identity
from metadata_log.format.batch import Batch
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import FLUSHED_NAME, FlushedNote
from metadata_log.store.segment import segment_names
from quorum.core.protocol.disk_trust import FULL
from quorum.runtime.disk.open_directory import Opened, open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.format import snapshot_name
from snapshots.store import SnapshotStore
from tests.quorum.runtime.disk.damaged_node import DamagedNode
from tests.quorum.runtime.lone_node import CLUSTER_ID, directory_id
from tests.sim.world.disk import MemoryDirectory

CONFIG = NodeConfig(log=LogConfig(segment_bytes=1 << 20, tail_bytes=700))
"""One segment: no header behind the damage says that all before was durable."""
SNAPSHOT_END = 6


def _with_snapshot(note_end: int | None = 1) -> DamagedNode:
    """A node of 20 records, all durable, that says so of the first `note_end`."""
    node = DamagedNode(damaged_at=None, config=CONFIG)
    node.keep_snapshot(SNAPSHOT_END)
    node.lone.node.log.close()
    if note_end is None:
        node.metadata.remove(FLUSHED_NAME)
    else:
        note = FlushedNote(node.metadata)
        note.write(note_end, node.written[note_end - 1].chain)
        note.flush()
        note.close()
    return node


def _opened(node: DamagedNode) -> Opened:
    return open_directory(
        node.disk, Identity(CLUSTER_ID, 1, directory_id(1), 1, "controller"), CONFIG, lambda: bytes(16)
    )


def _place_of(metadata: MemoryDirectory, batch: Batch) -> tuple[str, int]:
    for name in segment_names(metadata):
        position = metadata.read(name, 1 << 20).find(batch.data)
        if position >= 0:
            return name, position
    raise AssertionError("not in the log")


def _cut(position: int, data: bytearray) -> None:
    del data[position:]


def _spoil(node: DamagedNode, offset: int) -> None:
    name, position = _place_of(node.metadata, node.written[offset])
    node.metadata.flip_bit(name, position + 80)


@pytest.mark.parametrize("note_end", [1, 2, None])
@pytest.mark.parametrize("spoilt", [2, 3, 5])
def test_what_goes_on_from_the_own_snapshot_is_no_torn_tail(note_end: int | None, spoilt: int) -> None:
    """Records above it may be acknowledged: damage below it is damage, and is mended by the others."""
    node = _with_snapshot(note_end)
    _spoil(node, spoilt)
    opened = _opened(node)
    assert (opened.log.shape.end, opened.log.lost, opened.disk_trust) == (node.end, None, FULL)
    (damaged,) = opened.log.damage
    assert (damaged.start, damaged.end) == (spoilt, spoilt + 2)  # the first batch behind it only proves the next ones
    opened.log.repair(damaged, node.written[spoilt : spoilt + 2])
    assert opened.log.read(0, 1 << 20) == node.written
    assert opened.log.shape.snapshot == node.written[SNAPSHOT_END - 1].end


@pytest.mark.parametrize(
    ("note_end", "spoilt"),
    [
        (None, [6]),
        (None, [8]),
        (None, [2, 8]),
        (1, [5, 6]),
        (1, [4, 6]),
        (2, [5, 6, 8]),
        (3, [2, 6]),  # the note says that 2 is lost, and the batches above the snapshot that more is
        (5, [2, 4, 6]),
    ],
)
def test_what_the_note_and_the_snapshot_do_not_lead_over_is_lost_and_not_torn(
    note_end: int | None, spoilt: list[int]
) -> None:
    """Records above may be acknowledged: without a note any intact batch says so, and below the own snapshot nothing tears."""
    node = _with_snapshot(note_end)
    for offset in spoilt:
        _spoil(node, offset)
    opened = _opened(node)
    lost = opened.log.lost
    assert lost is not None and lost.end == node.end
    assert opened.disk_trust.lost is not None and opened.disk_trust.lost.end == node.end
    assert any(name.endswith(".damaged") for name in node.metadata.names())


def test_a_snapshot_that_the_log_does_not_lead_to_replaces_it() -> None:
    """A download that a crash has cut off from its reset: behind the hole stands nothing that goes on from it."""
    for first_gone in (2, SNAPSHOT_END - 1, SNAPSHOT_END):
        node = _with_snapshot()
        name, position = _place_of(node.metadata, node.written[first_gone])
        for behind in [each for each in segment_names(node.metadata) if each > name]:
            node.metadata.remove(behind)
        node.metadata.edit(name, partial(_cut, position))
        log = _opened(node).log
        assert (log.shape.end, log.lost, log.damage) == (SNAPSHOT_END, None, ())
        assert log.shape.start.offset == (0 if first_gone == SNAPSHOT_END else SNAPSHOT_END)


def test_what_does_not_go_on_from_the_snapshot_is_a_torn_tail() -> None:
    """The snapshot is another history's: what stands behind the hole is not proven by it, and was promised to nobody."""
    node = _with_snapshot()
    fetched = node.snapshot_at(SNAPSHOT_END, chain=bytes(32))
    node.metadata.remove(snapshot_name(fetched.meta.end))
    SnapshotStore(node.metadata).write(fetched.meta, fetched.image)
    _spoil(node, 2)
    log = _opened(node).log
    assert (log.shape.start.offset, log.shape.end, log.shape.chain) == (SNAPSHOT_END, SNAPSHOT_END, bytes(32))
    assert (log.lost, log.damage) == (None, ())
