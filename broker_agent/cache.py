"""The metadata cache: what this broker answers clients from, and what its own components look things up in.

One immutable view, swapped in one assignment. Readers take no lock: they read `cache.current` *once* and ask that view
everything, so that an answer never mixes two versions.

A view wraps an image and copies nothing, so making one from the next image costs the same however large the cluster is;
what must be gathered over all brokers is gathered when somebody first asks.

*Alive* means registered and not fenced. A fenced broker is left out of everything that clients are told: it has no node,
and its replicas are offline. A broker in controlled shutdown is still alive: it answers until its leaders have moved.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, ZERO_UUID, Epoch, NodeId, Offset, Uuid
from metadata_log.format.partition_state import PartitionState
from metadata_log.format.records import RegisterBroker
from metadata_log.image.changes import Changes
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from metadata_log.image.topic_image import TopicImage

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that the system keeps for itself; clients are told so."""


class Node(NamedTuple):
    """A live broker as clients of one listener reach it."""

    broker_id: NodeId
    host: str
    port: int
    rack: str | None


class PartitionInfo(NamedTuple):
    """One partition as a client of one listener is told. `leader_id` is None where nobody leads.

    `error` is NONE; LEADER_NOT_AVAILABLE if nobody leads or the leader is fenced or gone; LISTENER_NOT_FOUND if the leader
    lives but does not have the listener that was asked for.
    """

    partition: int
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: Epoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...]


class TopicHead(NamedTuple):
    """One topic without its partitions."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partition_count: int


class DeletedPartition(NamedTuple):
    """A partition that the swap took away, with the id of the topic that it was of."""

    topic: str
    topic_id: Uuid
    partition: int


class MetadataView:
    """The cluster's metadata at one offset, for reading. Immutable."""

    __slots__ = ("_alive", "image")

    def __init__(self, image: MetadataImage, alive: dict[NodeId, RegisterBroker] | None = None) -> None:
        self.image = image
        self._alive = alive

    @property
    def offset(self) -> Offset:
        """The view is the state after [0, offset)."""
        return self.image.offset

    # --- topics and partitions ---------------------------------------------------------------------------------------

    def contains(self, topic: str, partition: int | None = None) -> bool:
        """Whether the topic exists, and the partition if one is given."""
        found = self.image.topic(topic)
        return found is not None and (partition is None or 0 <= partition < found.partition_count)

    def all_topics(self) -> Iterator[str]:
        """Every topic's name, in order."""
        return iter(self.image.topic_ids.sorted_keys())

    def topic_id(self, topic: str) -> Uuid | None:
        """The id of the live topic of this name."""
        found: Uuid | None = self.image.topic_ids.get(topic)
        return found

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of the live topic with this id."""
        found = self.image.topic_by_id(topic_id)
        return None if found is None else found.name

    def partition_count(self, topic: str) -> int | None:
        """How many partitions the topic has; None where there is no such topic."""
        found = self.image.topic(topic)
        return None if found is None else found.partition_count

    def partition_info(self, topic: str, partition: int, listener: str) -> PartitionInfo | None:
        """The partition as clients of `listener` see it; None where there is none."""
        found = self.image.topic(topic)
        state = None if found is None else found.state(partition)
        return None if state is None else self._info(partition, state, listener)

    def topic_head(self, topic: str) -> TopicHead | None:
        """What the topic is, at a cost that does not grow with its partitions; None where there is none."""
        found = self.image.topic(topic)
        if found is None:
            return None
        return TopicHead(found.name, found.topic_id, found.name in INTERNAL_TOPICS, found.partition_count)

    def partition_infos(self, topic: str, first: int, listener: str) -> Iterator[PartitionInfo]:
        """The topic's partitions from `first` on, one at a time, as clients of `listener` see them."""
        found = self.image.topic(topic)
        if found is None:
            return
        for number in range(first, found.partition_count):
            state = found.state(number)
            assert state is not None
            yield self._info(number, state, listener)

    def _info(self, partition: int, state: PartitionState, listener: str) -> PartitionInfo:
        replicas, isr, _, _, leader, _, leader_epoch, _, directories, _, _ = state
        error = self._leader_error(leader, listener)
        leader_id = None if leader == NO_LEADER else leader
        offline = self._offline(replicas, directories)
        return PartitionInfo(partition, error, leader_id, leader_epoch, replicas, isr, offline)

    def _leader_error(self, leader: NodeId, listener: str) -> ErrorCode:
        registration = self.alive_brokers().get(leader)
        if registration is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if _node(registration, listener) is None:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.NONE

    def _offline(self, replicas: tuple[NodeId, ...], directories: tuple[Uuid, ...]) -> tuple[NodeId, ...]:
        """The replicas whose broker is not alive, or no longer has the directory that the replica lies in."""
        alive = self.alive_brokers()
        if not directories:
            return tuple([replica for replica in replicas if replica not in alive])
        offline = []
        for replica, directory in zip(replicas, directories, strict=True):
            registration = alive.get(replica)
            if registration is None or (directory != ZERO_UUID and directory not in registration.log_dirs):
                offline.append(replica)
        return tuple(offline)

    def offline_replicas(self, topic: str, partition: int) -> tuple[NodeId, ...]:
        """The replicas that cannot be read now; empty where there is no such partition."""
        found = self.image.topic(topic)
        state = None if found is None else found.state(partition)
        return () if state is None else self._offline(state[0], state[8])

    # --- brokers -----------------------------------------------------------------------------------------------------

    def alive_brokers(self) -> dict[NodeId, RegisterBroker]:
        """The brokers that are not fenced, by id ascending. Not to be written to.

        Gathered once a view at most. Two readers that gather it at once arrive at equal dictionaries: no lock is needed.
        """
        alive = self._alive
        if alive is None:
            alive = {broker_id: known for broker_id, known in self.image.brokers.items() if not known.fenced}
            self._alive = alive
        return alive

    def alive_if_gathered(self) -> dict[NodeId, RegisterBroker] | None:
        """What the next view may keep if no broker changes."""
        return self._alive

    def is_alive(self, broker_id: NodeId) -> bool:
        return broker_id in self.alive_brokers()

    def node(self, broker_id: NodeId, listener: str) -> Node | None:
        """Where clients of `listener` reach the broker; None if it is not alive or does not have that listener."""
        registration = self.alive_brokers().get(broker_id)
        return None if registration is None else _node(registration, listener)

    def alive_nodes(self, listener: str) -> tuple[Node, ...]:
        """All live brokers that have `listener`, by id."""
        nodes = (_node(registration, listener) for registration in self.alive_brokers().values())
        return tuple([node for node in nodes if node is not None])

    def replica_endpoints(self, topic: str, partition: int, listener: str) -> dict[NodeId, Node]:
        """Where to reach each replica; a replica whose broker is dead, or has no such listener, is not in it."""
        found = self.image.topic(topic)
        state = None if found is None else found.state(partition)
        if state is None:
            return {}
        nodes = {replica: self.node(replica, listener) for replica in state[0]}
        return {replica: node for replica, node in nodes.items() if node is not None}

    def leader_endpoint(self, topic: str, partition: int, listener: str) -> tuple[ErrorCode, Node | None]:
        """Where to reach the leader, or why it cannot be reached."""
        found = self.image.topic(topic)
        state = None if found is None else found.state(partition)
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        error = self._leader_error(state[4], listener)
        return error, self.node(state[4], listener) if error is ErrorCode.NONE else None

    def controller_id(self) -> NodeId | None:
        """The broker that clients are told is the controller: the live one with the least id; None if none lives.

        Clients cannot reach the quorum. Any broker forwards what is for the controller, so one is named, and always the
        same one while it lives: clients keep a connection to it.
        """
        return next(iter(self.alive_brokers()), None)

    def listeners_that_differ(self) -> dict[str, tuple[NodeId, ...]]:
        """Listener -> the live brokers that lack it; empty where all have the same ones."""
        having: dict[str, set[NodeId]] = {}
        alive = self.alive_brokers()
        for broker_id, registration in alive.items():
            for endpoint in registration.endpoints:
                having.setdefault(endpoint.listener, set()).add(broker_id)
        lacking = {listener: alive.keys() - brokers for listener, brokers in having.items()}
        return {listener: tuple(sorted(brokers)) for listener, brokers in sorted(lacking.items()) if brokers}


