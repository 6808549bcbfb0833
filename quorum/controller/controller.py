"""The controller's front: one command in, one decision out.

`decide` is a function of image, command, time and the controller's own soft state: the time of each broker's last contact, the
progress of each fencing, the position of the placement. `decide` changes neither image nor log. The active controller's node
appends the records, replays them on the image, and passes that image with the next command. When the leadership is lost, the
node drops image and soft state.

    decide(image, command, now_ms) -> Decision(records, reply, then, happenings)
    touch(broker)                     a contact, noted on arrival, before any queue
    keep_alive(session)               the same of a client's session
    due(image, now_ms) -> Command     a command without a request: sessions that ended, a check of the leaderships
    standing(image, broker)           the state that the answer to a broker's fetch carries

Example. Broker 7 is silent for a session.
    1  `due` returns `FenceExpiredBrokers`; `decide` returns the changes of 400 partitions and the fence record.
    2  The node appends the 401 records as one batch, and replays them on the proposed image.
    3  The batch is committed. The node tells the story: broker 7 is fenced, its session ended.

A command that makes the record of the same name is called ...Command.
"""

import random
from typing import Final, NamedTuple, assert_never

from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.records import ClientSession, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.broker_commands import Brokers
from quorum.controller.brokers.contact import BrokerState, state_of
from quorum.controller.brokers.producer_ids import allocate_producer_ids
from quorum.controller.brokers.registrations import identified
from quorum.controller.brokers.sessions import UNKNOWN_OFFSET
from quorum.controller.entities.client_entities import ClientEntities
from quorum.controller.features.bootstrap import bootstrap_features
from quorum.controller.features.controllers import register_controller
from quorum.controller.features.updates import update_features
from quorum.controller.partitions.alter_partition import alter_partitions
from quorum.controller.partitions.directory_assignments import assign_replicas
from quorum.controller.partitions.epoch_raise import raise_epochs
from quorum.controller.partitions.leadership.balancing import Balancing
from quorum.controller.partitions.leadership.elections import elect_leaders
from quorum.controller.partitions.reassignment.reassignments import alter_reassignments
from quorum.controller.protocol.commands import (
    AllocateProducerIds,
    AlterPartition,
    BrokerContact,
    Command,
    ContinueFencing,
    ContinueShutdown,
    ElectLeaderless,
    FenceBroker,
    FenceExpiredBrokers,
    RegisterBrokerCommand,
    RegisterControllerCommand,
    ReportDeath,
    UnregisterBroker,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import AlterConfigKeys, AlterConfigs, ContinueConfigs
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.directory_commands import AssignReplicasToDirs, ContinueDirectoryLoss
from quorum.controller.protocol.election_commands import BalanceLeaders, ElectLeaders
from quorum.controller.protocol.entity_commands import (
    AlterKinds,
    CloseSession,
    EndExpiredSessions,
    OpenSession,
    Transact,
)
from quorum.controller.protocol.epoch_commands import ContinueRaise, RaiseEpochs
from quorum.controller.protocol.feature_commands import BootstrapFeatures, UpdateFeatures
from quorum.controller.protocol.label_commands import AlterLabels
from quorum.controller.protocol.mode_commands import DrainBroker, EndBrokerMode
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, ContinueReassignments
from quorum.controller.protocol.rights.acl_commands import CreateAcls, DeleteAcls
from quorum.controller.protocol.rights.quota_commands import AlterClientQuotas
from quorum.controller.protocol.rights.scram_commands import AlterUserScramCredentials
from quorum.controller.protocol.topic_commands import ContinueTopics, CreatePartitions, CreateTopics, DeleteTopics
from quorum.controller.rights.acls import create_acls, delete_acls
from quorum.controller.rights.quotas import alter_client_quotas
from quorum.controller.rights.scram import alter_scram_credentials
from quorum.controller.topics.config_definitions import alter_config_keys
from quorum.controller.topics.configs import alter_configs
from quorum.controller.topics.labels import alter_labels
from quorum.controller.topics.topic_commands import Topics

__all__ = [
    "DECIDED_BY_IMAGE_ALONE",
    "BrokerStanding",
    "BrokerState",
    "Controller",
    "ControllerConfig",
    "ControllerError",
]

DECIDED_BY_IMAGE_ALONE: Final = (
    CreateTopics,
    CreatePartitions,
    ContinueTopics,
    DeleteTopics,
    AlterConfigs,
    ContinueConfigs,
    AlterConfigKeys,
    AlterLabels,
    AlterPartition,
    AssignReplicasToDirs,
    ElectLeaders,
    AlterPartitionReassignments,
    ContinueReassignments,
    AllocateProducerIds,
    AlterClientQuotas,
    CreateAcls,
    DeleteAcls,
    AlterUserScramCredentials,
    BootstrapFeatures,
    RaiseEpochs,
    ContinueRaise,
    UpdateFeatures,
    RegisterControllerCommand,
    Transact,
    AlterKinds,
    OpenSession,
    CloseSession,
)
"""Commands that cannot leave the controller's soft state half changed, even if an exception ends the decision: they change only
the position of the placement, and every position is valid, or begin a look at all partitions, which is never wrong, or the
deadline of a session that is not open, which is dropped. All other commands end lives of brokers or sessions."""


class BrokerStanding(NamedTuple):
    """The controller's view of a broker."""

    state: BrokerState
    is_caught_up: bool
    """The broker has applied its own registration."""
    should_shut_down: bool
    """The broker may end its process: it is fenced, and nothing holds it."""
    last_contact_ms: int | None
    """None: the broker was not heard since this controller became active."""
    metadata_offset: Offset | None
    """The broker has applied all metadata below this offset; None: the broker was not heard."""
    session_deadline_ms: int | None = None
    """When the broker's session ends, if the broker is not heard before; None: it has no session."""


class Controller:
    """Decides all commands, without a log, a network or a clock. One per node, active while the node leads."""

    def __init__(self, config: ControllerConfig, rng: random.Random) -> None:
        problems = config.problems()
        assert not problems, problems
        self.config = config
        self._brokers = Brokers(config, rng)
        self._topics = Topics(config, rng)
        self._balancing = Balancing(config, self._brokers.views)
        self._entities = ClientEntities(config, rng, self._topics)

    def activate(self, image: MetadataImage, now_ms: int) -> None:
        """Begins a leadership: every unfenced broker and every client with a session gets a full session (M8)."""
        self._brokers.activate(image, now_ms)
        self._entities.sessions.activate(image, now_ms)
        self._balancing.begin(now_ms)

    def deactivate(self) -> None:
        """Ends a leadership: soft state is dropped."""
        self._brokers.deactivate()
        self._entities.sessions.deactivate()
        self._balancing.end()

    def decide(self, image: MetadataImage, command: Command, now_ms: int, wall_ms: int = 0) -> Decision:
        """Returns the records to write, the reply and the story. `image` is all that was appended, committed or not.

        `wall_ms` is the time of day; it is written into records, and never changes a decision. 0: not known.

        Raises:
            ControllerError: the request as a whole is refused; nothing was done.
        """
        brokers = self._brokers
        brokers.at(wall_ms)
        match command:
            case BrokerContact():
                return brokers.contact(image, command, now_ms)
            case CreateTopics():
                return self._topics.create(image, command, brokers.views.of(image))
            case CreatePartitions():
                return self._topics.create_partitions(image, command, brokers.views.of(image))
            case ContinueTopics():
                return self._topics.go_on(command)
            case DeleteTopics():
                return self._topics.delete(image, command)
            case AlterConfigs() | ContinueConfigs():
                altered = alter_configs(image, command, self.config)
                brokers.configs_changed(image, altered.records, now_ms)
                return altered
            case AlterPartition() | AssignReplicasToDirs() | AllocateProducerIds():
                return self._decide_for_broker(image, command)
            case ElectLeaders():
                return elect_leaders(image, command, brokers.views.of(image), self.config)
            case AlterPartitionReassignments() | ContinueReassignments():
                return alter_reassignments(image, command, brokers.views.of(image), self.config)
            case BalanceLeaders():
                return self._balancing.step(image, now_ms)
            case RegisterBrokerCommand():
                return brokers.register(image, command, now_ms)
            case UnregisterBroker():
                return brokers.unregister(image, command, now_ms)
            case FenceBroker() | DrainBroker() | EndBrokerMode():
                return brokers.change_mode(image, command, now_ms)
            case ReportDeath():
                return brokers.report_death(image, command, now_ms)
            case FenceExpiredBrokers():
                return brokers.fence_expired(image, now_ms)
            case ContinueFencing() | ContinueDirectoryLoss() | ContinueShutdown() | ElectLeaderless():
                return brokers.go_on(image, command, now_ms)
            case RaiseEpochs() | ContinueRaise():
                return raise_epochs(image, command, self.config)
            case UpdateFeatures():
                return update_features(image, command, self.config)
            case BootstrapFeatures() | RegisterControllerCommand() | AlterConfigKeys() | AlterLabels():
                return _by_image(image, command)
            case AlterClientQuotas() | CreateAcls() | DeleteAcls() | AlterUserScramCredentials():
                return _of_rights(image, command)
            case Transact():
                return self._transact(image, command, now_ms)
            case AlterKinds() | OpenSession() | CloseSession() | EndExpiredSessions():
                return self._entities.decide(image, command, now_ms)
            case _:
                assert_never(command)

    def _transact(self, image: MetadataImage, command: Transact, now_ms: int) -> Decision:
        done = self._entities.transact(image, command, self._brokers.views.of(image), now_ms)
        self._brokers.configs_changed(image, done.records, now_ms)
        return done

    def _decide_for_broker(
        self, image: MetadataImage, command: AlterPartition | AssignReplicasToDirs | AllocateProducerIds
    ) -> Decision:
        """Decides a request that only a registered process may send."""
        identified(image, command.broker_id, command.broker_epoch)
        match command:
            case AlterPartition():
                return alter_partitions(image, command, self._brokers.views.of(image), self.config)
            case AssignReplicasToDirs():
                return assign_replicas(image, command, self._brokers.views.of(image), self.config)
            case AllocateProducerIds():
                return allocate_producer_ids(image, command, self.config.producer_id_block)

    # --- sessions --------------------------------------------------------------------------------------------------

    def touch(self, broker_id: NodeId, broker_epoch: int, now_ms: int) -> None:
        """Notes that the broker was heard. An unknown broker or an older epoch refreshes nothing (M2)."""
        self._brokers.sessions.touch(broker_id, broker_epoch, now_ms)

    def hear(self, image: MetadataImage, contact: BrokerContact, now_ms: int) -> None:
        """Notes a broker's contact as a heartbeat only, while a transaction is open: the next contact is decided on.

        Raises:
            ControllerError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; then the contact has had no effect at all (M2).
        """
        self._brokers.hear(image, contact, now_ms)

    def keep_alive(self, image: MetadataImage, session_id: Uuid, epoch: Offset, now_ms: int) -> ClientSession | None:
        """Notes a contact of a client's session, and returns the session. None: `image` has no such session; nothing was noted.

        `image` must be the proposed image: a session whose end is decided is not kept alive.
        """
        return self._entities.sessions.touch(image, session_id, epoch, now_ms)

    def credit(self, stall_ms: int) -> None:
        """Lengthens every session by the time that this process stood still."""
        self._brokers.sessions.credit(stall_ms)
        self._entities.sessions.credit(stall_ms)

    def next_deadline_ms(self) -> int | None:
        """The time to call `due`; possibly too early, never too late."""
        deadlines = (
            self._brokers.next_deadline_ms(),
            self._entities.sessions.next_deadline_ms(),
            self._balancing.next_deadline_ms,
        )
        return min([deadline_ms for deadline_ms in deadlines if deadline_ms is not None], default=None)

    def due(self, image: MetadataImage, now_ms: int) -> Command | None:
        """Returns a command that is due without a request; None if there is none now."""
        due = self._brokers.due(image, now_ms)
        if due is None and self._entities.sessions.is_due(image, now_ms):
            return EndExpiredSessions()
        if due is None and self._balancing.is_due(image, now_ms):
            return BalanceLeaders()
        return due

    def may_serve(self, image: MetadataImage, broker_id: NodeId, offset: Offset) -> bool:
        """True if the broker, which has applied everything below `offset`, may get a lease.

        `image` must be the proposed image. For example a batch that moves the broker's leaderships is appended and not committed.
        A lease that the broker got now would outlast the commit of that batch.
        """
        return self._brokers.may_serve(image, broker_id, offset)

    def standing(self, image: MetadataImage, broker_id: NodeId) -> BrokerStanding:
        """Returns the view of the broker as of `image`. For answers to brokers `image` must be the committed image."""
        broker: RegisterBroker | None = image.brokers.get(broker_id)
        if broker is None:
            return BrokerStanding(BrokerState.OFFLINE, False, False, None, None)
        state = state_of(broker)
        session = self._brokers.sessions.of(broker_id, broker.broker_epoch)
        if session is None:
            return BrokerStanding(state, False, False, None, None)
        offset = session.metadata_offset
        is_out = broker.fenced and self._brokers.shows_last_departure(broker_id, image.offset)
        should_shut_down = session.may_go and is_out
        return BrokerStanding(
            state=BrokerState.OFFLINE if should_shut_down else state,
            is_caught_up=offset > broker.broker_epoch,
            should_shut_down=should_shut_down,
            last_contact_ms=session.last_contact_ms,
            metadata_offset=None if offset == UNKNOWN_OFFSET else offset,
            session_deadline_ms=None
            if session.may_go or session.has_ended
            else self._brokers.sessions.deadline_ms(broker_id),
        )


def _by_image(
    image: MetadataImage, command: BootstrapFeatures | RegisterControllerCommand | AlterConfigKeys | AlterLabels
) -> Decision:
    """Decides a command that uses neither config, time nor soft state."""
    if isinstance(command, BootstrapFeatures):
        return bootstrap_features(image, command)
    if isinstance(command, AlterConfigKeys):
        return alter_config_keys(image, command)
    if isinstance(command, AlterLabels):
        return alter_labels(image, command)
    return register_controller(image, command)


def _of_rights(
    image: MetadataImage, command: AlterClientQuotas | CreateAcls | DeleteAcls | AlterUserScramCredentials
) -> Decision:
    """Decides a command about the clients of brokers, from the image alone."""
    match command:
        case AlterClientQuotas():
            return alter_client_quotas(image, command)
        case CreateAcls():
            return create_acls(image, command)
        case DeleteAcls():
            return delete_acls(image, command)
        case AlterUserScramCredentials():
            return alter_scram_credentials(image, command)
        case _:
            assert_never(command)
