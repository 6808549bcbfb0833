"""The agent as a library, against an honest controller over real gRPC: it starts, tells, asks, and leaves; and it may end."""

import asyncio
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from quorum_rpc.v1 import data_plane_pb2, data_plane_pb2_grpc

from broker_agent.config import BrokerConfig, load
from broker_agent.embedding.agent import Agent
from broker_agent.embedding.errors import (
    AgentEnded,
    CannotStart,
    DiskFailed,
    NotAnswered,
    NotRegistered,
    NotRunning,
    ProposalRefused,
)
from broker_agent.own_disk.process_notes import CLEAN_SHUTDOWN_NAME
from broker_agent.publishing.assignments import Delete, Follow, Lead, ResumePoint, Stop, TopicIdPartition, WholeSet
from broker_agent.session.lifecycle import BrokerState
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import Endpoint, FeatureLevel, Partition, PartitionChange, RemoveTopic, Topic
from service_kit.rpc.dial import Dialer
from tests.broker_agent.controllers import CLUSTER_ID, FakeController, registration
from tests.broker_agent.test_agent import Quiet
from tests.broker_agent.test_agent import controller as controller  # the fixture

ORDERS, LOGS = b"o" * 16, b"l" * 16
A, B = b"A" * 16, b"B" * 16

Make = Callable[..., Agent]


def configure(path: Path, port: int, **keys: Any) -> BrokerConfig:
    """The configuration of broker 4, whose directory is formatted."""
    path.mkdir(exist_ok=True)
    write_identity(RealDirectory(path), Identity(CLUSTER_ID, 4, b"4" * 16, 1, "broker"))
    values = {
        "node.id": 4,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metadata.log.dir": path,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        "metadata.fetch.max.wait.ms": 200,
    } | {key.replace("_", "."): value for key, value in keys.items()}
    return load(None, {}, [f"{key}={value}" for key, value in values.items()])


@pytest.fixture
def make(tmp_path: Path, controller: FakeController) -> Make:
    def made(keys: dict[str, Any] | None = None, **options: Any) -> Agent:
        options = {"log": Quiet(controller.pulse)} | options
        return Agent(configure(tmp_path / "broker", controller.port, **(keys or {})), **options)

    return made


def orders(*leaders: int) -> list[Any]:
    """The topic orders on the brokers 4 and 5; broker 4 leads the partitions of `leaders` with 4 in them."""
    partitions = [Partition(ORDERS, n, (4, 5), (4, 5), (), (), each, 0, 0, 0) for n, each in enumerate(leaders)]
    brokers = [registration(4, b"4" * 16), registration(5, b"5" * 16)]
    return [*brokers, Topic("orders", ORDERS), *partitions]


async def test_the_block_registers_the_broker_and_leaves_in_order(
    controller: FakeController, make: Make, tmp_path: Path
) -> None:
    """Registered when the block begins; at its end the data are flushed before the proof of the shutdown is written."""
    proof, flushed = tmp_path / "broker" / CLEAN_SHUTDOWN_NAME, []

    async def flush() -> None:
        flushed.append(proof.exists())

    agent = make(endpoints=[Endpoint("STORE", "store-4", 7_000)], flush_data=flush)
    assert not agent.may_serve()
    with pytest.raises(NotRunning, match="the agent was not started"):
        agent.stop()
    async with agent:
        assert agent.broker_epoch is not None
        await asyncio.wait_for(agent.online(), 10)
        assert agent.may_serve() and agent.lease.holds and agent.lease.remaining_ms > 0
        assert [(each.listener, each.host) for each in agent.endpoints] == [
            ("PLAINTEXT", "127.0.0.1"),
            ("STORE", "store-4"),
        ]
        assert agent.metadata.is_alive(4) and agent.image is agent.metadata.image
    assert not agent.may_serve() and agent.state is BrokerState.OFFLINE
    assert controller.fetches[-1].wants_shut_down
    assert (flushed, proof.exists()) == ([False], True)


