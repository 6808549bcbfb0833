"""From a command to a batch in the log: decided, staged and sealed, and only then appended.

    recall --> decide --> stage --> seal -->|--> append --> propose
          nothing is in the log yet         |   the log has the batch, and the image must follow

*Left of the line* an unexpected error (an accident) costs one request. The active controller refuses the request with
UNKNOWN_SERVER_ERROR, counts the accident, logs the traceback, and shows a problem. *Right of the line* log and image may
disagree: the process stops, and a restart opens the log anew. So a command's answer and its story are made on the left, too, and
`Deciding._guarded` runs the whole left side: for commands, for repeated requests, and for snapshot marks. (Requests about the
quorum have the same line in `quorum.core.membership`.)

An accident may leave the controller's soft state half changed. For example, the first slice of a fencing bars the broker and
moves the walk over the partitions on; if the second half raises an error, the walk has passed partitions without writing their
changes. So the leader resigns after an accident in such a decision (`DECIDED_BY_IMAGE_ALONE` names the harmless decisions), and
after an accident in a decision that no client or broker asked for. The next leader builds its soft state from the image.

Example with controllers 1, 2 and 3, leader 1:
    1. a client's request for topic "x" meets a bug in this program, a KeyError: the client receives UNKNOWN_SERVER_ERROR, does
       not repeat the request, and node 1 leads on;
    2. a fetch of broker 7 meets another bug: leader 1 refuses the fetch, and resigns;
    3. broker 7 asks the next leader 2, which resigns, too, and then leader 3;
    4. each of the three controllers decides nothing for broker 7 for a minute. So the three resign at most three times a minute,
       and serve all other brokers meanwhile.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from metadata_log.format.batch import Batch
from metadata_log.format.errors import BatchTooLarge, ErrorCode
from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    EndTransaction,
    MetadataRecord,
    SnapshotMark,
)
from quorum.controller.controller import DECIDED_BY_IMAGE_ALONE, Controller
from quorum.controller.protocol.commands import BrokerContact, Command, CommandReply, RegisterBrokerCommand
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_commands import UpdateFeatures
from quorum.controller.protocol.happenings import Happening
from quorum.controller.protocol.request_outcomes import (
    RequestIdentity,
    earlier_outcome,
    is_done,
    outcome_of,
    recalled,
)
from quorum.runtime.active.proposals import Proposals
from quorum.runtime.active.story import Story
from quorum.runtime.image.state_machine import Staged
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.requests import Refused

logger = logging.getLogger(__name__)

T = TypeVar("T")

SHUNNED_MS: Final = 60_000
"""How long a controller decides nothing for a broker, after a request of the broker has made the controller resign."""
SHOWN_MS: Final = 600_000
"""How long an accident is shown among the node's problems."""
LOG_INTERVAL_MS: Final = 1_000
"""How long no second traceback is logged, so that a client with a harmful request cannot fill the disk."""
ABORT_REASON_CHARS_MAX: Final = 200
"""Maximum length of the reason in an AbortTransaction, which stays in the log."""
COMMAND_CHARS_MAX: Final = 200
"""Maximum length of a command in the log line of an accident."""


class DecisionFailed(Exception):
    """Raised after an unexpected error in a decision; nothing was appended. The text is the error, in one line."""

    def __init__(self, text: str, *, spoils: bool) -> None:
        super().__init__(text)
        self.spoils = spoils
        """True if the node must resign: the controller's soft state may be half changed, or no client can be refused."""

    def refusal(self) -> Refused:
        """The answer to the client or broker."""
        text = (
            f"internal error of this controller ({self}); nothing was done now: do not repeat the request, "
            "and report the traceback in its log"
        )
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text)


