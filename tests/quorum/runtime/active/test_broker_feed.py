"""Brokers that wait for news, and what has become of the log when it comes."""

from metadata_log.format.ids import NodeId
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import FetchResult, MetadataFetch, MetadataFetched
from quorum.runtime.protocol.world import BrokerFetch, ReplyTo, SnapshotWanted
from snapshots.policy import RetentionPolicy
from tests.quorum.runtime.active.brokers import register, uuid
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of


def fetch(lone: LoneNode, broker_id: NodeId, broker_epoch: int, max_wait_ms: int) -> ReplyTo:
    """The broker has applied all that there is."""
    offset, epoch = lone.node.state.applied, lone.node.log.shape.last_epoch
    of_broker = MetadataFetch(
        broker_id, broker_epoch, uuid(broker_id), offset, epoch, b"", False, False, (), max_wait_ms, 1 << 20
    )
    reply_to = lone.new_reply_to()
    lone.turn(BrokerFetch(of_broker, reply_to))
    lone.run_until_idle()
    return reply_to


def test_a_batch_that_is_larger_than_what_is_asked_for_comes_in_parts() -> None:
    """All of it is delivered with the last part; whoever takes whole batches only gets one, however little it asked for."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    broker_epoch = register(lone, 7)
    (batch,) = lone.node.log.read(broker_epoch, 1)

    def asked(part_position: int | None) -> MetadataFetched:
        below = lone.node.log.shape.epoch_below(broker_epoch)
        assert below is not None
        of_broker = MetadataFetch(
            7, broker_epoch, uuid(7), broker_epoch, below, b"", False, False, (), 0, 100, part_position
        )
        reply_to = lone.new_reply_to()
        lone.turn(BrokerFetch(of_broker, reply_to))
        answer = lone.answers[reply_to]
        assert isinstance(answer, MetadataFetched)
        return answer

    got = b""
    while len(got) < len(batch.data):
        answer = asked(len(got))
        assert answer.part is not None and answer.part.position == len(got) and not answer.batches
        got += answer.part.data
        assert answer.end_offset == (batch.end_offset if len(got) == len(batch.data) else broker_epoch)
    assert got == batch.data and len(got) > 100
    whole = asked(None)
    assert whole.batches == (batch,) and whole.part is None and whole.end_offset == batch.end_offset


def test_many_who_wait_are_sent_to_the_snapshot_if_retention_has_dropped_what_they_wait_for() -> None:
    """Many are woken after a linger. Meanwhile a mark's snapshot may be written, and all of the log below it be gone."""
    config = NodeConfig(retention=RetentionPolicy(max_bytes=1))
    lone = LoneNode(formatted_disk(voters_of([1])), config)
    lone.run_until_idle()
    node = lone.node
    brokers = {broker_id: register(lone, broker_id) for broker_id in range(config.broker_wake_at_once_max + 1)}
    for broker_id, broker_epoch in brokers.items():
        fetch(lone, broker_id, broker_epoch, max_wait_ms=0)  # this contact unfences it
    waiting = [fetch(lone, broker_id, broker_epoch, max_wait_ms=10_000) for broker_id, broker_epoch in brokers.items()]
    offset = node.state.applied
    lone.turn(SnapshotWanted("a reason", lone.new_reply_to(), lone.now_ms + 1_000))
    lone.run_until_idle()
    snapshot = node.log.shape.snapshot
    assert snapshot is not None and snapshot == node.log.shape.start and snapshot.offset > offset
    assert not any(reply_to in lone.answers for reply_to in waiting)
    lone.now_ms += config.broker_linger_ms
    lone.turn()
    assert lone.stopped is None
    for reply_to in waiting:
        answer = lone.answers[reply_to]
        assert isinstance(answer, MetadataFetched)
        assert (answer.result, answer.snapshot) == (FetchResult.USE_SNAPSHOT, snapshot)
        assert answer.controller_epoch == node.core.epoch and answer.standing is not None
