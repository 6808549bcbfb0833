"""A broker behind a slow link: what it asks for comes in time, and a large batch in parts."""

import grpc.aio

from broker_agent.client import ControllerClient
from broker_agent.session.lifecycle import (
    Applied,
    ApplyBatches,
    BatchesRefused,
    BrokerState,
    Fetch,
    FetchRequest,
    FetchResult,
    FindController,
    LeaderHint,
)
from metadata_log.format.fetch_size import PIECE_BYTES_MIN, BatchPart
from metadata_log.format.ids import OffsetAndEpoch
from quorum.controller.controller import ControllerConfig
from service_kit.process.endpoints import HostPort
from tests.broker_agent.one_broker import CHAIN, Broker, at

HERE = 13
BEYOND = 1_000
BATCH = bytes(range(250)) * 80
"""What comes next, as 20,000 bytes: the session never looks into them."""


async def no_reach(target: str, node_id: int | None) -> grpc.aio.Channel:
    raise AssertionError(f"{target} was dialled, although nothing was to be asked")


def asked(broker: Broker) -> FetchRequest:
    """The fetch that leaves next."""
    return (broker if broker.has(Fetch) else broker.wait()).the(Fetch).request


def part(broker: Broker, position: int, count: int, after_ms: int = 5) -> Broker:
    """The controller gives `count` bytes from `position` on."""
    piece = BatchPart(position, len(BATCH), BATCH[position : position + count])
    end_offset = HERE + 2 if piece.is_last else HERE
    return broker.answer(
        after_ms=after_ms, part=piece, end_offset=end_offset, previous_chain=CHAIN, high_watermark=BEYOND
    )


def online() -> Broker:
    broker = Broker().online()
    assert asked(broker).max_bytes == PIECE_BYTES_MIN and asked(broker).part_position == 0
    return broker


def test_parts_are_kept_until_the_batch_is_whole() -> None:
    """Each fetch says how many bytes are held; the store gets all of them at once."""
    broker = online()
    position = 0
    for size in (4_096, 8_192):
        request = asked(broker)
        assert (request.part_position, request.max_bytes, request.position.offset) == (position, size, HERE)
        part(broker, position, size)
        assert not broker.has(ApplyBatches)
        position += size
    part(broker, position, 1 << 14)
    work = broker.the(ApplyBatches)
    assert (work.batches, work.previous_chain, work.end_offset) == (BATCH, CHAIN, HERE + 2)
    assert asked(broker.step(Applied(at(HERE + 2)), 1)).part_position == 0


def test_the_next_part_is_asked_for_at_once() -> None:
    """A broker that is behind waits for nothing."""
    broker = part(online(), 0, 4_096)
    assert broker.has(Fetch)


def test_each_part_renews_the_lease() -> None:
    """A broker that needs a minute for a batch serves its clients meanwhile."""
    broker = online()
    for position in range(0, len(BATCH) - 4_096, 100):
        part(broker, position, 100, after_ms=500)
        assert broker.session.may_serve(broker.now_ms) and not broker.session.lease_lapsed
    assert broker.session.state is BrokerState.ONLINE


def test_after_an_answer_that_was_too_late_the_smallest_piece_is_asked_for() -> None:
    """The broker keeps the parts of the batch that it holds."""
    broker = part(part(online(), 0, 4_096), 4_096, 8_192)
    assert asked(broker).max_bytes == 16_384
    while not broker.has(FindController):
        broker.wait()
    request = asked(broker)
    assert (request.max_bytes, request.part_position) == (PIECE_BYTES_MIN, 12_288)


def test_a_large_piece_and_a_dead_controller_cost_no_session() -> None:
    """
    Where a link becomes slow under a fetch that waits, its answer comes too late. The next controller is down, and never answers.
    The third request leaves within the session that the first has begun, as the defaults have it.
    """
    broker = part(online(), 0, 4_096)
    heard_ms = broker.now_ms
    for _ in ("the leader's answer", "the dead controller's"):
        assert asked(broker)
        while not broker.has(FindController):
            broker.wait()
    assert asked(broker)
    assert broker.now_ms - heard_ms < ControllerConfig().session_timeout_ms
    assert broker.session.state is BrokerState.ONLINE


def test_nobody_is_asked_again_before_everybody_was_asked() -> None:
    """One dead controller costs one request and not several in a row; also after a hint, and where a voter was added."""
    first, second, third, added = (HostPort(f"c{number}", 9_093) for number in (1, 2, 3, 4))
    client = ControllerClient((first, second, third), no_reach, lambda happened: None)
    client.turn_to(LeaderHint(3, third.host, third.port))
    targets = []
    for _ in range(4):
        client.turn_to(None, (second, added))
        targets.append(client.target)
    assert sorted(targets) == sorted(each.target for each in (first, second, third, added))


def test_a_part_that_does_not_continue_what_is_held_begins_the_batch_anew() -> None:
    """A gap, or a part of another batch."""
    broker = part(online(), 0, 4_096)
    part(broker, 5_000, 4_096)
    assert not broker.has(ApplyBatches)
    assert asked(broker).part_position == 0


def test_a_batch_that_is_refused_is_fetched_anew() -> None:
    """Its parts were damaged on their way, or were of two batches."""
    broker = part(online(), 0, 1 << 20)
    assert broker.has(ApplyBatches)
    broker.step(BatchesRefused("CRC-32C mismatch"), 1)
    assert asked(broker).part_position == 0


def test_parts_are_dropped_with_the_store() -> None:
    """In another history the batch is another one."""
    broker = part(online(), 0, 4_096)
    assert asked(broker).part_position == 4_096
    broker.answer(result=FetchResult.DIVERGED, diverging=OffsetAndEpoch(9, 1))
    assert asked(broker.step(Applied(at(0)), 1)).part_position == 0


def test_a_heartbeat_asks_for_one_byte_and_says_nothing_of_the_link() -> None:
    """While a snapshot loads, a whole batch of a megabyte would hold up the next heartbeat."""
    broker = online()
    broker.answer(result=FetchResult.USE_SNAPSHOT, snapshot=OffsetAndEpoch(500, 3))
    request = asked(broker)
    assert (request.max_bytes, request.part_position) == (1, 0)
    part(broker, 0, 1)
    broker.step(Applied(at(500)))
    assert asked(broker).max_bytes == PIECE_BYTES_MIN


def test_news_that_were_waited_for_say_nothing_of_the_link() -> None:
    """The controller answers a parked fetch late, and not because of its bytes."""
    broker = part(online(), 0, 4_096)
    assert asked(broker).max_bytes == 8_192
    broker.answer(after_ms=1_900, batches=b"b", previous_chain=CHAIN, end_offset=BEYOND, high_watermark=BEYOND)
    assert asked(broker.step(Applied(at(BEYOND)), 1)).max_bytes == 8_192
