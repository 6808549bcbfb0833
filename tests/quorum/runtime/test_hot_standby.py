"""Every controller has the state in memory: a failover loads nothing, and a snapshot reads no log."""

from pathlib import Path
from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.ids import Offset
from metadata_log.format.records import BROKER_RESOURCE
from metaquorum import AdminClient
from quorum.runtime.protocol.jobs import WriteSnapshotJob
from quorum.runtime.protocol.world import SnapshotWanted
from tests.quorum.runtime.active.test_transactions import LARGE, settle, started, submit
from tests.quorum.runtime.lone_node import LoneNode
from tests.quorum.runtime.quorum_of_three import quorum_of_three, until


class Reads:
    """The offsets from which a node reads its log, and the snapshots that it opens."""

    def __init__(self, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets: list[Offset] = []
        self.snapshots = 0
        log, store = node.log, node.snapshotter.store
        read, open_for_reading = log.read, store.directory.open

        def counted(offset: Offset, *rest: Any, **options: Any) -> Any:
            self.offsets.append(offset)
            return read(offset, *rest, **options)

        def opened(name: str, *rest: Any, **options: Any) -> Any:
            self.snapshots += name.endswith(".checkpoint")
            return open_for_reading(name, *rest, **options)

        monkeypatch.setattr(log, "read", counted)
        monkeypatch.setattr(store.directory, "open", opened)


async def set_threads(client: AdminClient, number: int) -> None:
    """Change the one config of this test."""
    brokers = admin_pb2.ConfigResource(resource_type=BROKER_RESOURCE)
    operation = admin_pb2.ConfigOperation(key="background.threads", value=str(number))
    alteration = admin_pb2.ConfigAlteration(resource=brokers, operations=[operation])
    answer = await client.alter_configs([alteration])
    assert [result.error.code for result in answer.results] == [0]


@pytest.mark.slow
async def test_a_failover_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower has applied what the active controller decided. The active controller goes. The next one decides on the very
    objects that it had before: it reads its log only above them, and opens no snapshot."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        for number in range(1, 21):
            await set_threads(client, number)
        (leader,) = [node_id for node_id, loop in quorum.loops.items() if loop.status().is_active]
        standbys = {node_id: loop.node for node_id, loop in quorum.loops.items() if node_id != leader}
        await until(lambda: len({loop.node.state.applied for loop in quorum.loops.values()}) == 1)
        before = {node_id: (node.state.committed, Reads(node, monkeypatch)) for node_id, node in standbys.items()}
        await quorum.stop_one(leader)
        await until(lambda: any(node.active.on for node in standbys.values()))

        (new,) = [node_id for node_id, node in standbys.items() if node.active.on]
        image, reads = before[new]
        assert standbys[new].state.proposed.configs is image.configs
        assert image.config(BROKER_RESOURCE, "")["background.threads"] == "20"
        assert min(reads.offsets, default=image.offset) >= image.offset
        assert reads.snapshots == 0
        await set_threads(client, 1)
        assert standbys[new].active.on


def marked(lone: LoneNode) -> WriteSnapshotJob:
    """Commits a mark. Returns the job that writes its snapshot."""
    lone.turn(SnapshotWanted("a test", lone.new_reply_to(), lone.now_ms + 1_000))
    for flush in lone.flushes():
        lone.finish(flush)
    (job,) = [job for job in lone.jobs if isinstance(job, WriteSnapshotJob)]
    return job


def test_a_snapshot_is_written_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job has the image at the mark, which is the very object that the controller decides on. Nobody reads the log for it."""
    lone = started()
    submit(lone, LARGE)
    settle(lone)
    job = marked(lone)
    reads = Reads(lone.node, monkeypatch)
    assert job.image.topics_by_id is lone.node.state.committed.topics_by_id
    lone.finish(job)
    assert reads.offsets == []
    assert job.written is not None and job.written.end.offset == job.image.offset
