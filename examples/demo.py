"""`make demo`: a whole cluster on this machine, from its first election to a clean audit by Spark.

    python examples/demo.py [REPORT] [--keep]

Real daemons over real gRPC on a real disk, in a temporary directory. Each step prints the event, the time and the proof. The
first step that fails ends the demo with exit code 1, prints the expected and the observed value, and keeps the directory. No
process outlives the demo, also after Ctrl-C.

The report of the audit and the history is written to REPORT, by default `demo-report.html` in the current directory.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from evidence import (
    Departure,
    Metadata,
    chain_at,
    departure,
    metadata,
    said,
    until,
)
from narrator import DoesNotHold, Narrator, Step, expect
from offline_act import OfflineAct
from records_act import RecordsAct
from spark import Spark
from stage import PARTITIONS, REPLICATION_FACTOR, SESSION_S, Stage

from metaquorum import AdminError
from quorum.devcluster.cluster import DevCluster, DevClusterError
from quorum.devcluster.process import exit_code, log_tail, send

INTERRUPTED: Final = 130
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Story:
    """The cluster, and the steps of the demo in order."""

    def __init__(self, cluster: DevCluster, report: Path, narrator: Narrator) -> None:
        self.stage = stage = Stage(cluster)
        self.cluster, self.client = stage.cluster, stage.client
        self.controllers, self.brokers = stage.controllers, stage.brokers
        self.root = cluster.layout.directory
        self.report = report
        self.tell = narrator
        self.records = RecordsAct(stage)
        self.spark = Spark(cluster.layout.directory / "spark.log")
        self.offline = OfflineAct(stage, self.spark, report)

    @property
    def steps(self) -> list[Callable[[Step], Coroutine[Any, Any, None]]]:
        """All steps; the docstring of a step is its title."""
        return [
            self.all_up,
            self.records.begin,
            self.catalogue_applied,
            self.broker_killed,
            self.controller_killed,
            self.broker_stopped,
            self.restarted,
            self.in_sync_again,
            self.records.through_kills,
            self.records.compared,
            self.offline.snapshot_everywhere,
            self.offline.compacted,
            self.offline.audited,
            self.offline.told,
            self.offline.damage_found,
            self.stopped_in_order,
        ]

    async def run(self) -> None:
        """Runs every step. The first step that fails raises DoesNotHold."""
        steps = self.steps
        self.tell.steps = len(steps)
        for each in steps:
            title = each.__doc__ or ""
            with self.tell.step(title.strip()) as step:
                await each(step)

    # --- the steps -------------------------------------------------------------------------------------------------

    async def all_up(self, step: Step) -> None:
        """3 controllers and 4 brokers are up"""
        step.waiting_for("a leader, and every broker online")
        await self.cluster.up(30)
        leader = await self.stage.leader()
        quorum = await self.client.describe_quorum(leader.endpoint)
        step.proof(
            f"{leader.name} leads epoch {quorum.epoch}; {len(self.brokers)} brokers are online; {self.stage.pids()}"
        )

    async def catalogue_applied(self, step: Step) -> None:
        """A real topic catalogue is applied"""
        first = await self.stage.apply()
        seen = await metadata(self.client)
        topics = len(seen.topic_ids)
        counts = {len(each.replicas) for each in seen.partitions.values()}
        expect(counts == {REPLICATION_FACTOR}, f"{REPLICATION_FACTOR} replicas everywhere", counts)
        expected = topics * PARTITIONS
        expect(len(seen.partitions) == expected, f"{expected} partitions", len(seen.partitions))
        expect(None not in seen.leaders(), "a leader for every partition", "some have none")
        again = await self.stage.apply()
        expect(again == "nothing to do", "nothing to do when it is applied again", again)
        step.proof(
            f"{first}: {topics} topics x {PARTITIONS} partitions x {REPLICATION_FACTOR} replicas, each with a leader, "
            f"as of offset {seen.as_of:,}; applied again: {again}"
        )

    async def broker_killed(self, step: Step) -> None:
        """A broker is killed (kill -9): fenced, and its partitions are led elsewhere"""
        before = await metadata(self.client)
        broker = self.brokers[0]
        led, in_sync = before.led_by(broker.node_id), before.in_sync_on(broker.node_id)
        expect(led > 0, f"{broker.name} to lead something", led)
        began = time.monotonic()
        self.cluster.kill(broker.name)
        step.waiting_for("its watcher to report the death")
        await self.stage.in_state(broker, "fenced", SESSION_S + 10)
        took_s = time.monotonic() - began
        after = await metadata(self.client)
        living = {node.node_id for node in self.brokers[1:]}
        expect(after.leaders() <= living, f"leaders among {sorted(living)}", after.leaders())
        still = after.led_by(broker.node_id), after.in_sync_on(broker.node_id)
        expect(still == (0, 0), f"{broker.name} to lead nothing and be in sync nowhere", still)
        _check_moves(before, after, broker.node_id)
        step.proof(
            f"{broker.name} led {led} partitions and was in sync on {in_sync}: now 0 and 0, {took_s:.1f} s after the kill; "
            f"all {len(after.partitions)} are led by the living, only its own changed leader, each with a higher leader epoch"
        )

    async def controller_killed(self, step: Step) -> None:
        """The active controller is killed (kill -9): the next one acknowledges a write"""
        old = await self.stage.leader()
        before = await self.client.describe_quorum(old.endpoint)
        began = time.monotonic()
        self.cluster.kill(old.name)
        offset = await self.stage.create("written-after-the-kill")
        took_s = time.monotonic() - began
        new = await self.stage.leader()
        after = await self.client.describe_quorum(new.endpoint)
        expect(new is not old and after.epoch > before.epoch, f"another leader, above epoch {before.epoch}", new.name)
        described = await self.client.describe_topic("written-after-the-kill")
        expect(described.partition_count == PARTITIONS, f"{PARTITIONS} partitions", described.partition_count)
        step.proof(
            f"{old.name} (epoch {before.epoch}) -> {new.name} (epoch {after.epoch}); "
            f"a topic was created at offset {offset:,}, acknowledged {took_s * 1_000:.0f} ms after the kill"
        )

    async def broker_stopped(self, step: Step) -> None:
        """A broker is stopped (SIGINT): Stopping -> Offline, its leaders moved first"""
        broker = self.brokers[1]
        before = await metadata(self.client)
        led = before.led_by(broker.node_id)
        expect(led > 0, f"{broker.name} to lead something", led)
        step.waiting_for("its leaders to move, and the process to leave")
        code = await self.stage.ends(broker, signal.SIGINT)
        expect(code == 0, f"{broker.name} to exit with 0", f"{code}: {log_tail(broker)}")
        states = [line["state"] for line in said(broker) if line["event"] == "broker state"]
        expect(states[-2:] == ["stopping", "offline"], "its log to end with stopping, offline", states)
        after = await metadata(self.client)
        expect(after.led_by(broker.node_id) == 0, f"{broker.name} to lead nothing", after.led_by(broker.node_id))
        expect(None not in after.leaders(), "a leader for every partition", "some have none")
        leader = await self.stage.leader()

        async def on_disk() -> Departure | None:
            found = departure(leader.data_directory, broker.node_id, before.as_of)
            return None if found.offline_at is None else found

        left = await until(f"{broker.name}'s end in the log of {leader.name}", on_disk, 5, lambda: log_tail(leader))
        moved = len(left.led_elsewhere)
        expect(moved >= led, f"{led} changes of leaders before the broker is offline at {left.offline_at}", moved)
        step.proof(f"{broker.name}'s log: {' -> '.join(states)}, exit code 0")
        step.proof(
            f"@metadata: {led} partitions led elsewhere at offsets {min(left.led_elsewhere):,} to "
            f"{max(left.led_elsewhere):,}, {len(left.others)} more in sync without it, the broker offline at {left.offline_at:,}"
        )

    async def restarted(self, step: Step) -> None:
        """Everything is killed and restarted from disk"""
        step.waiting_for("the log to stand still")
        before = await self.stage.quiet()
        before_metadata = await metadata(self.client)
        for node in self.cluster.running():
            await self.stage.ends(node, signal.SIGKILL)
        began = time.monotonic()
        for node in self.controllers:
            self.cluster.start(node.name)
        step.waiting_for("controllers to read their disks and agree")
        for node in self.controllers:
            await self.stage.caught_up(node, before.log_end_offset)
            chain = chain_at(node.data_directory, before.log_end_offset)
            expect(chain == before.chain, f"{node.name}'s chain at {before.log_end_offset} as before", chain)
        agreed_s = time.monotonic() - began
        step.waiting_for("brokers to come back")
        await self.cluster.up(30)
        await self.stage.registered_since(before.log_end_offset)
        recovered = self.stage.recovered_offsets()
        expect(min(recovered.values()) > 0, "every broker to start from its own copy", recovered)
        offset, digest = await self.stage.agreed()
        after = await metadata(self.client)
        expect(after.topic_ids == before_metadata.topic_ids, "the same topics", len(after.topic_ids))
        expect(
            after.partitions.keys() == before_metadata.partitions.keys(), "the same partitions", len(after.partitions)
        )
        step.proof(
            f"on all 3 controllers, {agreed_s:.1f} s after the start: chain {before.chain.hex()[:16]} at offset "
            f"{before.log_end_offset:,}, as before; then one digest, {digest.hex()[:16]} at {offset:,}"
        )
        step.proof(
            f"{len(recovered)} brokers online from their own copies (offsets {min(recovered.values()):,} to "
            f"{max(recovered.values()):,}); {len(after.topic_ids)} topics, {len(after.partitions)} partitions, same ids"
        )

    async def in_sync_again(self, step: Step) -> None:
        """Leaders take the returned brokers back into the ISRs, and preferred leaders are elected"""
        step.waiting_for("every replica to be in sync")
        await self.stage.whole()
        before = await metadata(self.client)
        elected = await self.stage.elect_preferred()
        after = await metadata(self.client)
        wrong = [key for key, each in after.partitions.items() if each.leader != each.replicas[0]]
        expect(not wrong, "every partition led by its preferred replica", wrong[:3])
        counts = [[seen.led_by(node.node_id) for node in self.brokers] for seen in (before, after)]
        step.proof(
            f"all {len(after.partitions)} ISRs are whole; {elected} leaderships went back to the preferred replicas"
        )
        names = ", ".join(node.name for node in self.brokers)
        step.proof(f"led by {names}: {counts[0]} before, {counts[1]} after")

    async def stopped_in_order(self, step: Step) -> None:
        """Everything is stopped in order, and nothing is left behind"""
        pids = {node.name: self.cluster.pid(node.name) for node in self.cluster.nodes}
        killed = await self.cluster.down()
        expect(not killed, "every daemon to leave within 20 s", [node.name for node in killed])
        codes = {name: exit_code(pid) if pid is not None else None for name, pid in pids.items()}
        expect(set(codes.values()) == {0}, "exit code 0 from every daemon", codes)
        expect(not self.cluster.running(), "no process left", self.cluster.running())
        await self.spark.stop()
        expect(not self.spark.members(), "no process of Spark left", self.spark.members())
        step.proof(f"brokers first, then controllers: {len(codes)} daemons exited with 0; Spark has ended too")


def _check_moves(before: Metadata, after: Metadata, dead: int) -> None:
    """Checks that only the partitions of `dead` have another leader, each with a higher leader epoch."""
    for key, was in before.partitions.items():
        now = after.partitions[key]
        if was.leader == dead:
            expect(now.leader_epoch > was.leader_epoch, f"{key} above leader epoch {was.leader_epoch}", now)
            expect(now.leader in was.isr, f"{key} led by one of its in-sync replicas {was.isr}", now)
        else:
            expect(now.leader == was.leader, f"{key} still led by {was.leader}", now)


async def tell(story: Story) -> int:
    """Runs the whole demo. Returns the exit code."""
    narrator = story.tell
    task = asyncio.current_task()
    assert task is not None
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    nodes = f"{len(story.controllers)} controllers and {len(story.brokers)} brokers"
    narrator.opening("metaquorum", [f"{nodes}, real processes on real disks, in {story.root}"])
    try:
        await story.run()
    except (DoesNotHold, DevClusterError, AdminError, OSError) as e:
        narrator.failed(e, str(story.root))
        return 1
    finally:
        await story.records.traffic.abandon()
        await story.client.close()
        await story.spark.abandon()
    narrator.closing([("report", str(story.report))])
    return 0


def leave_nothing_behind(story: Story) -> None:
    """Kills every process of the demo, also if Ctrl-C is pressed again and again."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    for node in story.cluster.running():
        send(node, signal.SIGKILL)
    story.spark.kill()
    while story.cluster.running() or story.spark.members():
        time.sleep(0.01)


async def begin(root: Path, report: Path, ended: list[Story]) -> int:
    """Makes the cluster and runs the demo."""
    settings = {"log.format": "json"}
    cluster = DevCluster.create(
        root,
        controllers=3,
        brokers=4,
        racks=2,
        data_plane="partitions",
        controller_settings=settings,
        broker_settings=settings,
    )
    story = Story(cluster, report, Narrator())
    ended.append(story)
    return await tell(story)


def main() -> int:
    """Returns exit code 0 if every step holds."""
    parser = argparse.ArgumentParser(prog="demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", nargs="?", type=Path, default=Path("demo-report.html"), help="where the report goes")
    parser.add_argument("--keep", action="store_true", help="keep the cluster's directory")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="metaquorum-demo-"))
    stories: list[Story] = []
    code = INTERRUPTED
    try:
        code = asyncio.run(begin(root, options.report.absolute(), stories))
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
    finally:
        for story in stories:
            leave_nothing_behind(story)
        if code in (0, INTERRUPTED) and not options.keep:
            shutil.rmtree(root)
    return code


if __name__ == "__main__":
    sys.exit(main())