class Accidents:
    """The failed decisions since the process started."""

    def __init__(self) -> None:
        self.count = 0
        self._last = ""
        self._last_ms = 0
        self._logged_ms: int | None = None
        self._shunned_until_ms: dict[NodeId, int] = {}

    def note(self, what: object, error: Exception, now_ms: int, *, spoils: bool) -> DecisionFailed:
        """Counts and logs an accident, and remembers the broker if its request makes the leader resign.

        `what`: the command or the request, or a text that names other work of the controller.
        """
        self.count += 1
        name = what if isinstance(what, str) else type(what).__name__
        self._last, self._last_ms = f"{name}: {error!r:.200}", now_ms
        if self._logged_ms is None or now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            text = "decision %d that failed, nothing was appended: %s"
            logger.error(text, self.count, f"{what!r:.{COMMAND_CHARS_MAX}}", exc_info=error)
        if spoils and isinstance(what, BrokerContact | RegisterBrokerCommand):
            still = {broker_id: until_ms for broker_id, until_ms in self._shunned_until_ms.items() if until_ms > now_ms}
            self._shunned_until_ms = still | {what.broker_id: now_ms + SHUNNED_MS}
        return DecisionFailed(self._last, spoils=spoils)

    def check_not_shunned(self, broker_id: NodeId, now_ms: int) -> None:
        """Raises Refused if an earlier request of the broker made the controller resign less than SHUNNED_MS ago."""
        until_ms = self._shunned_until_ms.get(broker_id, 0)
        if until_ms <= now_ms:
            return
        text = (
            f"an earlier request of broker {broker_id} ended in an internal error and made this controller resign "
            f"({self._last}); nothing was done: ask again in {until_ms - now_ms} ms, and report the traceback in its log"
        )
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text)

    def problem(self, now_ms: int) -> str:
        """The last failed decision, in one sentence; empty `SHOWN_MS` after the last accident."""
        if not self.count or now_ms - self._last_ms >= SHOWN_MS:
            return ""
        # The text has no number: a text that changes with every failure would be a new line in the log for every failure.
        return f"a decision of this controller failed by an internal error ({self._last}); its log has the traceback"


class Prepared(NamedTuple):
    """A decision that is not written yet. A decision without records has neither change nor batch."""

    decision: Decision
    staged: Staged | None = None
    batch: Batch | None = None


class Decided(NamedTuple):
    """All that a command leads to. Before the append nothing but this tuple exists."""

    reply: CommandReply
    then: Command | None = None
    story: tuple[Happening, ...] = ()
    prepared: Prepared | None = None
    """None for a repeated request: `reply` is its first answer, and the log has its records already."""

    @property
    def end(self) -> Offset | None:
        """The end of the batch; None without a batch."""
        batch = None if self.prepared is None else self.prepared.batch
        return None if batch is None else batch.end_offset

    @property
    def wrote(self) -> bool:
        """True if the log has records of the command, from now or from an earlier attempt."""
        return self.prepared is None or self.end is not None


