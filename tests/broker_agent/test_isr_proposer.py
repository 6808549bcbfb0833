"""The agent that proposes ISRs: it asks for a broker that may serve its clients, and for no other."""

import asyncio

from broker_agent.isr_proposer import ProposalsAnswered, lead
from broker_agent.session.isr_proposals import IsrProposal, IsrProposals, ProposalResult
from metadata_log.format.errors import ErrorCode
from metadata_log.image.metadata_image import MetadataImage
from service_kit.process.logs import get_logger
from tests.broker_agent.test_isr_proposals import cluster as cluster  # the fixture
from tests.quorum.controller.cluster import Cluster


class Broker:
    """Broker 1 of the cluster, whose lease is in the test's hands. `looked` is set when it has nothing to ask for now."""

    def __init__(self, cluster: Cluster) -> None:
        self.image: MetadataImage = cluster.image
        self.broker_epoch: int | None = cluster.image.brokers[1].broker_epoch
        self.serves = False
        self.looked, self.news = asyncio.Event(), asyncio.Event()

    def may_serve(self) -> bool:
        return self.serves

    async def changed(self) -> None:
        self.looked.set()
        await self.news.wait()
        self.news.clear()


async def test_who_may_not_serve_its_clients_proposes_nothing(cluster: Cluster) -> None:
    """Fenced, or its lease has lapsed: somebody else may lead by now, and what it would ask for is old. Once it may, it asks."""
    broker, asked = Broker(cluster), list[tuple[int, ...]]()

    async def ask(proposals: tuple[IsrProposal, ...], broker_epoch: int, timeout_ms: int) -> ProposalsAnswered:
        asked.append(tuple(each.partition for each in proposals))
        results = tuple(ProposalResult(each.topic_id, each.partition, ErrorCode.NONE, "") for each in proposals)
        return ProposalsAnswered(broker.image.offset, results)

    leading = asyncio.ensure_future(lead(broker, IsrProposals(1), ask, now_ms=lambda: 0, log=get_logger("test")))
    async with asyncio.timeout(5):
        await broker.looked.wait()
        assert asked == []

        broker.serves = True
        broker.looked.clear()
        broker.news.set()
        await broker.looked.wait()
    assert asked == [(0, 1)]
    leading.cancel()