async def test_assignments_follow_the_metadata_until_the_broker_has_left(
    controller: FakeController, make: Make
) -> None:
    """Lead, follow, stop and delete; the stream ends with the controlled shutdown, and yields the moves of that first."""
    controller.write(*orders(4, 5))
    agent = make()
    async with agent:
        stream = agent.assignments()
        whole = await anext(stream)
        assert isinstance(whole, WholeSet)
        assert whole.replicas == {TopicIdPartition(ORDERS, 0), TopicIdPartition(ORDERS, 1)}
        lead, follow = await anext(stream), await anext(stream)
        assert isinstance(lead, Lead) and isinstance(follow, Follow) and follow.leader == 5
        point = stream.resume_point
        assert isinstance(point, ResumePoint)
        controller.write(PartitionChange(ORDERS, 1, leader=NO_LEADER))
        assert isinstance(await anext(stream), Stop)
        controller.write(PartitionChange(ORDERS, 0, leader=5))
        again = agent.assignments(since=point)
        assert [type(await anext(again)) for _ in range(2)] == [Stop, Follow]
        await anext(stream)
        controller.holds_leaders = True
        agent.stop()
        controller.write(RemoveTopic("orders", ORDERS))
        deleted = [await anext(stream) for _ in range(2)]
        assert [type(each) for each in deleted] == [Delete, Delete]
        controller.holds_leaders = False
        assert [each async for each in stream] == []


async def test_a_process_beside_it_watches_the_same_assignments(controller: FakeController, make: Make) -> None:
    """`data.plane.listener` serves both as long as the broker runs; the stream ends in order when it leaves."""
    controller.write(*orders(4))
    log = Quiet(controller.pulse)
    async with make({"data_plane_listener": "127.0.0.1:0"}, log=log) as agent, Dialer() as dialer:
        (listening,) = log.said("listening to the data plane")
        stub: Any = data_plane_pb2_grpc.DataPlaneServiceStub(dialer(f"127.0.0.1:{listening['port']}"))  # type: ignore[no-untyped-call]
        watching = stub.WatchAssignments(data_plane_pb2.WatchAssignmentsRequest())
        whole, lead = await watching.read(), await watching.read()
        assert (whole.whole_set.replica_count, lead.assignment.role) == (1, data_plane_pb2.LEAD)
        await asyncio.wait_for(agent.online(), 10)
        lease = await stub.Lease(data_plane_pb2.LeaseRequest(), timeout=5)
        assert lease.may_serve and lease.remaining_ms > 0 and lease.broker_epoch == agent.broker_epoch
        agent.stop()
        moves = []
        while (news := await watching.read()) is not grpc.aio.EOF:
            moves.append(news.assignment.topic)
        assert watching.done() and set(moves) <= {"orders"}


async def test_a_hook_is_run_with_the_assignments(controller: FakeController, make: Make, tmp_path: Path) -> None:
    """`data.plane.hook`: a program that fails is a problem of the broker."""
    controller.write(*orders(4))
    program, seen = tmp_path / "hook", tmp_path / "seen"
    program.write_text(f"#!/bin/sh\ncat > {seen}\nexit 9\n")
    program.chmod(0o755)
    log = Quiet(controller.pulse)
    async with make({"data_plane_hook": program}, log=log) as agent:
        await controller.pulse.until(lambda: len(log.said("publisher failed")) == 1)
        assert [json.loads(line)["assignment"] for line in seen.read_text().splitlines()] == ["whole_set", "lead"]
        (problem,) = agent.problems
        assert problem.subject == "publisher assignment hook" and "hook ended with 9" in problem.text


