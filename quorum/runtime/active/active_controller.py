"""The active controller: decides commands, keeps brokers' sessions, and answers clients (`answers`) and brokers (`broker_feed`).

An elected node is not active yet. It becomes active after it has committed the first record of its epoch, and has applied all
records below: then its image contains every promise of earlier leaders, and the controller may decide by the image (KIP-595: the
state machine learns of its leadership only after it has passed the start of the epoch). Counter-example with leader 1:
    1. leader 1 acknowledges `orders` at offset 40, and dies; node 2, which has record 40 but has not applied it, is elected;
    2. a client asks node 2 to create `orders`; if node 2 decided now, `orders` would be created a second time;
    3. instead node 2 holds the request, applies 40, becomes active, and answers that the topic exists.
A broker that fetches too early receives "not ready": the broker waits, and neither drops records nor loads a snapshot.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch
from metadata_log.format.records import METADATA_VERSION
from quorum.controller.controller import Controller
from quorum.controller.partitions.epoch_raise import is_raise_due
from quorum.controller.protocol.commands import BrokerContact, Command, RegisterControllerCommand
from quorum.controller.protocol.epoch_commands import RaiseEpochs
from quorum.controller.protocol.feature_commands import BootstrapFeatures
from quorum.core.protocol.deadlines import soonest
from quorum.runtime.active.answers import Answers
from quorum.runtime.active.broker_feed import BrokerFeed
from quorum.runtime.active.decisions import Deciding, DecisionFailed
from quorum.runtime.active.marks import MARK_REASON_CHARS_MAX, Marks
from quorum.runtime.active.proposals import Proposals
from quorum.runtime.active.session_keeping import SessionKeeping
from quorum.runtime.active.story import Story
from quorum.runtime.active.transactions import OpenDecision
from quorum.runtime.active.waiting_room import (
    COPIES_MAX,
    ClientRequest,
    FollowUp,
    FollowUps,
    WaitingRoom,
    unknown_outcome,
)
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import (
    FetchResult,
    LeaderHint,
    MetadataFetched,
    Refused,
    SnapshotMarked,
)
from quorum.runtime.protocol.tallies import Tallies
from quorum.runtime.protocol.world import BrokerFetch, KeepAlive, Read, Submission

WAITING_MAX = 10_000
"""Maximum number of requests that wait to be begun; further requests are refused."""
BEGUN_PER_TURN_MAX = 128
"""Maximum number of waiting requests that a new active controller begins in a turn."""
BEGUN_RECORDS_PER_TURN_MAX = 1_000
"""How many records waiting requests may write before the rest waits for the next turn.