class Deciding:
    """Takes commands to the log, for the active controller."""

    def __init__(self, parts: Parts, controller: Controller, proposals: Proposals, story: Story) -> None:
        self.accidents = Accidents()
        self._controller = controller
        self._outcomes_max = parts.config.controller.request_outcomes_max
        self._log, self._state, self._time = parts.log, parts.state, parts.time
        self._core = parts.core
        self._proposals = proposals
        self._story = story

    def decide(
        self,
        command: Command,
        now_ms: int,
        identity: RequestIdentity | None = None,
        *,
        is_asked: bool = True,
        is_begun: bool = False,
    ) -> Decided:
        """Decides, and appends the records. A request that was decided before gets its first answer.

        `is_asked` is True for a command of a client or broker, `is_begun` for a later step of a decision.

        Raises:
            Refused: nothing was done. A client's mistake never costs the leadership (KAFKA-14996).
            DecisionFailed: nothing was done, because of a bug in this program.
        """
        if isinstance(command, BrokerContact | RegisterBrokerCommand):
            self.accidents.check_not_shunned(command.broker_id, now_ms)
        spoils = not (is_asked and isinstance(command, DECIDED_BY_IMAGE_ALONE))
        asked_anew = None if is_begun else identity
        decided = self._guarded(
            lambda: self._recalled(command, asked_anew) or self._prepare(command, now_ms, identity),
            command,
            now_ms,
            spoils=spoils,
        )
        if decided.prepared is not None:
            self._write(decided.prepared)
        if decided.story:
            self._story.appended(decided.story, self._log.end, identity)
        return decided

    def abort(self, reason: str, now_ms: int) -> None:
        """Aborts the open transaction. Raises Refused: the disk has no room, and the node resigns in this turn. Raises
        DecisionFailed: the node must resign.
        """
        record = AbortTransaction(reason[:ABORT_REASON_CHARS_MAX])
        staged, batch = self._guarded(
            lambda: (self._state.stage([record], self._log.end), self._proposals.seal([record])),
            "the end of a transaction",
            now_ms,
            spoils=True,
        )
        self._proposals.append(batch)
        self._state.propose(staged, batch)

    def hear(self, contact: BrokerContact, now_ms: int) -> None:
        """Notes a broker's contact without a decision. Raises Refused and DecisionFailed, as `decide`."""
        self.accidents.check_not_shunned(contact.broker_id, now_ms)
        self._guarded(
            lambda: self._controller.hear(self._state.proposed, contact, now_ms), contact, now_ms, spoils=True
        )

    def mark(self, reason: str, now_ms: int, *, is_asked: bool) -> Offset:
        """Appends a snapshot mark, and returns its end. Raises Refused and DecisionFailed, as `decide`."""
        batch = self._guarded(
            lambda: self._proposals.seal([SnapshotMark(reason)]), "a snapshot mark", now_ms, spoils=not is_asked
        )
        self._proposals.append(batch)
        self._state.propose(None, batch, is_mark=True)
        return batch.end_offset

    def due(self, now_ms: int) -> Command | None:
        """The command that the controller itself finds due, if any. Raises DecisionFailed."""
        try:
            return self._controller.due(self._state.proposed, now_ms)
        except Exception as e:  # as in `_guarded`
            raise self.accidents.note("the look for what is due", e, now_ms, spoils=True) from e

    def _guarded(self, left_of_the_line: Callable[[], T], what: Command | str, now_ms: int, *, spoils: bool) -> T:
        """Runs all that comes before an append. Raises Refused and DecisionFailed, as `decide`."""
        try:
            return left_of_the_line()
        except ControllerError as e:
            raise Refused(e.code, e.message) from e
        except Exception as e:  # nothing was appended: the error is logged, and costs one request
            if isinstance(e, BatchTooLarge) and not spoils:
                raise Refused(ErrorCode.RECORD_BATCH_TOO_LARGE, f"{e}; nothing was done") from e
            raise self.accidents.note(what, e, now_ms, spoils=spoils) from e

    def _recalled(self, command: Command, identity: RequestIdentity | None) -> Decided | None:
        """The first answer to a repeated request; None if the request was certainly not done before, or has no id."""
        earlier = None if identity is None else earlier_outcome(self._state.proposed, identity)
        return None if earlier is None else Decided(recalled(command, earlier))

    def _prepare(self, command: Command, now_ms: int, identity: RequestIdentity | None) -> Decided:
        image = self._state.proposed
        if isinstance(command, UpdateFeatures):
            command = replace(command, voters=tuple(sorted(self._core.voters.keys)))
        decision = self._controller.decide(image, command, now_ms, self._time.wall_ms)
        records = decision.records
        if identity is not None and decision.then is None and is_done(command, decision.reply):
            records = (*records, outcome_of(image, identity, decision.reply, self._outcomes_max))
        if decision.transaction:
            records = self._marked(decision, records)
        prepared = self._staged(decision, records) if records else Prepared(decision)
        end = self._log.end if prepared.batch is None else prepared.batch.end_offset
        # A repeated request is answered with the offset after its outcome, and EndTransaction follows the outcome.
        seen_from = end - 1 if decision.transaction else end
        base = None if prepared.batch is None else prepared.batch.base_offset
        return Decided(decision.answer(seen_from, base), decision.then, decision.story(end), prepared)

    def _marked(self, decision: Decision, records: Sequence[MetadataRecord]) -> tuple[MetadataRecord, ...]:
        """The records of a slice, with the markers of its transaction: one before the first slice, one after the last."""
        begin = () if self._state.transaction else (BeginTransaction(decision.transaction),)
        end = () if decision.then else (EndTransaction(),)
        return (*begin, *records, *end)

    def _staged(self, decision: Decision, records: Sequence[MetadataRecord]) -> Prepared:
        """Raises LogFormatError: the records do not fit the image (InvalidRecord), or no batch (BatchTooLarge)."""
        staged = self._state.stage(records, self._log.end)
        return Prepared(decision, staged, self._proposals.seal(records))

    def _write(self, prepared: Prepared) -> None:
        """Appends the batch, if any. Raises Refused: the disk has no room, and the node resigns in this turn."""
        if prepared.batch is not None:
            self._proposals.append(prepared.batch)
            self._state.propose(prepared.staged, prepared.batch)
