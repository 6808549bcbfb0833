"""No turn is long: what comes at once, and what concerns very much, is taken in parts."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.partition_state import ISR
from metadata_log.format.records import BROKER_RESOURCE, Endpoint, Partition, PartitionChange, RegisterBroker, Topic
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import loading_delta
from quorum.controller.partitions.walks import PartitionWalk, Visited
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.runtime import callers, inbox
from quorum.runtime.active import active_controller
from quorum.runtime.active.active_controller import BEGUN_PER_TURN_MAX
from quorum.runtime.inbox import TURN_REQUESTS_MAX
from quorum.runtime.protocol.requests import ReadView, Refused
from quorum.runtime.protocol.world import Event, Read, Submission
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of
from tests.quorum.runtime.quorum_of_three import quorum_of_three

TOPICS, PARTITIONS = 20_000, 10


def _large_image() -> MetadataImage:
    delta = loading_delta()
    for broker_id in (1, 2, 3):
        endpoints = (Endpoint("PLAIN", "b", 9092),)
        delta.replay(RegisterBroker(broker_id, bytes(16), endpoints, (), None, False, False, (), 7), 0)
    for number in range(TOPICS):
        topic_id = (number + 1).to_bytes(16, "little")
        delta.replay(Topic(f"t{number}", topic_id), 0)
        for partition in range(PARTITIONS):
            delta.replay(Partition(topic_id, partition, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0), 0)
    return delta.finish(Provenance(TOPICS * PARTITIONS, 1, 1))


@pytest.mark.slow
def test_a_broker_of_200_000_partitions_is_walked_in_slices() -> None:
    """Each looks at no more than the limit and a chunk; all are visited, once, in the order of their topics' ids."""
    image, config = _large_image(), ControllerConfig()
    walk = PartitionWalk(image, 2, 0)
    seen: list[bytes] = []

    def visit(visited: Visited) -> PartitionChange | None:
        assert 2 in visited.state[ISR]
        seen.append(visited.topic.topic_id)
        return None

    steps = 0
    while not walk.is_done:
        walk.step(image, visit, config, steps)
        steps += 1
        assert walk.last_step_cost <= config.slice_partitions_max + 68

    assert len(seen) == TOPICS * PARTITIONS
    assert seen == sorted(seen)
    assert steps >= TOPICS * PARTITIONS // config.slice_partitions_max


def test_what_came_early_is_taken_in_parts() -> None:
    """A new leader may find ten thousand requests waiting; between two parts of them followers and brokers are heard."""
    lone = LoneNode(formatted_disk(voters_of([1])))
    reads = [lone.new_reply_to() for _ in range(3 * BEGUN_PER_TURN_MAX)]
    lone.turn(*[Read(reply_to, lone.now_ms + 1_000) for reply_to in reads])
    assert not lone.node.active.on
    left: list[int] = []
    while len(lone.answers) < len(reads):
        if lone.jobs:
            lone.finish(lone.jobs[0])
        else:
            lone.turn()
        left.append(len(lone.node.active._waiting))
    assert [count for count in left if count] == [2 * BEGUN_PER_TURN_MAX, BEGUN_PER_TURN_MAX]
    assert all(isinstance(each, ReadView) for each in lone.answers.values())
    assert list(lone.answers) == reads


def test_what_came_early_and_writes_much_is_taken_in_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_controller, "BEGUN_RECORDS_PER_TURN_MAX", 6)
    lone = LoneNode(formatted_disk(voters_of([1])))
    asked = [Submission(_configs(n), lone.new_reply_to(), lone.now_ms + 1_000) for n in range(5)]
    lone.turn(*asked)
    left: list[int] = []
    while len(lone.answers) < len(asked):
        if lone.jobs:
            lone.finish(lone.jobs[0])
        else:
            lone.turn()
        left.append(len(lone.node.active._waiting))
    assert [count for count in left if count][:2] == [3, 1], "four records each"
    assert all(isinstance(each, AlterConfigsReply) for each in lone.answers.values())


@pytest.mark.slow
async def test_clients_never_keep_controllers_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many requests have come, a turn takes what controllers sent first, and only so many of the others."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        leader = next(each for each in quorum.loops.values() if each.status().is_active)
        turns: list[list[bool]] = []
        turn = leader.node.turn

        def noted(events: Iterable[Event], now_ms: int, wall_ms: int) -> None:
            taken = list(events)
            turns.append([isinstance(event, Read) for event in taken])
            turn(taken, now_ms, wall_ms)

        monkeypatch.setattr(leader.node, "turn", noted)
        asked = [leader.read(lambda view: view.as_of_offset, 10_000) for _ in range(2_000)]
        await asyncio.gather(*asked, return_exceptions=True)  # whoever leads by then: what matters is what a turn takes

        assert sum(map(sum, turns)) == 2_000
        assert max(map(sum, turns)) <= TURN_REQUESTS_MAX
        assert all(taken == sorted(taken) for taken in turns), "what is no client's comes first"


@pytest.mark.slow
async def test_large_requests_do_not_share_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of 10,000 partitions is fifty milliseconds of work: the turn looks at its clock then, not eight requests later."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        leader = next(each for each in quorum.loops.values() if each.status().is_active)
        taken: list[int] = []
        turn = leader.node.turn

        def noted(events: Iterable[Event], now_ms: int, wall_ms: int) -> None:
            count = 0

            def counted() -> Iterator[Event]:
                nonlocal count
                for event in events:
                    count += isinstance(event, Submission)
                    yield event

            turn(counted(), now_ms, wall_ms)
            taken.append(count)

        monkeypatch.setattr(leader.node, "turn", noted)
        monkeypatch.setattr(inbox, "LOOK_EVERY_RECORDS", 3)
        monkeypatch.setattr(inbox, "TURN_WORK_US_MAX", 0)
        asked = [leader.submit(_configs(n), 10_000) for n in range(6)]
        await asyncio.gather(*asked, return_exceptions=True)  # whoever leads by then: what matters is what a turn takes

        assert sum(taken) == 6
        assert max(taken) == 1, taken


def _configs(number: int) -> AlterConfigs:
    """Four records."""
    keys = ("log.retention.ms", "log.segment.bytes", "message.max.bytes", "min.insync.replicas")
    operations = tuple(ConfigOperation(ConfigOperationKind.SET, key, str(10_000 + number)) for key in keys)
    return AlterConfigs((ConfigAlteration(BROKER_RESOURCE, "", operations),))


@pytest.mark.slow
async def test_more_than_a_node_can_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a word that says so; and what controllers and brokers ask is none of it."""
    async with quorum_of_three(tmp_path) as quorum, quorum.client() as client:
        await client.list_topics()
        leader = next(each for each in quorum.loops.values() if each.status().is_active)
        monkeypatch.setattr(callers, "WAITING_MAX", len(leader._callers) + 5)
        asked = [leader.read(lambda view: view.as_of_offset, 10_000) for _ in range(50)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        codes = [each.code for each in answers if isinstance(each, Refused)]
        assert 40 <= codes.count(ErrorCode.THROTTLING_QUOTA_EXCEEDED) < 50
        assert leader.tallies.turn_seconds.count > 0
