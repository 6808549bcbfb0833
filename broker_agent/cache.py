"""The metadata cache: the view of the cluster that this broker answers clients from.

The cache holds one immutable view and replaces it in one assignment. Readers take no lock: a reader takes `cache.current` *once*
and reads everything from that view, so that no answer mixes two versions.

A view wraps an image and copies nothing. So the cost of a new view does not grow with the cluster; a value that needs all
brokers is computed at the first request.

*Alive* means registered and not fenced. A fenced broker is not in the list of brokers that a client receives, and its
replicas are in the list of offline replicas. A broker in controlled shutdown is alive, because it serves clients until its
leaderships have moved. For example:

    1. Topic orders has one partition with the replicas 101 and 102, led by 101. The view at offset 200 shows both brokers.
    2. The batch [200, 202) fences broker 102. The loader makes the view at offset 202 the current one.
    3. The next answer lists broker 101 only, and replica 102 as offline. An answer in progress still shows the view at 200.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker_agent.rights import quotas
from broker_agent.rights.authorizer import Authorizer
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, Epoch, NodeId, Offset, Uuid
from metadata_log.format.partition_state import PartitionState
from metadata_log.format.records import RegisterBroker, UserScramCredential
from metadata_log.image.changes import Changes
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from metadata_log.image.topic_image import TopicImage

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that Kafka itself writes, for example committed consumer offsets. Answers to clients mark them as internal."""


class Node(NamedTuple):
    """A live broker and its address on one listener."""

    broker_id: NodeId
    host: str
    port: int
    rack: str | None


class PartitionInfo(NamedTuple):
    """One partition, for clients of one listener. `leader_id` is None if the partition has no leader.

    `error` is NONE; LEADER_NOT_AVAILABLE if there is no leader, or the leader is fenced or unregistered; LISTENER_NOT_FOUND if
    the leader is alive but does not have the client's listener.
    """

    partition: int
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: Epoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()
    """Eligible leader replicas (KIP-966)."""
    last_known_elr: tuple[NodeId, ...] = ()
    partition_epoch: int = 0
    """Grows with each change of the partition, also of its ISR."""


class TopicHead(NamedTuple):
    """One topic without its partitions."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partition_count: int


class LeaderEndpoint(NamedTuple):
    """The leader's address; `node` is None if `error` is not NONE."""

    error: ErrorCode
    node: Node | None


class DeletedPartition(NamedTuple):
    """A partition that the swap removed, with the id of its topic."""

    topic: str
    topic_id: Uuid
    partition: int


