"""Prints the leader of every partition of a topic, and each change: `python examples/watch_leaders.py 127.0.0.1:27560 orders`.

The address is that of any broker (`quorumctl brokers list` shows them). Several addresses are separated by commas.
"""

import asyncio
import sys

from metaquorum import Cluster, MetadataClient, MetadataError


def leaders(cluster: Cluster, topic: str) -> dict[int, str]:
    views = cluster.partitions_by_topic.get(topic, ())
    nodes = {view.partition: cluster.leader_of(view.key) for view in views}
    return {each: f"{node.host}:{node.port}" if node else "nobody" for each, node in nodes.items()}


async def main(bootstrap: str, topic: str) -> None:
    views: asyncio.Queue[Cluster] = asyncio.Queue()
    async with MetadataClient(bootstrap) as client:
        client.subscribe(views.put_nowait)
        try:
            cluster = (await client.wait_for(topic, max_wait_s=10)).cluster
        except MetadataError as e:
            sys.exit(e.message)
        printed: dict[int, str] = {}
        while True:
            for partition, leader in leaders(cluster, topic).items():
                if printed.get(partition) != leader:
                    print(f"{topic}-{partition}: {leader}", flush=True)
                    printed[partition] = leader
            client.request_update()  # a producer does so only after an error: here it makes every change visible soon
            cluster = await views.get()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__))
