"""The common state of the parts of `ReplicaManager`: replicas, log directories, metadata, and the effects of this call.

A replica's log goes into its directory in the controllers' records. Without such a record, the log that exists
decides, and else the directory with the fewest replicas:

    1. orders-0 is recorded in directory A: the log is opened there.
    2. orders-1 has no record, and directory B has a log of it: a crash came before the record. B is used, and told again.
    3. orders-2 is new. A has 7 replicas, and B has 5: its log is made in B.
    4. orders-3 is recorded in A, and an operator has moved its log to B: B is used, and told.
"""

import random
from collections.abc import Iterable, Mapping

from broker_agent.partitions.effects import Effect, Effects, TrimLog
from broker_agent.partitions.hosted_directory import HostedDirectory
from broker_agent.partitions.hosted_replica import HostedReplica
from broker_agent.partitions.manager_config import DEFAULT_TOPIC, ManagerConfig, TopicConfig
from broker_agent.partitions.throttle import NOTHING_THROTTLED, Quota, ThrottledReplicas
from broker_agent.replica.log_directory import ReplicaPlace
from broker_agent.session.isr_proposals import Place
from metadata_log.format.ids import NodeId, Uuid
from metadata_log.store.log_notes import Trim


class Hosting:
    """The state that the parts share."""

    def __init__(self, me: NodeId, config: ManagerConfig, rng: random.Random) -> None:
        self.me = me
        self.config = config
        self.rng = rng
        self.broker_epoch = -1
        self.candidates: Mapping[NodeId, int] = {}
        self._topics: dict[Uuid, TopicConfig] = {}
        self._follower_throttled: dict[Uuid, ThrottledReplicas] = {}
        """The topics with throttled copies: few, and mostly none."""
        self.replicas: dict[Place, HostedReplica] = {}
        """`host` and `forget` change it."""
        self._of_topic: dict[Uuid, dict[Place, HostedReplica]] = {}
        self.directories: dict[Uuid, HostedDirectory] = {}
        """Without the directories that failed at the start; a directory stays if it fails later."""
        self.leader_quota = Quota()
        self.follower_quota = Quota()
        self.effects: Effects = []

    def emit(self, effect: Effect) -> None:
        """Add an effect to this call."""
        self.effects.append(effect)

    def take(self) -> Effects:
        """Return the effects of this call."""
        taken, self.effects = self.effects, []
        return taken

    # --- replicas ----------------------------------------------------------------------------------------------------

    def host(self, replica: HostedReplica) -> HostedReplica:
        """Add a replica."""
        self.replicas[replica.place] = replica
        self._of_topic.setdefault(replica.place.topic_id, {})[replica.place] = replica
        return replica

    def forget(self, replica: HostedReplica) -> None:
        """Remove a replica."""
        topic_id = replica.place.topic_id
        del self.replicas[replica.place]
        del self._of_topic[topic_id][replica.place]
        if not self._of_topic[topic_id]:
            del self._of_topic[topic_id]

    def begin_trim(self, replica: HostedReplica, trim: Trim | None) -> None:
        """Let the disk follow a log that has a later start now."""
        if trim is not None:
            assert replica.job is None, replica
            replica.job = TrimLog(replica.place, replica.directory_id, trim)
            self.emit(replica.job)

    def of_topic(self, topic_id: Uuid) -> Iterable[HostedReplica]:
        """The replicas of one topic. O(replicas of the topic)."""
        return tuple(self._of_topic.get(topic_id, {}).values())

    # --- topics ------------------------------------------------------------------------------------------------------

    def configure(self, topic_id: Uuid, config: TopicConfig | None) -> None:
        """Take the configuration of a topic; None: there is no such topic any more."""
        self._follower_throttled.pop(topic_id, None)
        if config is None:
            self._topics.pop(topic_id, None)
            return
        self._topics[topic_id] = config
        if config.follower_throttled != NOTHING_THROTTLED:
            self._follower_throttled[topic_id] = config.follower_throttled

    def follower_throttled(self) -> Iterable[HostedReplica]:
        """The replicas whose copy an operator has throttled, in sync or not. O(replicas of their topics)."""
        found = self._follower_throttled.items()
        return [
            each for topic_id, named in found for each in self.of_topic(topic_id) if named.has(each.place.partition)
        ]

    def topic(self, topic_id: Uuid) -> TopicConfig:
        return self._topics.get(topic_id, DEFAULT_TOPIC)

    # --- directories -------------------------------------------------------------------------------------------------

    def directory_of(self, replica: HostedReplica) -> HostedDirectory:
        return self.directories[replica.directory_id]

    def online(self) -> Iterable[HostedDirectory]:
        """The directories that work."""
        return [each for each in self.directories.values() if each.failed is None]

    def choose(self, place: ReplicaPlace, recorded: Uuid | None) -> HostedDirectory | None:
        """Return the directory for a replica; None if no directory works. The recorded directory may have failed."""
        home = None if recorded is None else self.directories.get(recorded)
        if home is not None and (home.failed is not None or place in home.places):
            return home
        online = list(self.online())
        having = [each for each in online if place in each.places]
        if home is not None and not having:
            return home
        return min(having or online, key=lambda each: len(each.places), default=None)
