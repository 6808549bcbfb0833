"""The wait until the partitions are well again, after everything was healed."""

import asyncio
import time
from collections import Counter

from metaquorum import AdminClient, AdminError
from tests.chaos.cluster import ChaosCluster
from tests.chaos.data.clients import TOPIC, DataClients
from tests.chaos.judge.wellness import WELL_WITHIN_S, NotWell

UNBALANCED_SHARE = 0.1
"""Maximum share of partitions that others than their preferred replicas lead: `leader.imbalance.per.broker.percentage`."""


async def until_appended(cluster: ChaosCluster, clients: DataClients, partitions: int) -> None:
    """Until each partition has acknowledged a batch that was sent after this call.

    Raises:
        NotWell: with the partitions that have not; at once if a client got an answer that nobody should get.
    """
    began_ns, deadline_s = time.monotonic_ns(), time.monotonic() + WELL_WITHIN_S
    while (waiting := set(range(partitions)) - clients.acknowledged_since(began_ns)) and not cluster.findings:
        if clients.oddities:
            raise NotWell("the clients have stopped: an answer was one that nobody should get")
        if time.monotonic() > deadline_s:
            codes = clients.codes.most_common(5)
            raise NotWell(
                f"no append within {WELL_WITHIN_S:g} s to partitions {sorted(waiting)}; errors of all calls: {codes}"
            )
        await asyncio.sleep(0.1)


async def until_replicated(observer: AdminClient, copies: int) -> dict[int, int]:
    """Until every ISR has `copies` members, and preferred replicas lead. Returns how many partitions each broker leads.

    Raises:
        NotWell: with what was missing last.
    """
    deadline_s = time.monotonic() + WELL_WITHIN_S
    trouble = ""
    while time.monotonic() < deadline_s:
        try:
            described = await observer.describe_topics([TOPIC])
        except AdminError as e:
            trouble = str(e)
        else:
            partitions = described.topics[0].partitions
            thin = {each.partition: list(each.isr) for each in partitions if len(each.isr) < copies}
            moved = [each.partition for each in partitions if each.leader_id != each.replicas[0]]
            if not thin and len(moved) <= UNBALANCED_SHARE * len(partitions):
                return dict(Counter(each.leader_id for each in partitions))
            trouble = f"ISRs of partitions {thin}; not led by their preferred replica: {moved}"
        await asyncio.sleep(0.2)
    raise NotWell(f"not replicated within {WELL_WITHIN_S:g} s after everything was healed: {trouble}")