async def test_an_isr_is_proposed_by_its_leader(controller: FakeController, make: Make) -> None:
    """Proposals that wait for an answer go together. Each refusal says what to do."""
    controller.write(*orders(4, 4, 4, 5))
    async with make() as agent:
        stream = agent.assignments()
        leads = [each for each in [await anext(stream) for _ in range(5)] if isinstance(each, Lead)]
        granted = await asyncio.gather(*(agent.propose_isr(each, [4]) for each in leads))
        assert [each.replica for each in granted] == [each.replica for each in leads]
        assert [(each.isr, each.leader) for each in granted] == [((4,), 4)] * 3
        assert [len(each.partitions) for each in controller.alterations] == [1, 2] or len(controller.alterations) == 1
        epoch = agent.image.brokers[5].broker_epoch
        await agent.propose_isr(leads[0], {4: agent.broker_epoch or 0, 5: epoch - 1})
        (member,) = [each for each in controller.alterations[-1].partitions[0].new_isr if each.broker_id == 5]
        assert member.broker_epoch == epoch - 1
        with pytest.raises(ProposalRefused, match=r"broker 77 is not registered. Nothing was changed") as refusal:
            await agent.propose_isr(leads[0], [4, 77])
        assert refusal.value.code is ErrorCode.INELIGIBLE_REPLICA
        controller.refuse_alterations_with = ErrorCode.NOT_CONTROLLER
        with pytest.raises(NotAnswered, match="the next assignment of the partition says"):
            await agent.propose_isr(leads[0], [4])


async def test_producer_ids_come_from_blocks_one_by_one(controller: FakeController, make: Make) -> None:
    """No id is given twice, whoever asks at the same time; a block is asked for when the last one is used up."""
    async with make() as agent:
        ids = await asyncio.gather(*(agent.producer_ids.next() for _ in range(5)))
        assert sorted(ids) == [0, 1, 2, 3, 4]
        assert len(controller.allocations) == 3
    with pytest.raises(NotAnswered, match=r"the broker is not registered.*ask again"):
        await agent.producer_ids.next()
        await agent.producer_ids.next()


async def test_subscribers_come_before_the_block_and_in_it(controller: FakeController, make: Make) -> None:
    """A late one gets the whole image first."""
    agent, seen, late = make(), list[int](), list[tuple[int, int]]()
    agent.subscribe("early", lambda update: seen.append(update.after.offset))
    with pytest.raises(ValueError, match="'early' is empty or the name of another publisher"):
        agent.subscribe("early", lambda update: None)
    async with agent:
        await asyncio.wait_for(agent.online(), 10)
        agent.subscribe("late", lambda update: late.append((update.before.offset, update.after.offset)))
        assert late == [(0, agent.image.offset)]
        await agent.applied(controller.write(Topic("a", b"a" * 16)) + 1)
        assert seen[-1] == late[-1][1] == agent.image.offset
        assert agent.problems == ()


async def test_log_directories_are_registered_and_may_fail(controller: FakeController, make: Make) -> None:
    controller.write(FeatureLevel("metadata.version", 2))
    async with make(log_dirs=(A, B)) as agent:
        await asyncio.wait_for(agent.online(), 10)
        assert controller.history.image.brokers[4].log_dirs == (A, B)
        agent.directory_failed(A)
        await controller.pulse.until(lambda: controller.history.image.brokers[4].log_dirs == (B,))
        assert agent.offline_directories == (A,)
        with pytest.raises(ValueError, match="without the log directory"):
            agent.assign_directories(LOGS, [TopicIdPartition(ORDERS, 0)])


async def test_an_error_in_the_block_leaves_in_order_and_without_the_proof(
    controller: FakeController, make: Make, tmp_path: Path
) -> None:
    """The data may be anything after an error: the next process counts as one that was killed."""

    async def flush() -> None:
        raise AssertionError("there is nothing to flush")

    with pytest.raises(ZeroDivisionError):
        async with make(flush_data=flush):
            raise ZeroDivisionError
    assert controller.fetches[-1].wants_shut_down
    assert not (tmp_path / "broker" / CLEAN_SHUTDOWN_NAME).exists()


