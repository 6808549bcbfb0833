"""A month in the life of a small cluster, written as a log: the example behind docs/history.md.

    python examples/history_story.py /tmp/story                      writes /tmp/story/@metadata
    quorum-offline history /tmp/story --out /tmp/history             turns the log into tables

Three brokers hold the topics `orders` (replicated three times) and `payments` (not replicated). Broker 102 is silent for half an
hour, broker 101 is restarted in order, broker 103 dies, and people change configs. Each run writes the same log, byte for byte:
that of broker 101, which is given committed records only.
The records are those that controllers write in such a month; replay checks that each fits.
"""

import argparse
import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.ids import NO_LEADER, NodeId, Uuid
from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    TOPIC_RESOURCE,
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChange,
    Config,
    Endpoint,
    Entity,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveTopic,
    RequestOutcome,
    Topic,
    Voter,
    Voters,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance, evolved
from metadata_log.store.log import Log
from snapshots.format import genesis
from snapshots.store import SnapshotStore

CLUSTER_ID: Final = "bmV2ZXIgZ29ubmEgZ2l2ZQ"
CONTROLLERS: Final = (1, 2, 3)
BROKERS: Final = (101, 102, 103)
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
DAY_MS: Final = 86_400_000


def voters() -> Voters:
    return Voters(
        tuple(
            Voter(each, bytes([each]) * 16, (Endpoint("CONTROLLER", f"controller-{each}", 9090),))
            for each in CONTROLLERS
        )
    )


def uuid(number: int) -> Uuid:
    return number.to_bytes(16, "big")


