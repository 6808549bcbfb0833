"""Lost log directories: a broker reports that a directory has failed, and the replicas in it lead nothing any more (KIP-858).

The loss takes the replicas in the directory, and only these, out of the ISRs and from their leaderships, slice by slice. The last
batch takes the directory out of the broker's registration. Meanwhile the controller counts the directory as offline, although the
registration still has it (`broker_view.present`): no replica in it enters an ISR or is elected.

    1  Broker 101 has the directories A and B, and 30,000 replicas in each. Its fetch says that A is offline.
    2  The first batch changes 250 partitions. The node asks for the next slice (`ContinueDirectoryLoss`) until the end.
    3  The last batch ends with the registration without A. Broker 101 stays online, and leads its partitions in B.

With eligible leader replicas (KIP-966) the replicas leave the ELR too: the disk may have lost the end of their logs. A broker
that loses its last directory is fenced (`departures`).

The loss is soft state. If the leadership is lost in step 2, the registration still has A, and the broker repeats its report in
every fetch: the next controller begins again.
"""

from typing import NamedTuple

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.partition_state import DIRECTORIES, ELR, ISR, REPLICAS
from metadata_log.format.records import BrokerRegistrationChange, PartitionChange, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.departures import STALLED_WALK_MS
from quorum.controller.brokers.resting_walks import next_deadline_ms, resting
from quorum.controller.partitions.broker_view import BrokerViews
from quorum.controller.partitions.election_rules import keeps_elr
from quorum.controller.partitions.walks import PartitionWalk, Visited
from quorum.controller.protocol.brokers.broker_happenings import LogDirectoriesLost
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import BrokerContactReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.directory_commands import ContinueDirectoryLoss
from quorum.controller.protocol.happenings import Happening

_NONE: frozenset[Uuid] = frozenset()


class _Loss(NamedTuple):
    walk: PartitionWalk
    directories: frozenset[Uuid]


class LostDirectories:
    """All losses that take several batches."""

    def __init__(self, config: ControllerConfig, views: BrokerViews) -> None:
        self._config = config
        self._views = views
        self._by_broker: dict[NodeId, _Loss] = {}

    def clear(self) -> None:
        self._by_broker.clear()

    def forget(self, broker_id: NodeId) -> None:
        """Ends the loss: it is written, or the broker is fenced, registered anew or unregistered."""
        if self._by_broker.pop(broker_id, None) is not None:
            self._views.fail(broker_id, _NONE)

    def under_way(self, broker_id: NodeId) -> frozenset[Uuid]:
        """The directories of the broker whose loss is under way."""
        loss = self._by_broker.get(broker_id)
        return _NONE if loss is None else loss.directories

    def lose(self, image: MetadataImage, broker: RegisterBroker, directories: frozenset[Uuid], now_ms: int) -> Decision:
        """Begins the loss of these directories, with its first slice. The caller includes those whose loss is under way."""
        self._views.fail(broker.broker_id, directories)
        self._by_broker[broker.broker_id] = _Loss(PartitionWalk(image, broker.broker_id, now_ms), directories)
        return self._step(image, broker, now_ms)

    def go_on(self, image: MetadataImage, broker_id: NodeId, now_ms: int) -> Decision:
        """Decides the next slice; nothing if the loss is not under way any more."""
        broker: RegisterBroker | None = image.brokers.get(broker_id)
        if broker is None or broker_id not in self._by_broker:
            return Decision((), BrokerContactReply())
        return self._step(image, broker, now_ms)

    def _step(self, image: MetadataImage, broker: RegisterBroker, now_ms: int) -> Decision:
        broker_id = broker.broker_id
        walk, lost = self._by_broker[broker_id]
        kept = tuple([each for each in broker.log_dirs if each not in lost])
        view, has_elr = self._views.of(image), keeps_elr(image)

        def without(visited: Visited) -> PartitionChange | None:
            state = visited.state
            if broker_id not in state[ISR] and not (has_elr and broker_id in state[ELR]):
                return None
            directories = state[DIRECTORIES]
            if kept and (not directories or directories[state[REPLICAS].index(broker_id)] not in lost):
                return None
            return visited.builder(image, view, self._config).leaving(broker_id).build()

        changes = tuple(walk.step(image, without, self._config, now_ms))
        if not walk.is_done:
            return Decision(changes, BrokerContactReply(), then=ContinueDirectoryLoss(broker_id))
        self.forget(broker_id)
        change = BrokerRegistrationChange(broker_id, broker.broker_epoch, log_dirs=kept)
        told = LogDirectoriesLost(broker_id, broker.broker_epoch, len(broker.log_dirs) - len(kept), len(kept))
        story: tuple[Happening, ...] = (told, *walk.story(StateReason.LOG_DIRECTORIES_LOST))
        return Decision((*changes, change), BrokerContactReply(), happenings=story)

    def stalled(self, now_ms: int) -> list[NodeId]:
        """The brokers whose walk has rested for too long."""
        return resting(self._by_broker, STALLED_WALK_MS, now_ms)

    def next_deadline_ms(self) -> int | None:
        """The time to call `stalled`."""
        return next_deadline_ms(self._by_broker, STALLED_WALK_MS)