def _node(registration: RegisterBroker, listener: str) -> Node | None:
    for endpoint in registration.endpoints:
        if endpoint.listener == listener:
            return Node(registration.broker_id, endpoint.host, endpoint.port, registration.rack)
    return None


class Swapped(NamedTuple):
    """What a swap did: the partitions that are gone, and listeners that some live brokers have come to lack."""

    deleted: tuple[DeletedPartition, ...]
    listeners_that_differ: dict[str, tuple[NodeId, ...]]


class MetadataCache:
    """Holds the current view. One writer; any number of readers, in any thread."""

    def __init__(self) -> None:
        self.current = MetadataView(EMPTY_IMAGE)

    def swap(self, image: MetadataImage, changes: Changes) -> Swapped:
        """Makes `image` the current one. `changes` are those since the image before.

        Costs O(changes), and O(brokers) where a broker changed. The offset may only go up: clients that were told of a
        topic are never told of an older cluster (`broker_agent.store` keeps an image back that would).
        """
        before = self.current
        assert image.offset >= before.offset, f"{image!r} would replace the later {before.image!r}"
        view = MetadataView(image, None if changes.brokers else before.alive_if_gathered())
        differ = view.listeners_that_differ() if changes.brokers else {}
        deleted = tuple(_deleted(before.image, changes.deleted_topics.keys()))
        # From here on readers see the new view; nothing was locked and nothing was changed in place.
        self.current = view
        return Swapped(deleted, differ)

    def begin_anew(self) -> None:
        """The cluster was recovered without a majority: what clients were told of may never have been."""
        self.current = MetadataView(EMPTY_IMAGE)


def _deleted(before: MetadataImage, topic_ids: Iterable[Uuid]) -> Iterator[DeletedPartition]:
    for topic_id in sorted(topic_ids):
        topic: TopicImage | None = before.topic_by_id(topic_id)
        if topic is not None:
            for partition in range(topic.partition_count):
                yield DeletedPartition(topic.name, topic_id, partition)