class Story:
    """Writes batches, and keeps the image that they make."""

    def __init__(self, path: Path) -> None:
        directory = RealDirectory(path)
        write_identity(directory, Identity(CLUSTER_ID, 101, b"\x01" * 16, 1, "broker"))
        metadata = directory.subdirectory("@metadata")
        SnapshotStore(metadata).write_bootstrap(voters())
        self.log = Log.open(metadata, chain=genesis(CLUSTER_ID, voters()))
        self.image: MetadataImage = EMPTY_IMAGE
        self.epoch = 0
        self.now_ms = 0
        self._requests = 0

    def at(self, time: str) -> None:
        """Move to a time in November 2026, such as `09 03:12:00`, in UTC."""
        moment = dt.datetime.strptime(f"2026-11-{time}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=dt.UTC)
        self.now_ms = int(moment.timestamp() * 1_000)

    def write(self, *records: MetadataRecord, by: str | None = None) -> None:
        """Append one batch. `by`: the principal of the request that the batch carries out."""
        batch = [*records, *([] if by is None else [self._outcome(by)])]
        delta, base = MetadataDelta(self.image), self.log.shape.end
        for offset, record in enumerate(batch, base):
            delta.replay(record, offset)
        self._append(*batch)
        self.image = delta.finish(Provenance(self.log.shape.end, self.epoch, self.now_ms))

    def write_control(self, *records: Record) -> None:
        """Append a batch without effect on the image: for the quorum, or of a transaction that is aborted."""
        self._append(*records)
        self.image = evolved(self.image, {"provenance": Provenance(self.log.shape.end, self.epoch, self.now_ms)})

    def _append(self, *records: Record) -> None:
        self.log.append(records, self.epoch, self.now_ms)

    def _outcome(self, principal: str) -> RequestOutcome:
        self._requests += 1
        return RequestOutcome(self._requests, uuid(0xABC000 + self._requests), bytes(32), principal, 0, b"")

    # --- the quorum and the brokers ---

    def elect(self, leader: NodeId, granting: tuple[NodeId, ...]) -> None:
        self.epoch += 1
        self.write_control(LeaderChange(leader, CONTROLLERS, granting))

    def register(self, broker_id: NodeId, incarnation: int) -> None:
        """A process registers, and applies its registration twenty seconds later."""
        endpoints = (Endpoint("PLAINTEXT", f"broker-{broker_id}", 9092),)
        incarnation_id, directory = uuid(broker_id * 1_000 + incarnation), uuid(broker_id)
        self.write(
            RegisterBroker(
                broker_id, incarnation_id, endpoints, (), None, fenced=True, in_controlled_shutdown=False,
                log_dirs=(directory,), reason="registered", since_ms=self.now_ms,
            )
        )  # fmt: skip
        self.now_ms += 20_000
        self.write(self._changed(broker_id, fenced=False, reason="caught_up"), *self._elections_of(broker_id))

    def fence(self, broker_id: NodeId, reason: str, *, dead: bool = False) -> None:
        """The controller takes the broker out of ISRs and leaderships, and fences it: one batch for so few partitions."""
        self.write(*self._departures(broker_id), self._changed(broker_id, fenced=True, reason=reason, dead=dead))

    def shut_down(self, broker_id: NodeId) -> None:
        """The broker asks to stop, its leaderships move, and it is fenced ten seconds later."""
        self.write(
            self._changed(broker_id, in_controlled_shutdown=True, reason="stopping"), *self._departures(broker_id)
        )
        self.now_ms += 10_000
        self.fence(broker_id, "shut_down")

    def rejoin(self, broker_id: NodeId) -> None:
        """The replicas of the broker have caught up, and the leaders take them into the ISRs."""
        changes = []
        for topic_id, each in self._partitions():
            if broker_id in each.replicas and broker_id not in each.isr and each.leader != NO_LEADER:
                isr = tuple(sorted((*each.isr, broker_id), key=each.replicas.index))
                changes.append(PartitionChange(topic_id, each.partition, isr=isr))
        self.write(*changes)

    def balance(self) -> None:
        """The controller gives leaderships back to preferred replicas."""
        changes = [
            PartitionChange(topic_id, each.partition, leader=each.replicas[0])
            for topic_id, each in self._partitions()
            if each.leader != each.replicas[0] and each.replicas[0] in each.isr
        ]
        self.write(*changes)

    def _changed(
        self, broker_id: NodeId, *, fenced: bool | None = None, in_controlled_shutdown: bool | None = None,
        reason: str, dead: bool = False,
    ) -> BrokerRegistrationChange:  # fmt: skip
        epoch = self.image.brokers[broker_id].broker_epoch
        return BrokerRegistrationChange(
            broker_id, epoch, fenced, in_controlled_shutdown, None, reason, self.now_ms, dead
        )

    def _partitions(self) -> list[tuple[Uuid, Partition]]:
        return [(topic.topic_id, each) for topic in self.image.topics() for each in topic.partitions()]

    def _departures(self, broker_id: NodeId) -> list[MetadataRecord]:
        """The last member of an ISR stays in it, without a leader."""
        found: list[MetadataRecord] = []
        for topic_id, each in self._partitions():
            if broker_id not in each.isr:
                continue
            isr = tuple(member for member in each.isr if member != broker_id) or each.isr
            active = [member for member in isr if member != broker_id and not self.image.brokers[member].fenced]
            leader = None if each.leader != broker_id else active[0] if active else NO_LEADER
            if leader is not None or isr != each.isr:
                found.append(PartitionChange(topic_id, each.partition, None if isr == each.isr else isr, leader))
        return found

    def _elections_of(self, broker_id: NodeId) -> list[MetadataRecord]:
        """Partitions without a leader elect the broker that has returned, if the ISR has it."""
        return [
            PartitionChange(topic_id, each.partition, leader=broker_id)
            for topic_id, each in self._partitions()
            if each.leader == NO_LEADER and broker_id in each.isr
        ]

    # --- requests of people ---

    def create_topic(
        self, name: str, replicas: Sequence[tuple[NodeId, ...]], number: int, by: str, **configs: str
    ) -> None:
        topic_id = uuid(number)
        partitions = [Partition(topic_id, at, each, each, (), (), each[0], 0, 0, 0) for at, each in enumerate(replicas)]
        keys = [Config(TOPIC_RESOURCE, name, key.replace("_", "."), value) for key, value in configs.items()]
        self.write(Topic(name, topic_id), *partitions, *keys, by=by)


def write_story(path: Path) -> None:
    """Write the log into `path`, a new directory."""
    story = Story(path)
    _first_days(story)
    _second_week(story)
    _third_week(story)
    _last_days(story)
    story.log.flush()
    story.log.close()


def _first_days(story: Story) -> None:
    story.at("02 08:00:00")
    story.elect(1, (1, 2))
    story.write(FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX))
    story.at("02 08:01:00")
    for broker_id in BROKERS:
        story.register(broker_id, 1)
    story.at("02 09:00:00")
    rotated = [(101, 102, 103), (102, 103, 101), (103, 101, 102)]
    story.create_topic("orders", rotated, 1, ALICE, retention_ms="86400000")
    story.at("02 09:10:00")
    story.create_topic("payments", [(102,)], 2, BOB)


