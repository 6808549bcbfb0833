"""The lease that comes with a broker's fetch: given only while nothing is decided that takes its leaderships away."""

from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched
from quorum.runtime.protocol.world import BrokerFetch
from tests.quorum.runtime.active.brokers import register, uuid
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of


def _fetch(lone: LoneNode, broker_epoch: int, offset: int) -> MetadataFetched:
    """Broker 7, which has applied all below `offset`, fetches and is answered at once."""
    log = lone.node.log
    chain, epoch = log.chain_at(offset), log.shape.epoch_below(offset)
    assert chain is not None
    assert epoch is not None
    fetch = MetadataFetch(7, broker_epoch, uuid(7), offset, epoch, chain, False, False, (), 0, 1 << 20)
    reply_to = lone.new_reply_to()
    lone.turn(BrokerFetch(fetch, reply_to))
    answer = lone.answers[reply_to]
    assert isinstance(answer, MetadataFetched)
    return answer


def test_no_lease_between_a_fencing_and_the_broker_that_has_applied_it() -> None:
    """A session ends and the fencing is appended, but not committed; then the broker is heard again.

    It is unfenced by the next record, so it looks unfenced in what is committed and in what is proposed; but what it led moves
    in between. A lease given now would outlast that, and two brokers would serve the same partitions. The lease comes back
    once the broker has applied the records that moved its leaders.
    """
    lone = LoneNode(formatted_disk(voters_of([1])))
    lone.run_until_idle()
    broker_epoch = register(lone, 7)
    _fetch(lone, broker_epoch, lone.node.state.applied)  # this contact unfences it
    lone.run_until_idle()
    before = lone.node.state.applied
    assert _fetch(lone, broker_epoch, before).lease_ms == lone.config.lease_ms

    lone.now_ms += lone.config.controller.session_timeout_ms + 1
    lone.turn()
    assert lone.flushes(), "the fencing is appended, and waits for its flush"
    answer = _fetch(lone, broker_epoch, before)
    assert not lone.node.state.committed.brokers[7].fenced
    assert not lone.node.state.proposed.brokers[7].fenced
    assert answer.lease_ms == 0

    lone.run_until_idle()
    assert _fetch(lone, broker_epoch, before).lease_ms == 0
    assert _fetch(lone, broker_epoch, lone.node.state.applied).lease_ms == lone.config.lease_ms
