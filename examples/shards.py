"""A tiny sharded store on the agent: each partition of a topic is a dictionary, and the leader of the partition answers for it.

    $ quorumctl topics create shards --partitions 8 --replication-factor 1
    $ python examples/shards.py broker-101.yaml
    serves at 127.0.0.1:40123
    $ echo "put shards 3 colour red" | nc 127.0.0.1 40123
    red

The store keeps one copy of each partition, in memory, and writes all of them to `shards.json` when it leaves in order.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path

from metaquorum import Agent, Delete, Endpoint, Follow, Lead, Stop, TopicIdPartition, WholeSet, load_broker_config

STORE = "STORE"  # the name of the store's listener


class Shards:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._data: dict[TopicIdPartition, dict[str, str]] = {}
        for topic, number, values in json.loads(path.read_text()) if path.exists() else []:
            self._data[TopicIdPartition(bytes.fromhex(topic), number)] = values
        self._leads: dict[tuple[str, int], TopicIdPartition] = {}

    async def obey(self, agent: Agent) -> None:
        """Does what the controllers say, until the broker has left."""
        async for assignment in agent.assignments():
            match assignment:
                case WholeSet(replicas=replicas):
                    self._data = {replica: values for replica, values in self._data.items() if replica in replicas}
                    self._leads.clear()
                case Lead(topic=topic, partition=number, replica=replica):
                    self._data.setdefault(replica, {})
                    self._leads[topic, number] = replica
                case Follow(topic=topic, partition=number) | Stop(topic=topic, partition=number):
                    self._leads.pop((topic, number), None)  # a store with copies would follow `assignment.leader` here
                case Delete(replica=replica):
                    self._data.pop(replica, None)
                    self._leads = {name: led for name, led in self._leads.items() if led != replica}

    def answer(self, agent: Agent, command: str, topic: str, number: int, key: str, *value: str) -> str:
        if (topic, number) not in self._leads or not agent.may_serve():
            leader = agent.metadata.leader_endpoint(topic, number, STORE).node
            return f"ask {leader.host}:{leader.port}" if leader else "ask again later"
        values = self._data[self._leads[topic, number]]
        values |= {key: " ".join(value)} if command == "put" else {}
        return values.get(key, "nothing there")

    async def flush(self) -> None:
        rows = [(topic.hex(), number, values) for (topic, number), values in self._data.items()]
        self._path.write_text(json.dumps(rows))


async def run(config_path: Path) -> None:
    config = load_broker_config(config_path)
    shards = Shards(config.metadata_log_dir / "shards.json")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        command, topic, number, *rest = (await reader.readline()).decode().split()
        writer.write(f"{shards.answer(agent, command, topic, int(number), *rest)}\n".encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, start_serving=False)
    host, port = server.sockets[0].getsockname()
    agent = Agent(config, endpoints=[Endpoint(STORE, host, port)], flush_data=shards.flush)
    async with agent, server:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, agent.stop)
        await server.start_serving()
        print(f"serves at {host}:{port}", flush=True)
        await shards.obey(agent)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__))
