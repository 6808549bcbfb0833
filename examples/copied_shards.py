"""A sharded store that keeps its own copies: the leader of a partition sends each write to the other replicas before it answers.

    $ quorumctl topics create shards --partitions 8 --replication-factor 2
    $ python examples/copied_shards.py broker-7.yaml
    serves at 127.0.0.1:40123
    $ echo '["set", "colour", "red"]' | nc 127.0.0.1 40123
    "red"

The copies are in memory, and on disk after an orderly end: a write is lost if all brokers of an ISR are killed at once.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from metaquorum import (
    Agent,
    AgentError,
    Delete,
    Endpoint,
    Follow,
    Lead,
    ProposalRefused,
    Stop,
    TopicIdPartition,
    WholeSet,
    load_broker_config,
)

TOPIC, STORE = "shards", "STORE"


class Store:
    agent: Agent

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data: dict[TopicIdPartition, dict[str, str]] = {}
        for topic_id, number, values in json.loads(path.read_text()) if path.exists() else []:
            self._data[TopicIdPartition(bytes.fromhex(topic_id), number)] = values
        self._roles: dict[TopicIdPartition, Lead | Follow | Stop] = {}
        self._seen: dict[TopicIdPartition, int] = {}  # the highest leader epoch, from an assignment or from a leader
        self._equal: dict[
            TopicIdPartition, dict[int, int]
        ] = {}  # brokers with all my data, and the epoch of their process
        self._proposed: dict[TopicIdPartition, set[int]] = {}  # members of a proposal whose outcome is not known
        self._locks: dict[TopicIdPartition, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def obey(self) -> None:
        async for assignment in self.agent.assignments():
            match assignment:
                case WholeSet(replicas=replicas):
                    self._data = {replica: values for replica, values in self._data.items() if replica in replicas}
                    self._roles.clear()
                case Delete(replica=replica):
                    self._data.pop(replica, None)
                    self._roles.pop(replica, None)
                case Lead() | Follow() | Stop():
                    self._take(assignment)

    def _take(self, role: Lead | Follow | Stop) -> None:
        replica, before = role.replica, self._roles.get(role.replica)
        self._data.setdefault(replica, {})
        self._locks.setdefault(replica, asyncio.Lock())
        self._roles[replica], self._proposed[replica] = role, set()
        self._seen[replica] = max(self._seen.get(replica, 0), role.leader_epoch)
        if before is None or before.leader_epoch != role.leader_epoch:
            self._equal[replica] = {}  # a new leader does not know what the others have
        if isinstance(role, Lead):
            task = asyncio.create_task(self._keep_equal(role))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _keep_equal(self, lead: Lead) -> None:
        """While `lead` is the newest assignment: copies to the others, and proposes those that are equal as the ISR."""
        replica, me = lead.replica, self.agent.broker_id
        while self._roles.get(replica) is lead:
            async with self._locks[replica]:
                equal = self._equal[replica]
                for broker in set(lead.replicas) - {me} - equal.keys():
                    await self._send(broker, replica, "copy", self._data[replica])
                if equal.keys() | {me} != set(lead.isr) and self._roles.get(replica) is lead:
                    self._proposed[replica] = set(equal)  # from now on each write needs them
                    try:
                        await self.agent.propose_isr(lead, {me: self.agent.broker_epoch or 0} | equal)
                    except ProposalRefused:
                        self._proposed[replica] = set()
                    except AgentError:
                        pass  # it may have been granted: the next assignment says
            await asyncio.sleep(0.2)

    def _leads(self, replica: TopicIdPartition) -> bool:
        """True if every broker that may be elected has all data of this partition."""
        role = self._roles.get(replica)
        if not isinstance(role, Lead) or not self.agent.may_serve():
            return False
        return {*role.isr, *self._proposed[replica]} - {self.agent.broker_id} <= self._equal[replica].keys()

    async def _send(self, broker: int, replica: TopicIdPartition, *what: Any) -> None:
        """Sends data to a follower. Only a follower that has taken them stays equal."""
        self._equal[replica].pop(broker, None)
        node = self.agent.metadata.node(broker, STORE)
        if node is not None:
            topic_id, number = replica
            epoch = self._roles[replica].leader_epoch
            answer = await ask(node.host, node.port, "take", topic_id.hex(), number, epoch, *what)
            if isinstance(answer, int):
                self._equal[replica][broker] = answer

    def take(self, topic_id: str, number: int, epoch: int, kind: str, *values: Any) -> int | None:
        """Takes data from the leader; returns the epoch of this process, or None for a stale leader."""
        replica = TopicIdPartition(bytes.fromhex(topic_id), number)
        role = self._roles.get(replica)
        if role is None or isinstance(role, Lead) or epoch < self._seen[replica]:
            return None
        self._seen[replica] = epoch
        self._data[replica] = values[0] if kind == "copy" else self._data[replica] | {values[0]: values[1]}
        return self.agent.broker_epoch

    async def answer(self, command: str, *words: Any) -> Any:
        if command == "take":
            return self.take(*words)
        number = sum(words[0].encode()) % (self.agent.metadata.partition_count(TOPIC) or 1)
        topic_id = self.agent.metadata.topic_id(TOPIC)
        replica = TopicIdPartition(topic_id or bytes(16), number)
        if command == "set" and self._leads(replica):
            async with self._locks[replica]:
                for broker in list(self._equal[replica]):
                    await self._send(broker, replica, "set", *words)
                if self._leads(replica):
                    self._data[replica][words[0]] = words[1]
        if not self._leads(replica):
            node = self.agent.metadata.leader_endpoint(TOPIC, number, STORE).node
            return {"ask": [node.host, node.port]} if node else {"ask": None}
        return self._data[replica].get(words[0])

    async def flush(self) -> None:
        rows = [[topic_id.hex(), number, values] for (topic_id, number), values in self._data.items()]
        self._path.write_text(json.dumps(rows))


async def ask(host: str, port: int, *words: Any) -> Any:
    """Sends one line to a store and returns its answer; None if there is none within a second."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(host, port, limit=1 << 26)
            writer.write(json.dumps(words).encode() + b"\n")
            answer = await reader.readline()
            writer.close()
            return json.loads(answer) if answer else None
    except (OSError, TimeoutError):
        return None


async def run(config_path: Path) -> None:
    config = load_broker_config(config_path)
    store = Store(config.metadata_log_dir / "shards.json")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = await store.answer(*json.loads(await reader.readline()))
        writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, start_serving=False, limit=1 << 26)
    host, port = server.sockets[0].getsockname()
    store.agent = Agent(config, endpoints=[Endpoint(STORE, host, port)], flush_data=store.flush)
    async with store.agent, server:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, store.agent.stop)
        await server.start_serving()
        print(f"serves at {host}:{port}", flush=True)
        await store.obey()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__))