class MetadataView:
    """The cluster's metadata at one offset. Immutable."""

    __slots__ = ("_alive", "_authorizer", "image")

    def __init__(
        self,
        image: MetadataImage,
        alive: dict[NodeId, RegisterBroker] | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.image = image
        self._alive = alive
        self._authorizer = authorizer

    @property
    def offset(self) -> Offset:
        """The end of the view: it has applied every record below this offset."""
        return self.image.offset

    def features(self) -> dict[str, int]:
        """The level of each feature on which the cluster has agreed. A feature that is off is not there."""
        return dict(self.image.features.items())

    # --- clients -----------------------------------------------------------------------------------------------------

    def client_quota(self, key: str, user: str, client_id: str) -> float | None:
        """The quota `key` that holds for a client, by Kafka's precedence; None if there is none."""
        return quotas.client_quota(self.image, key, user, client_id)

    def ip_quota(self, key: str, address: str) -> float | None:
        """The quota `key` that holds for an address; None if there is none."""
        return quotas.ip_quota(self.image, key, address)

    def scram_credential(self, user: str, mechanism: int) -> UserScramCredential | None:
        """The data that check a login. Kafka's numbers: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512. None: no such credential."""
        found: UserScramCredential | None = self.image.scram_credentials.get((user, mechanism))
        return found

    def authorizer(self) -> Authorizer:
        """The ACLs of this view, for questions about rights. Made at the first call after an ACL has changed: O(ACLs)."""
        authorizer = self._authorizer
        if authorizer is None:
            authorizer = self._authorizer = Authorizer(self.image.acls.unordered_values())
        return authorizer

    def authorizer_for(self, image: MetadataImage) -> Authorizer | None:
        """The authorizer if a reader has made it, and `image` has the same ACLs."""
        return self._authorizer if image.acls is self.image.acls else None

    # --- topics and partitions ---------------------------------------------------------------------------------------

    def contains(self, topic: str, partition: int | None = None) -> bool:
        """Tells whether the topic exists, and the partition if one is given."""
        found = self.image.topic(topic)
        return found is not None and (partition is None or 0 <= partition < found.partition_count)

    def all_topics(self) -> Iterator[str]:
        """The names of all topics, in order."""
        return iter(self.image.topic_ids.sorted_keys())

    def topic_id(self, topic: str) -> Uuid | None:
        """The id of the topic with this name; None if there is no such topic."""
        found: Uuid | None = self.image.topic_ids.get(topic)
        return found

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of the topic with this id; None if there is no such topic."""
        found = self.image.topic_by_id(topic_id)
        return None if found is None else found.name

    def partition_count(self, topic: str) -> int | None:
        """The topic's number of partitions; None if there is no such topic."""
        found = self.image.topic(topic)
        return None if found is None else found.partition_count

    def partition_info(self, topic: str, partition: int, listener: str) -> PartitionInfo | None:
        """The partition for clients of `listener`; None if there is no such partition."""
        found = self.image.topic(topic)
        state = None if found is None else found.state(partition)
        return None if state is None else self._info(partition, state, listener)

    def topic_head(self, topic: str) -> TopicHead | None:
        """The topic without its partitions, at a cost that does not grow with them; None if there is no such topic."""
        found = self.image.topic(topic)
        if found is None:
            return None
        return TopicHead(found.name, found.topic_id, found.name in INTERNAL_TOPICS, found.partition_count)

    def partition_infos(self, topic: str, first: int, listener: str) -> Iterator[PartitionInfo]:
        """Yields the topic's partitions from `first` on, for clients of `listener`."""
        found = self.image.topic(topic)
        if found is None:
            return
        for number in range(first, found.partition_count):
            state = found.state(number)
            assert state is not None
            yield self._info(number, state, listener)

    def _info(self, partition: int, state: PartitionState, listener: str) -> PartitionInfo:
        replicas, isr, _, _, leader, _, leader_epoch, epoch, directories, elr, last_known_elr = state
        error = self._leader_error(leader, listener)
        leader_id = None if leader == NO_LEADER else leader
        offline = self._offline(replicas, directories)
        return PartitionInfo(
            partition, error, leader_id, leader_epoch, replicas, isr, offline, elr, last_known_elr, epoch
        )

    def _leader_error(self, leader: NodeId, listener: str) -> ErrorCode:
        registration = self.alive_brokers().get(leader)
        if registration is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if _node(registration, listener) is None:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.NONE

    def _offline(self, replicas: tuple[NodeId, ...], directories: tuple[Uuid, ...]) -> tuple[NodeId, ...]:
        """The replicas whose broker is not alive, or no longer has the replica's log directory."""
        return offline_replicas(self.alive_brokers(), replicas, directories)

    def offline_replicas(self, topic: str, partition: int) -> tuple[NodeId, ...]:
        """The replicas that cannot be read now; empty if there is no such partition."""
        found = self.image.topic(topic)
        state = None if found is None else found.state(partition)
        return () if state is None else self._offline(state[0], state[8])

    # --- brokers -----------------------------------------------------------------------------------------------------

    def alive_brokers(self) -> dict[NodeId, RegisterBroker]:
        """The brokers that are not fenced, by ascending id. Do not write to this dictionary.

        Computed at most once per view. Two threads that compute it at the same time get equal dictionaries, so no lock is needed.
        """
        alive = self._alive
        if alive is None:
            alive = {broker_id: known for broker_id, known in self.image.brokers.items() if not known.fenced}
            self._alive = alive
        return alive

    def alive_if_gathered(self) -> dict[NodeId, RegisterBroker] | None:
        """The live brokers if a reader has computed them: the next view keeps them if no broker has changed."""
        return self._alive

    def is_alive(self, broker_id: NodeId) -> bool:
        return broker_id in self.alive_brokers()

    def node(self, broker_id: NodeId, listener: str) -> Node | None:
        """The broker's address for clients of `listener`; None if the broker is not alive or does not have the listener."""
        registration = self.alive_brokers().get(broker_id)
        return None if registration is None else _node(registration, listener)

    def alive_nodes(self, listener: str) -> tuple[Node, ...]:
        """All live brokers with `listener`, by id."""
        nodes = (_node(registration, listener) for registration in self.alive_brokers().values())
        return tuple([node for node in nodes if node is not None])

    def replica_endpoints(self, topic: str, partition: int, listener: str) -> dict[NodeId, Node]:
        """The address of each replica; without replicas whose broker is not alive or does not have the listener."""
        found = self.image.topic(topic)
        state = None if found is None else found.state(partition)
        if state is None:
            return {}
        nodes = {replica: self.node(replica, listener) for replica in state[0]}
        return {replica: node for replica, node in nodes.items() if node is not None}

    def leader_endpoint(self, topic: str, partition: int, listener: str) -> LeaderEndpoint:
        """The leader's address, or the reason why there is none."""
        found = self.image.topic(topic)
        state = None if found is None else found.state(partition)
        if state is None:
            return LeaderEndpoint(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        error = self._leader_error(state[4], listener)
        return LeaderEndpoint(error, self.node(state[4], listener) if error is ErrorCode.NONE else None)

    def controller_id(self) -> NodeId | None:
        """The broker to name as controller to clients: the live broker with the lowest id; None if no broker is alive.

        Clients cannot connect to the quorum, and any broker forwards requests to the controllers. All brokers name the same
        broker, and the name changes seldom, because clients keep a connection to it: only if this broker dies, or if a broker
        with a lower id becomes alive.
        """
        return next(iter(self.alive_brokers()), None)

    def listeners_that_differ(self) -> dict[str, tuple[NodeId, ...]]:
        """For each listener the live brokers without it; empty if all live brokers have the same listeners."""
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
    """The result of a swap: deleted partitions, and listeners that some live brokers lack."""

    deleted: tuple[DeletedPartition, ...]
    listeners_that_differ: dict[str, tuple[NodeId, ...]]


class MetadataCache:
    """Holds the current view. One writer; any number of readers, in any thread."""

    def __init__(self) -> None:
        self.current = MetadataView(EMPTY_IMAGE)

    def swap(self, image: MetadataImage, changes: Changes) -> Swapped:
        """Makes `image` the current view. `changes` are the changes since the previous image.

        Costs O(changes), and O(brokers) if a broker has changed. The offset must not decrease: a client that has seen a topic
        must never see an older cluster. (`broker_agent.metadata_loader` holds back an older image.)
        """
        before = self.current
        assert image.offset >= before.offset, f"{image!r} would replace the later {before.image!r}"
        alive = None if changes.brokers else before.alive_if_gathered()
        view = MetadataView(image, alive, before.authorizer_for(image))
        differ = view.listeners_that_differ() if changes.brokers else {}
        deleted = tuple(_deleted(before.image, changes.deleted_topics.keys()))
        # From this assignment on readers get the new view. Nothing was locked, and no object was changed in place.
        self.current = view
        return Swapped(deleted, differ)

    def begin_anew(self) -> None:
        """Empties the view, because the cluster was recovered without a majority and may lack records that clients have seen."""
        self.current = MetadataView(EMPTY_IMAGE)


def _deleted(before: MetadataImage, topic_ids: Iterable[Uuid]) -> Iterator[DeletedPartition]:
    for topic_id in sorted(topic_ids):
        topic: TopicImage | None = before.topic_by_id(topic_id)
        if topic is not None:
            for partition in range(topic.partition_count):
                yield DeletedPartition(topic.name, topic_id, partition)
