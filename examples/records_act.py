"""The act of the records: a topic with real data, a producer and a consumer, and kills meanwhile.

The traffic begins with the second step of the demo, and goes on through all kills and restarts until `compared`.
"""

import signal
from typing import Final

from evidence import metadata
from narrator import Step, expect
from stage import PARTITIONS, REPLICATION_FACTOR, SESSION_S, Stage
from traffic import TOPIC, Traffic

MIN_INSYNC: Final = 2


class RecordsAct:
    """The steps with records, and their traffic."""

    def __init__(self, stage: Stage) -> None:
        self.traffic = Traffic(node.endpoint for node in stage.brokers)
        self._stage = stage
        self._client = stage.client

    async def begin(self, step: Step) -> None:
        """A producer and a consumer begin, and go on while daemons are killed"""
        await self._client.create_topic(
            TOPIC, PARTITIONS, REPLICATION_FACTOR, configs={"min.insync.replicas": str(MIN_INSYNC)}
        )
        self.traffic.start()
        step.waiting_for("the first records to be written to three disks, and read")
        await self.traffic.goes_on(50)
        step.proof(
            f"{TOPIC}: {PARTITIONS} partitions x {REPLICATION_FACTOR} replicas, acks=all, min.insync.replicas {MIN_INSYNC}; "
            f"{self.traffic.totals.acknowledged} records are acknowledged so far, {self.traffic.totals.read} read"
        )

    async def through_kills(self, step: Step) -> None:
        """Every broker and every controller is killed (kill -9) and restarted in turn, while records flow"""
        before = self.traffic.totals
        for broker in self._stage.brokers:
            step.waiting_for(f"{broker.name} to be fenced, and to be in sync again")
            self._stage.cluster.kill(broker.name)
            await self._stage.in_state(broker, "fenced", SESSION_S + 10)
            await self.traffic.goes_on(10)
            self._stage.cluster.start(broker.name)
            await self._stage.in_state(broker, "online", 30)
            await self._stage.whole()
        for controller in self._stage.controllers:
            step.waiting_for(f"{controller.name} to be back")
            end = (await self._client.describe_quorum((await self._stage.leader()).endpoint)).high_watermark
            await self._stage.ends(controller, signal.SIGKILL)
            await self.traffic.goes_on(10)
            self._stage.cluster.start(controller.name)
            await self._stage.caught_up(controller, end)
        after = self.traffic.totals
        step.proof(
            f"{len(self._stage.brokers)} brokers and {len(self._stage.controllers)} controllers, each once; meanwhile "
            f"{after.acknowledged - before.acknowledged} records were acknowledged and {after.read - before.read} read"
        )

    async def compared(self, step: Step) -> None:
        """Every acknowledged record was read once, in order; ISRs are whole, leaderships balanced"""
        step.waiting_for("the consumer to read everything")
        totals = await self.traffic.stop()
        self.traffic.compare()
        await self._stage.whole()
        await self._stage.elect_preferred()
        seen = await metadata(self._client)
        led = [seen.led_by(node.node_id) for node in self._stage.brokers]
        expect(max(led) - min(led) <= len(seen.partitions) // 10, "leaderships balanced within 10 %", led)
        step.proof(
            f"{totals.acknowledged} records acknowledged, {totals.read} read: each acknowledged record at its offset, no "
            f"offset twice or missing, no record twice; {totals.unknown} sent without an answer"
        )
        step.proof(f"all {len(seen.partitions)} ISRs are whole; led by the brokers: {led}")