async def test_data_that_cannot_be_flushed_leave_no_proof(
    controller: FakeController, make: Make, tmp_path: Path
) -> None:
    """The broker has left its partitions in order. The block raises the error of `flush_data`, and the next process counts as one
    that was killed."""

    async def flush() -> None:
        raise KeyError("a mistake in the store")

    with pytest.raises(KeyError, match="a mistake in the store"):
        async with make(flush_data=flush) as agent:
            await asyncio.wait_for(agent.online(), 10)
            agent.stop()
            async for _ in agent.assignments():
                pass
    assert controller.fetches[-1].wants_shut_down
    assert not (tmp_path / "broker" / CLEAN_SHUTDOWN_NAME).exists()


async def test_an_agent_that_ends_by_itself_ends_the_block(controller: FakeController, make: Make) -> None:
    """The body is cancelled wherever it waits: a broker without its agent must not serve."""
    agent = make(log_dirs=(A,))
    with pytest.raises(AgentEnded, match=r"the last log directory has failed. It serves no more; start the process"):
        async with agent:
            await asyncio.wait_for(agent.online(), 10)
            agent.directory_failed(A)
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


async def test_a_failed_disk_ends_the_block_with_what_to_do(
    controller: FakeController, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make()
    with pytest.raises(DiskFailed, match=r"Input/output error. The broker has ended. Check the disk"):
        async with agent:
            await asyncio.wait_for(agent.online(), 10)

            def fails(*_: object) -> None:
                raise OSError(errno.EIO, "Input/output error")

            monkeypatch.setattr("broker_agent.store.BrokerStore.apply", fails)
            controller.write(Topic("a", b"a" * 16))
            await asyncio.Event().wait()


async def test_a_broker_that_cannot_start_says_why(make: Make, tmp_path: Path) -> None:
    """Another process, a directory that is not formatted, and a configuration without a data plane."""
    async with make():
        with pytest.raises(CannotStart, match="end the other process"):
            async with make():
                pytest.fail("two processes share a directory")
    with pytest.raises(CannotStart, match="none is for a broker beside which no data plane runs"):
        async with make({"broker_data_plane": "none"}):
            pytest.fail("a data plane is here")
    (tmp_path / "broker" / "meta.properties").unlink()
    agent = Agent(configure(tmp_path / "other", 1))
    (tmp_path / "other" / "meta.properties").unlink()
    with pytest.raises(CannotStart, match="The broker was not started; correct this first"):
        async with agent:
            pytest.fail("the directory is not formatted")


@pytest.mark.slow
async def test_a_broker_that_nobody_registers_says_so(controller: FakeController, make: Make) -> None:
    """The block does not begin. The last answer is in the text."""
    controller.refuse_with = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    with pytest.raises(NotRegistered, match=r"DUPLICATE_BROKER_REGISTRATION.*The broker has not served"):
        async with make({"initial_broker_registration_timeout_ms": 300}):
            pytest.fail("the broker is registered")


async def test_a_cancelled_body_leaves_in_order(controller: FakeController, make: Make) -> None:
    """Ctrl-C is the usual way to end a program: the leaderships move away first."""
    begun = asyncio.Event()

    async def main() -> None:
        async with make():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(main())
    await asyncio.wait_for(begun.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert controller.fetches[-1].wants_shut_down


async def test_a_start_that_is_cancelled_leaves_nothing_behind(controller: FakeController, make: Make) -> None:
    """While no controller registers the broker: the directory is free again, and another agent starts."""
    controller.refuse_with = ErrorCode.DUPLICATE_BROKER_REGISTRATION

    async def main() -> None:
        async with make():
            pytest.fail("the broker is registered")

    task = asyncio.get_running_loop().create_task(main())
    await controller.pulse.until(lambda: len(controller.registrations) >= 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    controller.refuse_with = None
    async with make() as agent:
        assert agent.broker_epoch is not None


async def test_an_agent_that_cannot_leave_in_time_says_so_by_its_reason(controller: FakeController, make: Make) -> None:
    """The controllers keep the leaders: after the deadline the broker leaves all the same."""
    controller.holds_leaders = True
    agent = make({"controlled_shutdown_deadline_ms": 100})
    async with agent:
        await asyncio.wait_for(agent.online(), 10)
    assert "leaders did not move away within 100 ms" in agent.reason
