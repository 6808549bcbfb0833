"""The stage of the demo: the cluster, its client, actions on the cluster, and waits.

Each wait has a condition and a time limit. A wait that fails shows the last observed value.
"""

import asyncio
import signal
from pathlib import Path
from typing import Final

from evidence import STATE_NAMES, broker_states, metadata, said, until
from narrator import DoesNotHold, expect
from quorum_rpc.v1 import admin_pb2

from metaquorum import AdminError, NotReached, Unanswered
from quorum.cli.apply.changes import apply_plan
from quorum.cli.apply.plan import make_plan
from quorum.cli.apply.wanted_file import read_wanted
from quorum.devcluster.cluster import DevCluster, DevNode
from quorum.devcluster.process import exit_code, log_tail

CATALOGUE: Final = Path(__file__).resolve().parent / "sentry_topics.json"
PARTITIONS, REPLICATION_FACTOR = 12, 3
STANDSTILL_S: Final = 1.0
SESSION_S: Final = 9.0
"""A broker's session, as daemons have it by default."""


class Stage:
    """Real daemons, and one admin client."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster
        self.controllers = cluster.layout.controllers
        self.brokers = cluster.layout.brokers
        self.client = cluster.client(timeout_s=15)

    async def leader(self) -> DevNode:
        """The active controller."""
        target = await self.client.leader()
        return next(node for node in self.controllers if node.endpoint == target)

    def pids(self) -> str:
        pids = [self.cluster.pid(node.name) for node in self.cluster.nodes]
        return f"processes {', '.join(map(str, pids))}"

    async def ends(self, node: DevNode, number: signal.Signals) -> int | None:
        """Sends the signal, waits for the process to end, and returns the exit code."""
        pid = self.cluster.pid(node.name)
        self.cluster.kill(node.name, number)
        try:
            await self.cluster.wait_until_gone(node.name, 30)
        except TimeoutError:
            raise DoesNotHold(f"{node.name} to end within 30 s of {number.name}", log_tail(node)) from None
        return None if pid is None else exit_code(pid)

    async def in_state(self, broker: DevNode, state: str, within_s: float) -> None:
        states: dict[int, str] = {}

        async def probe() -> bool | None:
            states.update(await broker_states(self.client))
            return True if states.get(broker.node_id) == state else None

        await until(f"{broker.name} {state}", probe, within_s, lambda: states)

    async def registered_since(self, offset: int) -> None:
        """Waits until every broker is online with a registration above `offset`; a dead process stays online for its session."""
        seen: dict[int, tuple[int, str]] = {}

        async def probe() -> bool | None:
            async for each in self.client.brokers():
                seen[each.broker_id] = each.broker_epoch, STATE_NAMES.get(each.state, str(each.state))
            back = {i for i, (epoch, state) in seen.items() if epoch >= offset and state == "online"}
            return True if back >= {node.node_id for node in self.brokers} else None

        await until(f"every broker online by a registration above offset {offset}", probe, 30, lambda: seen)

    async def whole(self) -> None:
        """Waits until every replica is in sync. Without a data plane the leaders propose every online broker."""
        seen: list[int] = []

        async def probe() -> bool | None:
            seen[:] = [(await metadata(self.client)).short()]
            return None if seen[0] else True

        await until("no partition with a replica out of sync", probe, 30, lambda: f"{seen} partitions")

    async def elect_preferred(self) -> int:
        """Elects preferred leaders, as `quorumctl leaders elect` does. Returns the number of elections."""
        elected = 0
        async for topic in self.client.topics():
            response = await self.client.elect_leaders({topic.name: range(topic.partitions)})
            elected += sum(not each.error.code for each in response.results)
        return elected

    async def quiet(self) -> admin_pb2.DescribeQuorumResponse:
        """Waits until the log stands still: brokers have made the logs of new replicas, and named the directories of all."""
        ends: list[int] = []

        async def probe() -> admin_pb2.DescribeQuorumResponse | None:
            before = await self.client.describe_quorum((await self.leader()).endpoint)
            await asyncio.sleep(STANDSTILL_S)
            after = await self.client.describe_quorum((await self.leader()).endpoint)
            ends[:] = [before.log_end_offset, after.log_end_offset]
            return after if ends[0] == ends[1] else None

        return await until(f"a log that stands still for {STANDSTILL_S} s", probe, 60, lambda: ends)

    async def caught_up(self, node: DevNode, end: int) -> None:
        """Waits until `node` has applied the log up to `end`."""
        seen: list[int] = []

        async def probe() -> bool | None:
            seen[:] = [(await self.client.describe_quorum(node.endpoint)).applied_offset]
            return True if seen[0] >= end else None

        await until(f"{node.name} at offset {end} or above", probe, 30, lambda: f"applied {seen}")

    async def agreed(self) -> tuple[int, bytes]:
        """Waits until all controllers show the same digest at the same offset. Returns both."""
        seen: dict[str, tuple[int, bytes]] = {}

        async def probe() -> tuple[int, bytes] | None:
            for node in self.controllers:
                described = await self.client.describe_quorum(node.endpoint)
                seen[node.name] = described.applied_offset, described.digest
            return next(iter(seen.values())) if len(set(seen.values())) == 1 else None

        return await until("one digest on all controllers", probe, 30, lambda: seen)

    async def snapshot_of(self, node: DevNode, end: int) -> Path:
        """Waits for the snapshot file of `node` at `end`, and returns the path."""

        async def probe() -> Path | None:
            listed = await self.client.list_snapshots(node.endpoint)
            wanted = [each.snapshot for each in listed.snapshots if each.snapshot.end_offset == end]
            if not wanted:
                return None
            name = f"{wanted[0].end_offset:020d}-{wanted[0].epoch:010d}.checkpoint"
            return node.data_directory / "@metadata" / name

        return await until(f"{node.name} with a snapshot at {end}", probe, 20, lambda: log_tail(node))

    async def create(self, name: str) -> int:
        """Creates a topic during a change of leaders. Returns the offset."""
        while True:
            try:
                request = [admin_pb2.NewTopic(name=name, partitions=PARTITIONS, replication_factor=REPLICATION_FACTOR)]
                response = await self.client.create_topics(request)
            except (NotReached, Unanswered):
                found = [topic.name async for topic in self.client.topics() if topic.name == name]
                if found:
                    return 0
                continue
            (result,) = response.results
            if result.error.code:
                raise AdminError.of(result.error)
            return int(response.offset)

    def recovered_offsets(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in self.brokers:
            found[node.name] = [line["offset"] for line in said(node) if line["event"] == "store recovered"][-1]
        return found

    async def apply(self) -> str:
        """Applies the catalogue, as `quorumctl topics apply` does. Returns a summary."""
        plan = await make_plan(self.client, read_wanted(CATALOGUE, PARTITIONS, REPLICATION_FACTOR))
        outcome = await apply_plan(self.client, plan)
        expect(outcome.is_good, "an apply that makes all changes", list(outcome.failure_lines())[:3])
        counts = {"created": len(plan.create), "grown": len(plan.grow), "altered": len(plan.alter)}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing to do"
