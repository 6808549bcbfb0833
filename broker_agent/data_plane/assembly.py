"""Puts the data plane of `brokerd` together: from the configuration and the agent to the service.

    log directories, agent, channels --> ReplicaManager, FetchClient, IsrSender --> DataPlane --> PartitionService

The data plane begins with the agent, and ends with it: at a controlled shutdown the agent calls `DataPlane.stop` when all
leaderships have moved away, and leaves the proof that the data are whole after that.
"""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from quorum_rpc.v1 import broker_pb2

from broker_agent.agent import AgentLoop
from broker_agent.client import CallFailed
from broker_agent.config import BrokerConfig
from broker_agent.data_plane.data_plane import DataPlane
from broker_agent.data_plane.fetch_client import ANSWER_BYTES_MAX, FetchClient
from broker_agent.data_plane.fetch_messages import FetchLimits
from broker_agent.data_plane.isr_sender import IsrSender
from broker_agent.data_plane.log_dirs import OpenLogDir
from broker_agent.data_plane.partition_service import PartitionService
from broker_agent.data_plane.producer_ids import ProducerIdBlock, ProducerIds
from broker_agent.metadata_loader import Log
from broker_agent.partitions.manager_config import ManagerConfig
from broker_agent.partitions.replica_manager import ReplicaManager
from broker_agent.publishing.assignment_feed import NAME, AssignmentFeed
from broker_agent.replica.fetchers import FetcherConfig
from broker_agent.session.isr_proposals import IsrProposal
from service_kit.process.clock import RealClock
from service_kit.rpc.dial import Dialer
from service_kit.rpc.doors import Doors
from service_kit.rpc.grpc_options import channel_options

REQUEST_TIMEOUT_MS: Final = 5_000
"""How long to wait for the controller's answer to one request."""


@asynccontextmanager
async def hosting_partitions(
    config: BrokerConfig,
    agent: AgentLoop,
    log_dirs: Sequence[OpenLogDir],
    doors: Doors,
    now_ms: Callable[[], int],
    log: Log,
) -> AsyncIterator[PartitionService]:
    """Hosts the partitions of the broker inside of the block. `agent` does not run yet; run it inside of the block."""
    agent.keep_replicas_in(tuple(each.directory_id for each in log_dirs))
    feed = AssignmentFeed(agent.broker_id, agent.is_current)
    directories = {each.directory_id: each.directory for each in log_dirs}
    manager = ReplicaManager(agent.broker_id, directories, manager_config(config), random.Random())
    async with Dialer(config.tls_files, channel_options(ANSWER_BYTES_MAX)) as dialer:
        listener = config.inter_broker_listener_name or config.listeners[0].name
        data_plane = DataPlane(
            agent,
            manager,
            FetchClient(agent.broker_id, dialer, doors.names, lambda: agent.image, listener),
            feed,
            FetchLimits(
                config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
                config.replica_fetch_response_max_bytes,
            ),
            lambda take: IsrSender(partial(_propose, agent), take, now_ms, log),
            threads_per_directory=config.num_recovery_threads_per_data_dir,
            now_ms=now_ms,
            wall_ms=RealClock().wall_ms,
            log=log,
        )
        try:
            agent.publishers.subscribe("data plane lease", data_plane.inputs.note)
            agent.publishers.subscribe("data plane", data_plane.inputs.take)
            agent.publishers.subscribe(NAME, feed.take)
            agent.accompany(data_plane.run)
            agent.flush_data = data_plane.stop
            agent.data_problems = data_plane.problems.all
            data_plane.start()
            producer_ids = ProducerIds(partial(_allocate, agent), lambda: agent.generation)
            yield PartitionService(agent, data_plane, producer_ids, doors)
        finally:
            data_plane.close()


def manager_config(config: BrokerConfig) -> ManagerConfig:
    """The configuration of the replicas."""
    return ManagerConfig(
        lag_time_max_ms=config.replica_lag_time_max_ms,
        fetchers=FetcherConfig(config.num_replica_fetchers, config.replica_fetch_backoff_ms),
        high_watermark_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
        retention_interval_ms=config.log_retention_check_interval_ms,
    )


async def _propose(agent: AgentLoop, proposals: tuple[IsrProposal, ...]) -> broker_pb2.AlterPartitionResponse:
    request = agent.identity.alter_partition_request(proposals, _epoch(agent))
    return await agent.client.alter_partition(request, REQUEST_TIMEOUT_MS)


async def _allocate(agent: AgentLoop) -> ProducerIdBlock:
    request: Any = agent.identity.producer_ids_request(_epoch(agent))
    response = await agent.client.allocate_producer_ids(request, REQUEST_TIMEOUT_MS)
    return ProducerIdBlock(response.first_producer_id, response.count, request.generation)


def _epoch(agent: AgentLoop) -> int:
    """The broker epoch. Raises CallFailed."""
    epoch = agent.broker_epoch
    if epoch is None:
        raise CallFailed(f"the broker is not registered: {agent.reason}. Nothing was sent")
    return epoch