For example, 128 topics of 10,000 partitions take six seconds; in that time another node would be elected."""
INTERNAL_DEADLINE_MS = 60_000
"""The deadline of commands that no client has sent."""

AHEAD_RECORDS_MAX = 10_000
"""Maximum number of records beyond the applied ones with which the leader goes on with long decisions. A leader that
wrote a million partitions as fast as it can would leave its followers, and itself, no time for each other: they would hear of no
leader for a fetch timeout, and vote for another one."""

TOO_MANY_COPIES = (
    f"a request with this id is being decided, and {COPIES_MAX} repeated requests wait already; this copy did nothing: "
    "repeat the request in a moment"
)
GOES_ON = "the request takes longer than its deadline allows, and goes on"
BEHIND_ANOTHER = "an earlier request with the same id has not ended in time"
EXPIRED = "the deadline of the request passed before this controller began it; nothing was done, try again"


class ActiveController:
    """The active controller of a node, switched on and off with the leadership. It runs inside of turns, and never blocks.

    The deciding methods (`begin`, `take`, `fetch`, `fire_timers`, `settle`, `make_snapshot`) raise DecisionFailed if the node
    must resign (see `decisions`). The client or broker has its answer by then.
    """

    def __init__(self, parts: Parts, controller: Controller, proposals: Proposals, tallies: Tallies) -> None:
        self.on = False
        self.controller = controller
        self.story = Story(tallies)
        self._generation = parts.generation
        self._log, self._state, self._snapshotter = parts.log, parts.state, parts.snapshotter
        self._world, self._step = parts.world, parts.step
        self._proposals = proposals
        self._deciding = Deciding(parts, controller, proposals, self.story)
        self.accidents = self._deciding.accidents
        self.answers = Answers(parts, controller)
        self.feed = BrokerFeed(parts, controller)
        self._keeping = SessionKeeping(parts, controller)
        self._waiting = WaitingRoom()
        self._follow_ups = FollowUps()
        self._transaction = OpenDecision(
            parts.state, self._deciding, tallies, parts.config.controller.transaction_timeout_ms
        )
        self.marks = Marks(parts, self._deciding, self._transaction)
        self._now_ms = 0

    # --- leadership ------------------------------------------------------------------------------------------------

    def begin(self, epoch: Epoch, now_ms: int) -> None:
        """Makes the node the active controller of `epoch`. The committed image must have reached the end of the log."""
        assert not self.on
        assert self._state.applied == self._log.end, "nothing but the epoch's own first record was appended"
        self.on = True
        self._now_ms = now_ms
        self.feed.begin(epoch)
        self.marks.begin()
        self._state.begin_proposing()
        self.controller.activate(self._state.committed, now_ms)
        if self._transaction.is_open:
            self._transaction.abort("its controller does not lead any more", now_ms)
            if self._transaction.is_open:
                return  # the disk is full, and the node resigns in this turn
        if METADATA_VERSION not in self._state.committed.features:
            config = self.controller.config
            bootstrap = BootstrapFeatures(config.bootstrap_metadata_version, config.bootstrap_elr_version)
            self._decide(FollowUp(bootstrap, None, now_ms + INTERNAL_DEADLINE_MS))
        if is_raise_due(self._state.committed, self._generation):
            self._decide(FollowUp(RaiseEpochs(self._generation), None, now_ms + INTERNAL_DEADLINE_MS))

    def end(self, why: str, hint: LeaderHint, *, leads_on: bool = False) -> None:
        """Switches the controller off: every waiting client is refused, and the proposed image is dropped.

        A client whose records are in the log hears that the change may have happened; any other client, that nothing was done.
        `leads_on`: the node leads the same epoch on, so the happenings wait until it is active again.
        """
        if not leads_on:
            self.story.applied(self._state.applied)
            self.story.drop()
        for waiting in self._waiting.drain():
            self._world.reply(waiting.reply_to, Refused(ErrorCode.NOT_CONTROLLER, why, hint))
        if not self.on:
            return
        self.on = False
        self.answers.end(why, hint)
        self.feed.end(Refused(ErrorCode.NOT_CONTROLLER, why, hint))
        rest = self._transaction.drop()
        for follow_up in (*self._follow_ups.drain(), *([rest] if rest else [])):
            if follow_up.waiting is not None:
                known = not follow_up.wrote and follow_up.is_begun
                refusal = Refused(ErrorCode.NOT_CONTROLLER, why, hint) if known else unknown_outcome(why)
                self._world.reply(follow_up.waiting, refusal)
        self._state.stop_proposing()
        self.controller.deactivate()

    # --- requests --------------------------------------------------------------------------------------------------

    def take(self, event: ClientRequest, now_ms: int) -> None:
        """Takes a client's request while the node leads."""
        self._now_ms = now_ms
        is_writing = self.on and self._transaction.keeps_requests
        if self.on and (isinstance(event, Read) if is_writing else not self._waiting):
            self._begin_request(event)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting.add(event)
        else:
            why = "writes a large request" if is_writing else "was just elected"
            text = f"this controller {why}, and {WAITING_MAX:,} requests wait already; nothing was done, try again"
            self._world.reply(event.reply_to, Refused(ErrorCode.NOT_READY, text))

    def _begin_request(self, event: ClientRequest) -> None:
        if event.deadline_ms <= self._now_ms:
            self._world.reply(event.reply_to, Refused(ErrorCode.NOT_READY, EXPIRED))
        elif isinstance(event, Submission):
            self._submit(FollowUp(event.command, event.reply_to, event.deadline_ms, event.identity, is_begun=False))
        elif isinstance(event, Read):
            self.answers.wait_confirmed(event.reply_to, None, event.deadline_ms)
        elif len(event.reason) > MARK_REASON_CHARS_MAX:
            text = f"a reason of {len(event.reason)} characters; at most {MARK_REASON_CHARS_MAX}; nothing was done"
            self._world.reply(event.reply_to, Refused(ErrorCode.INVALID_REQUEST, text))
        else:
            try:
                end = self.marks.append(event.reason, self._now_ms, is_asked=True)
            except Refused as refused:
                self._world.reply(event.reply_to, refused)
                return
            except DecisionFailed as failed:
                self._world.reply(event.reply_to, failed.refusal())
                return
            self.answers.wait(event.reply_to, end, SnapshotMarked(end), event.deadline_ms, wrote=True)

    def register(self, command: RegisterControllerCommand, now_ms: int) -> None:
        """Decides on a controller's registration. Raises Refused and DecisionFailed: nothing was done, and the node leads on.

        While a transaction is open the controller asks again later, because an abort would take the registration along.
        """
        self._now_ms = now_ms
        if self._transaction.is_open:
            raise Refused(ErrorCode.NOT_READY, "a transaction is open; nothing was done, register again in a moment")
        self._deciding.decide(command, now_ms)

    def _submit(self, asked: FollowUp) -> None:
        """Decides a new request. A request whose id is being decided waits for the end of that decision."""
        if asked.identity is None or not self._follow_ups.is_deciding(asked.identity.request_id):
            self._decide(asked)
        elif self._follow_ups.has_room_for_copies or asked.reply_to is None:
            self._follow_ups.add(asked)
        else:
            self._world.reply(asked.reply_to, Refused(ErrorCode.NOT_READY, TOO_MANY_COPIES))

    def _decide(self, asked: FollowUp) -> None:
        """Decides one step of a command, and answers after the last step."""
        command, _, deadline_ms, identity, wrote, is_begun, is_answered = asked
        reply_to, is_asked = asked.waiting, asked.reply_to is not None
        try:
            decided = self._deciding.decide(command, self._now_ms, identity, is_asked=is_asked, is_begun=is_begun)
        except DecisionFailed as failed:
            if reply_to is not None:
                # Answer at once: a waiting caller would get NOT_CONTROLLER from the resignation, and clients repeat after that.
                told = unknown_outcome(f"cut short: {failed}") if wrote else failed.refusal()
                self._world.reply(reply_to, told)
            if failed.spoils:
                raise
            self._abort_if_open(str(failed))
            return
        except Refused as refused:
            self._abort_if_open(refused.message)
            # A refusal such as "already exists" may depend on uncommitted records, so a refusal waits like an answer.
            if reply_to is not None:
                refusal = unknown_outcome(f"cut short: {refused.message}") if wrote else refused
                self.answers.wait_confirmed(reply_to, refusal, deadline_ms, wrote=wrote)
            return
        wrote = wrote or decided.wrote
        if decided.then is not None:
            then = FollowUp(decided.then, asked.reply_to, deadline_ms, identity, wrote, is_answered=is_answered)
            if self._transaction.is_open:
                self._transaction.go_on_with(then, self._now_ms)
            else:
                self._follow_ups.add(then)
            return
        self._transaction.ended()
        if reply_to is not None and decided.end is not None:
            self.answers.wait(reply_to, decided.end, decided.reply, deadline_ms, wrote=True)
        elif reply_to is not None:
            self.answers.wait_confirmed(reply_to, decided.reply, deadline_ms, wrote=wrote)

    def _abort_if_open(self, why: str) -> None:
        if self._transaction.is_open:
            self._transaction.abort(why, self._now_ms)

    # --- brokers ---------------------------------------------------------------------------------------------------

    def fetch(self, event: BrokerFetch, epoch: Epoch, now_ms: int) -> None:
        """Takes a broker's fetch while the node leads `epoch`: notes the contact, decides its changes, then serves the fetch."""
        self._now_ms = now_ms
        fetch = event.fetch
        if not self.on:
            self._world.reply(event.reply_to, MetadataFetched(FetchResult.NOT_READY, epoch, 0))
            return
        self.controller.touch(fetch.broker_id, fetch.broker_epoch, now_ms)
        contact = BrokerContact(
            broker_id=fetch.broker_id,
            broker_epoch=fetch.broker_epoch,
            incarnation_id=fetch.incarnation_id,
            offset=fetch.offset,
            wants_fence=fetch.wants_fence,
            wants_shut_down=fetch.wants_shut_down,
            offline_log_dirs=fetch.offline_log_dirs,
        )
        try:
            then = self._heard(contact)
        except DecisionFailed as failed:
            self._world.reply(event.reply_to, failed.refusal())
            raise
        except Refused as refused:
            self._world.reply(event.reply_to, refused)
            return
        if then is not None:
            self._follow_ups.add(FollowUp(then, None, now_ms + INTERNAL_DEADLINE_MS))
        self.feed.serve(event, now_ms)

    def _heard(self, contact: BrokerContact) -> Command | None:
        """Decides on a contact, and returns the rest of the decision. While a transaction is open the contact is only noted."""
        if self._transaction.is_open:
            self._deciding.hear(contact, self._now_ms)
            return None
        return self._deciding.decide(contact, self._now_ms).then

    # --- sessions of clients ---------------------------------------------------------------------------------------

    def keep_alive(self, event: KeepAlive, now_ms: int) -> None:
        """Takes a message that keeps sessions alive. Nothing is written, so the answer waits for nothing."""
        if self.on:
            self._world.reply(event.reply_to, self._keeping.keep(event.sessions, now_ms))
        else:
            text = "this controller was just elected; no session was kept alive, send again"
            self._world.reply(event.reply_to, Refused(ErrorCode.NOT_READY, text))

    # --- time and commits ------------------------------------------------------------------------------------------

    def fire_timers(self, now_ms: int) -> None:
        """Refuses requests past their deadlines, then decides at most one due command of its own."""
        self._now_ms = now_ms
        for waiting in self._waiting.expired(now_ms):
            self._world.reply(waiting.reply_to, Refused(ErrorCode.NOT_READY, EXPIRED))
        if not self.on:
            return
        self.answers.refuse_expired()
        for late in (*self._follow_ups.late(now_ms), *self._transaction.late(now_ms)):
            assert late.waiting is not None
            self._world.reply(late.waiting, unknown_outcome(GOES_ON if late.is_begun else BEHIND_ANOTHER))
        if self._follow_ups or self._transaction.is_open:
            return
        due = self._deciding.due(now_ms)
        if due is not None:
            self._decide(FollowUp(due, None, now_ms + INTERNAL_DEADLINE_MS))

    def settle(self, now_ms: int, wall_ms: int) -> None:
        """Ends a turn: continues long decisions, answers callers with committed records, then brokers, marks a snapshot."""
        self._now_ms = now_ms
        if not self._is_far_ahead:
            self._go_on_with_something()
        elif self._transaction.rest is not None:
            self._given_up_if_late(self._transaction.rest)
        self.story.applied(self._state.applied)
        self.answers.send_ready()
        if self.feed.settle(now_ms):
            self.marks.append_if_due(now_ms, wall_ms)

    @property
    def _is_far_ahead(self) -> bool:
        """True if the decisions that are made already must be committed first."""
        return self._log.end - self._state.applied > AHEAD_RECORDS_MAX

    def _go_on_with_something(self) -> None:
        rest = self._transaction.take()
        if rest is not None:
            self._go_on_with_transaction(rest)
        elif not self._transaction.is_open:
            self._go_on_with_others()
        if self._waiting and not self._transaction.keeps_requests:
            self._begin_some()
        self._follow_ups.turn_ended()

    def _go_on_with_others(self) -> None:
        """Continues a long decision. After a transaction it also decides what has fallen due meanwhile, before requests."""
        if self._transaction.owed_turns:
            self._transaction.owed_turns -= 1
        if self._follow_ups:
            if not self._follow_ups.rests():
                self._go_on(self._follow_ups.take())
        elif self._transaction.owed_turns:
            due = self._deciding.due(self._now_ms)
            if due is None:
                self._transaction.owed_turns = 0
            else:
                self._decide(FollowUp(due, None, self._now_ms + INTERNAL_DEADLINE_MS))

    def _begin_some(self) -> None:
        enough = self._log.end + BEGUN_RECORDS_PER_TURN_MAX
        for _ in range(min(len(self._waiting), BEGUN_PER_TURN_MAX)):
            if self._log.end >= enough or self._transaction.is_open:
                break
            self._begin_request(self._waiting.take())

    def _go_on(self, next_step: FollowUp) -> None:
        if next_step.is_begun:
            self._decide(next_step)
        elif next_step.deadline_ms > self._now_ms:
            self._submit(next_step)
        elif next_step.waiting is not None:
            self._world.reply(next_step.waiting, unknown_outcome(BEHIND_ANOTHER))

    def _go_on_with_transaction(self, rest: FollowUp) -> None:
        """Decides the next slice of the open transaction, or aborts the transaction if its time is over."""
        if not self._given_up_if_late(rest):
            self._decide(rest)

    def _given_up_if_late(self, rest: FollowUp) -> bool:
        """Aborts the open transaction if its time is over; `rest` is its next slice. True if the transaction is given up."""
        late = self._transaction.lateness(rest, self._now_ms)
        if not late:
            return False
        self._transaction.abort(late, self._now_ms)
        if rest.waiting is not None:
            text = f"the request was given up: {late}; nothing was done: send several smaller requests"
            refusal = Refused(ErrorCode.POLICY_VIOLATION, text)
            self.answers.wait_confirmed(rest.waiting, refusal, rest.deadline_ms)
        return True

    def make_snapshot(self, reason: str) -> None:
        """Appends a mark, so that every node writes a snapshot at the log's end (`marks`)."""
        self.marks.make(reason, self._now_ms)

    @property
    def has_more_to_do(self) -> bool:
        if self.feed.has_more_to_do:
            return True
        if self._is_far_ahead:
            return False  # the next commit is a turn
        if self._transaction.is_open:
            return self._transaction.rest is not None
        return bool(self._follow_ups or self._waiting or self._transaction.owed_turns)

    def next_deadline_ms(self) -> int | None:
        if not self.on:
            return self._waiting.deadlines.next_ms()
        return soonest(
            self._waiting.deadlines.next_ms(),
            self.answers.next_deadline_ms(),
            self._follow_ups.next_deadline_ms(),
            self._transaction.next_deadline_ms(),
            self.feed.next_deadline_ms(),
            self.controller.next_deadline_ms(),
        )
