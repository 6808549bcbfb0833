"""Brokers' lives: a broker registers, is unfenced, is heard, shuts down, is fenced, and is unregistered.

    fencing      takes the broker out of every ISR and every leadership first, and writes the fence record last
    shutdown     writes the flag first, which makes the broker inactive, and moves its partitions then
    unfencing    writes its record first; then partitions without a leader may elect the broker
    a lost log directory is a fencing of the replicas in it alone (`lost_directories`)
    a registration or its end is decided in `registrations`

Each of these may take several batches. During a fencing the broker is barred: its registration still says unfenced, but the
controller gives the broker no leadership and no place in an ISR (M3; `departures`).

The progress is soft state of this object. For example controller 1 loses its leadership when it has moved half of broker 7's
partitions. Every partition is in a valid state. Controller 2 gives broker 7 a whole session and begins again.
"""

import random
from collections.abc import Iterable
from dataclasses import replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset, Uuid, id_shown, uuid_text
from metadata_log.format.records import (
    Config,
    MetadataRecord,
    RegisterBroker,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.admission import check_may_be_fenced
from quorum.controller.brokers.contact import BrokerState, Next, next_state, state_of
from quorum.controller.brokers.deaths import check_alive, check_report, died_fenced
from quorum.controller.brokers.departures import Cause, Departures
from quorum.controller.brokers.lost_directories import LostDirectories
from quorum.controller.brokers.modes import Modes, check_reason, knows_modes
from quorum.controller.brokers.registrations import Registrations, identified, registered
from quorum.controller.brokers.returns import Returns
from quorum.controller.brokers.sessions import Session, Sessions
from quorum.controller.brokers.shutdowns import Shutdowns
from quorum.controller.brokers.state_records import StateRecords
from quorum.controller.partitions.broker_view import BrokerViews
from quorum.controller.partitions.election_rules import UNCLEAN_KEY
from quorum.controller.protocol.brokers.broker_happenings import BrokerFenced, BrokerOnline, LogDirectoriesLost
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.commands import (
    BrokerContact,
    BrokerContactReply,
    Command,
    CommandReply,
    ContinueFencing,
    ContinueShutdown,
    ElectLeaderless,
    FenceBroker,
    FenceBrokerReply,
    FenceExpiredBrokers,
    FollowUpReply,
    RegisterBrokerCommand,
    ReportDeath,
    ReportDeathReply,
    UnregisterBroker,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import NOTHING_NEW, ControllerError, Decision
from quorum.controller.protocol.directory_commands import ContinueDirectoryLoss
from quorum.controller.protocol.happenings import Happening
from quorum.controller.protocol.mode_commands import DrainBroker, EndBrokerMode
from quorum.controller.sessions.ephemerals import of_broker, removals


class Brokers:
    """Decides all commands about brokers, and owns their sessions and walks."""

    def __init__(self, config: ControllerConfig, rng: random.Random) -> None:
        self.sessions = Sessions(config.session_timeout_ms)
        self.views = BrokerViews(rng)
        self._state_records = StateRecords(self.views)
        self._departures = Departures(config, self.views)
        self._shutdowns = Shutdowns(config, self.sessions, self.views, self._state_records)
        self._returns = Returns(config, self.views)
        self._lost_directories = LostDirectories(config, self.views)
        self._modes = Modes(config, self.views, self._state_records, self._returns)
        self._registrations = Registrations(
            config, self.sessions, self._departures, self._state_records, forget=self._forget
        )

    def at(self, wall_ms: int) -> None:
        """Sets the time of day of the next decision, for the records that change a broker's state."""
        self._state_records.wall_ms = wall_ms

    def activate(self, image: MetadataImage, now_ms: int) -> None:
        self.deactivate()
        self.sessions.reset(image, now_ms)
        self._departures.begin(image)
        self._returns.begin_look(image, now_ms)

    def deactivate(self) -> None:
        self.sessions.clear()
        self.views.reset()
        self._departures.clear()
        self._shutdowns.clear()
        self._returns.clear()
        self._lost_directories.clear()
        self._modes.clear()

    # --- registration ----------------------------------------------------------------------------------------------

    def register(self, image: MetadataImage, command: RegisterBrokerCommand, now_ms: int) -> Decision:
        """Raises ControllerError: INVALID_REGISTRATION, UNSUPPORTED_VERSION, DUPLICATE_BROKER_REGISTRATION."""
        return self._registrations.register(image, command, now_ms)

    def unregister(self, image: MetadataImage, command: UnregisterBroker, now_ms: int) -> Decision:
        """Raises ControllerError: BROKER_ID_NOT_REGISTERED, POLICY_VIOLATION."""
        return self._registrations.unregister(image, command, now_ms)

    def _forget(self, broker_id: NodeId) -> None:
        self._shutdowns.forget(broker_id)
        self._returns.forget(broker_id)
        self._departures.forget(broker_id)
        self._lost_directories.forget(broker_id)

    # --- fencing ---------------------------------------------------------------------------------------------------

    def _fence(
        self, image: MetadataImage, broker: RegisterBroker, cause: Cause, reply: CommandReply, now_ms: int
    ) -> Decision:
        """Decides the next slice of the broker's departure; the last slice has the fence record."""
        if broker.fenced:
            return Decision((), reply)
        left = self._departures.step(image, broker.broker_id, cause, now_ms)
        if not left.is_last:
            return Decision(left.changes, reply, ContinueFencing(broker.broker_id), left.happenings)
        self._forget(broker.broker_id)
        why, silent_ms, _ = left.cause
        fence = self._state_records.change(image, broker, why, fenced=True)
        story: tuple[Happening, ...] = (BrokerFenced(broker.broker_id, broker.broker_epoch, why, silent_ms),)
        if left.cause.is_death:
            fence = fence._replace(dead=True)
        if why is StateReason.LOG_DIRECTORIES_LOST and broker.log_dirs:
            fence = fence._replace(log_dirs=())
            lost = LogDirectoriesLost(broker.broker_id, broker.broker_epoch, lost=len(broker.log_dirs), left=0)
            story = (lost, *story)
        gone = removals(image, of_broker(broker.broker_id, broker.broker_epoch))
        return Decision((*left.changes, *gone, fence), reply, happenings=(*story, *left.happenings))

    def change_mode(
        self, image: MetadataImage, command: FenceBroker | DrainBroker | EndBrokerMode, now_ms: int
    ) -> Decision:
        """Decides the next slice of an operator's request about a mode.

        Raises:
            ControllerError: BROKER_ID_NOT_REGISTERED, INVALID_REQUEST, POLICY_VIOLATION, UNSUPPORTED_VERSION.
        """
        broker = registered(image, command.broker_id)
        match command:
            case FenceBroker():
                return self._fence_by_hand(image, broker, command, now_ms)
            case DrainBroker():
                return self._modes.drain(image, broker, command, now_ms)
            case EndBrokerMode():
                return self._modes.end(image, broker, command, now_ms)

    def _fence_by_hand(
        self, image: MetadataImage, broker: RegisterBroker, command: FenceBroker, now_ms: int
    ) -> Decision:
        """Decides the next slice of an operator's fencing. The last slice has the fence and the mode, in this order.

        Below the level of modes the fence lasts until the broker's next fetch, so a live broker is refused.
        """
        check_reason(command.reason)
        lasts = knows_modes(image)
        if not lasts:
            check_may_be_fenced(broker, self.sessions, now_ms)
        reply = FenceBrokerReply(broker_id=broker.broker_id)
        if command.validate_only:
            return Decision((), reply)
        fencing = self._fence(image, broker, Cause(StateReason.OPERATOR), reply, now_ms)
        if not lasts:
            return fencing
        if fencing.then is not None:
            return replace(fencing, then=command)
        return self._modes.with_fence(image, broker.broker_id, command.reason, fencing)

    def report_death(self, image: MetadataImage, command: ReportDeath, now_ms: int) -> Decision:
        """Decides the next slice of the fencing of a process that has ended. The last slice records the death.

        Raises:
            ControllerError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNSUPPORTED_VERSION; then nothing was done.
        """
        broker = registered(image, command.broker_id)
        check_report(image, broker, command)
        if broker.fenced:
            return died_fenced(broker)
        reply = ReportDeathReply(broker_epoch=broker.broker_epoch)
        fencing = self._fence(image, broker, Cause(StateReason.PROCESS_DEAD), reply, now_ms)
        return fencing if fencing.then is None else replace(fencing, then=command)

    def _continue_fencing(self, image: MetadataImage, command: ContinueFencing, now_ms: int) -> Decision:
        """Decides the next slice of a fencing that is under way, even if the broker is heard again; else nothing."""
        reply = FenceBrokerReply(broker_id=command.broker_id)
        broker: RegisterBroker | None = image.brokers.get(command.broker_id)
        if broker is None or broker.broker_id not in self._departures:
            return Decision((), reply)
        return self._fence(image, broker, self._departures.cause_of(broker.broker_id), reply, now_ms)

    def fence_expired(self, image: MetadataImage, now_ms: int) -> Decision:
        """Fences the one broker whose session ended first."""
        broker_id = self.sessions.first_expired(image, now_ms)
        if broker_id is None:
            return Decision((), FenceBrokerReply())
        cause = Cause(StateReason.SESSION_ENDED, self.sessions.silent_ms(broker_id, now_ms))
        self.sessions.postpone(broker_id, now_ms)
        return self._fence(image, image.brokers[broker_id], cause, FenceBrokerReply(broker_id=broker_id), now_ms)

    def may_serve(self, image: MetadataImage, broker_id: NodeId, offset: Offset) -> bool:
        """True if the broker, at `offset`, has applied every decision that takes leaderships away from it.

        The registration alone does not tell. For example the controller decides to fence broker 7, hears broker 7 just then, and
        unfences broker 7 in the next record. The registration says unfenced before and after; the leaderships moved in between.
        """
        broker: RegisterBroker | None = image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker_id in self._departures:
            return False
        return self._departures.shows_last(broker_id, offset)

    def shows_last_departure(self, broker_id: NodeId, offset: Offset) -> bool:
        """True if an image at `offset` (exclusive) holds the last fencing of the broker that this controller decided."""
        return self._departures.shows_last(broker_id, offset)

    def go_on(
        self,
        image: MetadataImage,
        command: ContinueFencing | ContinueDirectoryLoss | ContinueShutdown | ElectLeaderless,
        now_ms: int,
    ) -> Decision:
        """Decides the next slice of work that is under way; nothing if it is not under way any more."""
        match command:
            case ContinueFencing():
                return self._continue_fencing(image, command, now_ms)
            case ContinueDirectoryLoss():
                return self._lost_directories.go_on(image, command.broker_id, now_ms)
            case ContinueShutdown():
                return self._continue_shutdown(image, command, now_ms)
            case ElectLeaderless():
                return self._elect_leaderless(image, command, now_ms)

    def due(self, image: MetadataImage, now_ms: int) -> Command | None:
        """Returns a command that is due without a request: the next slice of a stalled fencing, the end of a session, or a new
        controller's look at the partitions without a leader."""
        self._modes.drop_abandoned(image, now_ms)
        for broker_id in self._departures.stalled(now_ms):
            broker: RegisterBroker | None = image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                return ContinueFencing(broker_id)
            self._forget(broker_id)
        if self.sessions.first_expired(image, now_ms) is not None:
            return FenceExpiredBrokers()
        for broker_id in self._lost_directories.stalled(now_ms):
            return ContinueDirectoryLoss(broker_id)
        return ElectLeaderless() if self._returns.looks else None

    def next_deadline_ms(self) -> int | None:
        """The time to call `due`; possibly too early."""
        if self._returns.looks:
            return 0  # at once
        deadlines = (
            self.sessions.next_deadline_ms(),
            self._departures.next_deadline_ms(),
            self._lost_directories.next_deadline_ms(),
            self._modes.next_deadline_ms(),
        )
        return min([deadline_ms for deadline_ms in deadlines if deadline_ms is not None], default=None)

    # --- contact ---------------------------------------------------------------------------------------------------

    def contact(self, image: MetadataImage, contact: BrokerContact, now_ms: int) -> Decision:
        """Notes a broker's fetch as its heartbeat. Nearly always the decision is empty.

        Raises:
            ControllerError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; then the contact has had no effect at all (M2).
        """
        broker, session = self.hear(image, contact, now_ms)
        if contact.broker_id in self._departures:
            return NOTHING_NEW
        lost = frozenset(broker.log_dirs).intersection(contact.offline_log_dirs)
        if lost:
            return self._lose_log_dirs(image, broker, lost, now_ms)
        if not broker.log_dirs and not broker.fenced:  # a controller of release 0.1.0 has died during the fencing
            cause = Cause(StateReason.LOG_DIRECTORIES_LOST, is_unclean=True)
            return self._fence(image, broker, cause, BrokerContactReply(), now_ms)
        if broker.fenced or broker.in_controlled_shutdown or contact.wants_fence or contact.wants_shut_down:
            return self._change_state(image, broker, contact, session, now_ms)
        return self._others_may_go(image) if self._shutdowns.any else NOTHING_NEW

    def hear(self, image: MetadataImage, contact: BrokerContact, now_ms: int) -> tuple[RegisterBroker, Session]:
        """Notes that the broker was heard, and where it is. Raises ControllerError, as `contact`."""
        broker = identified(image, contact.broker_id, contact.broker_epoch)
        check_alive(broker, "fetch")
        if broker.incarnation_id != contact.incarnation_id:
            raise ControllerError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker.broker_id} is registered as incarnation {uuid_text(broker.incarnation_id)}; "
                f"the request is of {id_shown(contact.incarnation_id)}",
            )
        return broker, self.sessions.heard(contact.broker_id, contact.broker_epoch, contact.offset, now_ms)

    def _change_state(
        self, image: MetadataImage, broker: RegisterBroker, contact: BrokerContact, session: Session, now_ms: int
    ) -> Decision:
        state = state_of(broker)
        if state is BrokerState.STOPPING or (
            state is BrokerState.ONLINE and contact.wants_shut_down and not contact.wants_fence
        ):
            return self._stop(image, broker, now_ms)
        is_caught_up = contact.offset > broker.broker_epoch
        is_kept_out = broker.broker_id in self.views.of(image).kept_out
        match next_state(
            state,
            # without a directory the broker has no place for a replica
            wants_fence=contact.wants_fence or not broker.log_dirs or is_kept_out,
            wants_shut_down=contact.wants_shut_down,
            is_caught_up=is_caught_up,
            is_held=False,
        ):
            case Next.ONLINE if state is BrokerState.FENCED:
                session.may_go = False
                return self._unfence(image, broker, now_ms)
            case Next.FENCED if state is BrokerState.ONLINE:
                return self._fence(image, broker, Cause(StateReason.ASKED), BrokerContactReply(), now_ms)
            case Next.MAY_GO:
                session.may_go = True
                return self._fence(image, broker, Cause(StateReason.SHUT_DOWN), BrokerContactReply(), now_ms)
            case _:
                session.may_go = False
                return NOTHING_NEW

    def _unfence(self, image: MetadataImage, broker: RegisterBroker, now_ms: int) -> Decision:
        change = self._state_records.change(
            image,
            broker,
            StateReason.CAUGHT_UP,
            fenced=False,
            in_controlled_shutdown=False if broker.in_controlled_shutdown else None,
        )
        online = BrokerOnline(broker.broker_id, broker.broker_epoch)
        elected = self._returns.returned(image, broker.broker_id, now_ms)
        happenings: tuple[Happening, ...] = (online, *elected.happenings)
        return Decision((change, *elected.changes), BrokerContactReply(), elected.then, happenings)

    def configs_changed(self, image: MetadataImage, records: Iterable[MetadataRecord], now_ms: int) -> None:
        """Takes note of an alteration: partitions without a leader may have one if unclean elections are allowed now."""
        if any(isinstance(record, Config) and record.key == UNCLEAN_KEY for record in records):
            self._returns.begin_look(image, now_ms)

    def _elect_leaderless(self, image: MetadataImage, command: ElectLeaderless, now_ms: int) -> Decision:
        """Decides the next slice of elections that a broker's return made possible."""
        if command.broker_id is None:
            elected = self._returns.look(image, now_ms)
        else:
            elected = self._returns.go_on(image, command.broker_id, now_ms)
        return Decision(elected.changes, FollowUpReply(), elected.then, elected.happenings)

    def _lose_log_dirs(
        self, image: MetadataImage, broker: RegisterBroker, lost: frozenset[Uuid], now_ms: int
    ) -> Decision:
        """Decides on directories that a broker reports as offline. A broker that has none left is fenced, until its next process.

        While the loss is under way the broker repeats its report in every fetch.
        """
        known = self._lost_directories.under_way(broker.broker_id)
        if lost <= known:
            return NOTHING_NEW
        lost |= known
        if broker.fenced or not lost.issuperset(broker.log_dirs):
            return self._lost_directories.lose(image, broker, lost, now_ms)
        cause = Cause(StateReason.LOG_DIRECTORIES_LOST, is_unclean=True)
        return self._fence(image, broker, cause, BrokerContactReply(), now_ms)

    # --- controlled shutdown ---------------------------------------------------------------------------------------

    def _stop(self, image: MetadataImage, broker: RegisterBroker, now_ms: int) -> Decision:
        """Decides the next step of a controlled shutdown, the first step included. The last step is a fencing."""
        decision = self._shutdowns.advance(image, broker, now_ms)
        if decision is not None:
            return decision
        session = self.sessions.of(broker.broker_id, broker.broker_epoch)
        if session is not None:
            session.may_go = True
        # The fencing looks at every partition again: the broker still leads those that have no other active replica.
        return self._fence(image, broker, Cause(StateReason.SHUT_DOWN), BrokerContactReply(), now_ms)

    def _others_may_go(self, image: MetadataImage) -> Decision:
        """Continues the shutdown of a broker that waited until the other brokers had applied its moves."""
        broker_id = self._shutdowns.first_let_go(image)
        if broker_id is None:
            return NOTHING_NEW
        return Decision((), BrokerContactReply(), then=ContinueShutdown(broker_id))

    def _continue_shutdown(self, image: MetadataImage, command: ContinueShutdown, now_ms: int) -> Decision:
        """Moves more leaders, or lets the broker go, if it is still stopping."""
        broker: RegisterBroker | None = image.brokers.get(command.broker_id)
        if (
            broker is None
            or broker.fenced
            or broker.broker_id not in self._shutdowns
            or broker.broker_id in self._departures
        ):
            return Decision((), FollowUpReply())
        return self._stop(image, broker, now_ms)
