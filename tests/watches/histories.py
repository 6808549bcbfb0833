"""Random valid histories of a cluster, with topics that come, go and come again, entities, sessions, transactions and aborts."""

from random import Random

from metadata_log.format.records import (
    FROM_OFFSET,
    AbortTransaction,
    BeginTransaction,
    ClientSession,
    Config,
    EndClientSession,
    EndTransaction,
    Entity,
    FeatureLevel,
    LeaderChange,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveEntity,
    RemoveTopic,
    SnapshotMark,
    Topic,
)
from metadata_log.image.metadata_image import MetadataImage
from tests.watches.fake_log import FakeLog

KINDS = ("lock", "shard")
NAMES = ("a", "ab", "b", "ba")
TOPICS = ("bills", "orders", "users")


class Historian:
    """Appends random batches to a log. `image` is the state that the next record has to fit."""

    def __init__(self, log: FakeLog, dice: Random) -> None:
        self.log = log
        self._dice = dice
        self._ids = 0
        log.append(FeatureLevel("metadata.version", 3))
        log.append(*(self._broker(broker_id) for broker_id in (1, 2, 3)))

    def step(self) -> None:
        """Appends one batch, or the next batch of a transaction."""
        log, dice = self.log, self._dice
        choice = dice.random()
        if choice < 0.08:
            log.append(SnapshotMark("test") if dice.random() < 0.5 else LeaderChange(1, (1,), (1,)))
        elif log.replay.open is None and choice < 0.25:
            log.append(BeginTransaction("t"), *self._change(log.image))
        elif log.replay.open is not None and choice < 0.45:
            is_aborted = dice.random() < 0.4
            if is_aborted:
                log.append(AbortTransaction("test"))
            else:
                log.append(*self._change(self._image), EndTransaction())
        else:
            log.append(*self._change(self._image))

    def finish(self) -> None:
        """Ends an open transaction."""
        if self.log.replay.open is not None:
            self.log.append(EndTransaction())

    @property
    def _image(self) -> MetadataImage:
        opened = self.log.replay.open
        return self.log.image if opened is None else opened.image

    def _change(self, image: MetadataImage) -> list[Record]:
        dice = self._dice
        return dice.choice((self._entity, self._entity, self._topic, self._partition, self._session, self._settings))(
            image
        )

    def _entity(self, image: MetadataImage) -> list[Record]:
        dice = self._dice
        kind, name = dice.choice(KINDS), dice.choice(NAMES)
        present = image.entities.get((kind, name))
        if present is not None and dice.random() < 0.4:
            return [RemoveEntity(kind, name)]
        created = FROM_OFFSET if present is None else present.created
        return [Entity(kind, name, dice.randbytes(dice.randrange(40)), None, created)]

    def _topic(self, image: MetadataImage) -> list[Record]:
        name = self._dice.choice(TOPICS)
        topic = image.topic(name)
        if topic is not None:
            return [RemoveTopic(name, topic.topic_id)]
        topic_id = self._id()
        partitions = [
            Partition(topic_id, number, (1, 2, 3), (1, 2, 3), (), (), 1, 0, image.first_epoch, image.first_epoch)
            for number in range(self._dice.randint(1, 3))
        ]
        return [Topic(name, topic_id), *partitions]

    def _partition(self, image: MetadataImage) -> list[Record]:
        topics = [*image.topics()]
        if not topics:
            return self._topic(image)
        topic = self._dice.choice(topics)
        return [
            PartitionChange(
                topic.topic_id, self._dice.randrange(topic.partition_count), leader=self._dice.choice((1, 2, 3))
            )
        ]

    def _session(self, image: MetadataImage) -> list[Record]:
        sessions = [*image.client_sessions.values()]
        if len(sessions) > 2:
            ended = self._dice.choice(sessions)
            return [EndClientSession(ended.session_id, ended.epoch, "closed")]
        return [ClientSession(self._id(), "worker", "CN=a", 9_000)]

    def _settings(self, image: MetadataImage) -> list[Record]:
        topics = [*image.topics()]
        if topics and self._dice.random() < 0.5:
            return [Config(2, self._dice.choice(topics).name, "retention.ms", str(self._dice.randrange(1_000)))]
        return [self._broker(self._dice.choice((1, 2, 3)))]

    def _broker(self, broker_id: int) -> RegisterBroker:
        return RegisterBroker(broker_id, self._id(), (), (), None, True, False, (self._id(),))

    def _id(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")