def _second_week(story: Story) -> None:
    """Broker 102 is silent on the 9th: `payments` has no other replica."""
    story.at("09 03:12:00")
    story.fence(102, "session_ended")
    story.at("09 03:40:00")
    story.register(102, 2)
    story.at("09 03:41:00")
    story.rejoin(102)
    story.at("09 03:45:00")
    story.balance()
    story.at("12 14:00:00")
    story.write(Config(TOPIC_RESOURCE, "orders", "retention.ms", "604800000"), by=ALICE)
    story.at("13 09:30:00")
    story.write(Config(TOPIC_RESOURCE, "orders", "retention.ms", "259200000"), by=BOB)


def _third_week(story: Story) -> None:
    """A restart in order on the 16th, a new controller on the 17th, and a dead broker on the 20th."""
    story.at("16 10:00:00")
    story.shut_down(101)
    story.at("16 10:02:00")
    story.register(101, 2)
    story.at("16 10:03:00")
    story.rejoin(101)
    story.at("16 10:05:00")
    story.balance()
    story.at("17 18:30:00")
    story.write(Config(BROKER_RESOURCE, "102", "background.threads", "12"), by=CAROL)
    story.at("17 18:30:07")
    story.elect(2, (2, 3))
    story.at("18 11:00:00")
    story.write(Config(TOPIC_RESOURCE, "orders", "min.insync.replicas", "2"), by=CAROL)
    story.at("20 12:00:00")
    story.fence(103, "process_dead", dead=True)
    story.at("20 12:30:00")
    story.fence(102, "session_ended")
    story.at("20 12:50:00")
    story.register(102, 3)
    story.at("20 12:51:00")
    story.rejoin(102)
    story.at("20 14:00:00")
    story.register(103, 2)
    story.at("20 14:02:00")
    story.rejoin(103)
    story.at("20 14:05:00")
    story.balance()


def _last_days(story: Story) -> None:
    story.at("24 16:00:00")
    story.write_control(BeginTransaction("CreateTopics"), Topic("mistake", uuid(9)))
    story.write_control(AbortTransaction("the request was withdrawn"))
    story.at("24 16:05:00")
    story.create_topic("audit", [(each, 101 if each != 101 else 102) for each in (101, 102, 103)] * 2, 3, ALICE)
    story.at("25 08:00:00")
    story.write(Entity("shard", "7", b"broker 101", None), by=CAROL)
    story.at("25 08:30:00")
    story.write(RemoveTopic("payments", uuid(2)), by=BOB)
    story.at("28 07:15:00")
    story.elect(3, (2, 3))
    story.at("30 08:00:00")
    story.write(Config(TOPIC_RESOURCE, "audit", "retention.ms", "31536000000"), by=ALICE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a month in the life of a small cluster as a metadata log.")
    parser.add_argument("directory", type=Path, help="a new directory, which becomes that of broker 101")
    path: Path = parser.parse_args().directory
    if path.exists() and any(path.iterdir()):
        sys.exit(f"{path} is not empty; nothing was written. Name a new directory")
    write_story(path)
    print(f"wrote the log of a month to {path}/@metadata")


if __name__ == "__main__":
    main()
