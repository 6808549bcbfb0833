"""Log directories of a whole agent, over real gRPC: replicas are assigned, a directory fails, and the process may have to end."""

import asyncio

import pytest

from broker_agent.session.lifecycle import BrokerState, Exit
from broker_agent.session.replica_directories import DirectoryLimits
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY, Uuid
from metadata_log.format.partition_state import DIRECTORIES
from metadata_log.format.records import FeatureLevel, Partition, Topic
from tests.broker_agent.controllers import FakeController
from tests.broker_agent.test_agent import Process, Start
from tests.broker_agent.test_agent import controller as controller  # the fixture
from tests.broker_agent.test_agent import start as start  # the fixture

A, B = b"A" * 16, b"B" * 16
ORDERS = b"o" * 16


def with_two_directories(start: Start) -> Process:
    process: Process = start()
    process.agent.keep_replicas_in((A, B))
    return process


def hold_replicas(controller: FakeController, count: int = 1) -> None:
    """Broker 4 has the only replica of each partition of orders."""
    partitions = [Partition(ORDERS, each, (4,), (4,), (), (), 4, 0, 0, 0) for each in range(count)]
    controller.write(FeatureLevel("metadata.version", 2), Topic("orders", ORDERS), *partitions)


def recorded(controller: FakeController, partition: int = 0) -> tuple[Uuid, ...]:
    topic = controller.history.image.topic("orders")
    state = None if topic is None else topic.state(partition)
    return () if state is None else state[DIRECTORIES]


async def test_the_agent_assigns_until_the_image_shows_it(controller: FakeController, start: Start) -> None:
    """A refused request is made again. The registration has the directories of the data plane."""
    controller.refuse_assignments_with = ErrorCode.NOT_CONTROLLER
    process = with_two_directories(start)
    await process.reaches(BrokerState.ONLINE)
    assert tuple(controller.registrations[-1].log_dirs) == (A, B)
    hold_replicas(controller)
    await process.applies(controller.history.end)
    process.agent.assign_directories(A, [(ORDERS, 0)])
    await controller.pulse.until(lambda: len(process.log.said("assignments to directories not answered")) >= 1)
    assert process.agent.unassigned_replicas == 1
    controller.refuse_assignments_with = None
    await controller.pulse.until(lambda: recorded(controller) == (A,))
    await process.applies(controller.history.end)
    await controller.pulse.until(lambda: len(process.log.said("replicas assigned to directories")) == 1)
    assert process.agent.unassigned_replicas == 0
    with pytest.raises(ValueError, match="without the log directory"):
        process.agent.assign_directories(b"C" * 16, [(ORDERS, 0)])


async def test_a_failed_directory_is_reported_and_the_broker_goes_on(controller: FakeController, start: Start) -> None:
    """Replicas that were not assigned in time are lost. A repeated registration has the other directory alone."""
    process = with_two_directories(start)
    await process.reaches(BrokerState.ONLINE)
    hold_replicas(controller)
    await process.applies(controller.history.end)
    process.agent.directory_failed(A)
    process.agent.assign_directories(A, [(ORDERS, 0)])
    await controller.pulse.until(lambda: controller.history.image.brokers[4].log_dirs == (B,))
    await controller.pulse.until(lambda: recorded(controller) == (LOST_DIRECTORY,))
    assert process.agent.offline_directories == (A,)
    assert process.agent.state is BrokerState.ONLINE
    process.agent.assign_directories(B, [(ORDERS, 0)])
    await controller.pulse.until(lambda: recorded(controller) == (B,))
    assert not process.running.done()


async def test_a_failure_that_cannot_be_reported_ends_the_process(controller: FakeController, start: Start) -> None:
    """The controllers fence the broker when its session is over."""
    controller.is_deaf_to_losses = True
    process = with_two_directories(start)
    process.agent._directories.limits = DirectoryLimits(failure_timeout_ms=200)
    await process.reaches(BrokerState.ONLINE)
    process.agent.directory_failed(A)
    ended = await asyncio.wait_for(process.running, 10)
    assert ended.code == 1
    assert "could not be reported within 200 ms (log.dir.failure.timeout.ms)" in ended.reason


async def test_a_process_without_directories_ends(controller: FakeController, start: Start) -> None:
    process = with_two_directories(start)
    await process.reaches(BrokerState.ONLINE)
    process.agent.directory_failed(A)
    process.agent.directory_failed(B)
    assert await asyncio.wait_for(process.running, 10) == Exit(1, "the last log directory has failed")
