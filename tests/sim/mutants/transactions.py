"""Bugs of metadata transactions: what is decided inside of them, what is seen of them, and who ends them."""

from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import OpenTransaction, Replay
from quorum.runtime.active.decisions import Decided
from quorum.runtime.active.marks import Marks
from quorum.runtime.active.transactions import OpenDecision
from quorum.runtime.image.state_machine import StateMachine
from tests.sim.mutants.patching import Mutant, patched

_begin_proposing = StateMachine.begin_proposing
_adopt = Replay.adopt


def _begin_without_a_look_at_the_log(self: StateMachine) -> None:
    self._replay.adopt(self._replay.image, self._replay.end)
    _begin_proposing(self)


def _end_of_all_but_the_last_slice(self: Decided) -> Offset | None:
    prepared = self.prepared
    if prepared is None or prepared.batch is None:
        return None
    is_last = prepared.staged is not None and prepared.staged.ends
    return prepared.batch.base_offset if is_last else prepared.batch.end_offset


def _show_what_is_applied(self: StateMachine) -> MetadataImage:
    transaction = self._replay.open
    return self._replay.image if transaction is None else transaction.image


def _adopt_without_the_transaction(
    self: Replay, image: MetadataImage, end: Provenance | None = None, transaction: OpenTransaction | None = None
) -> None:
    _adopt(self, image, end)


def _append_if_due_at_once(self: Marks, now_ms: int, wall_ms: int) -> None:
    due = None if self._pending else self._snapshotter.mark_due(self._state, wall_ms)
    if due is not None:
        self.append(due.reason, now_ms, is_asked=False)


TRANSACTIONS: dict[str, Mutant] = {
    "decision-inside-a-transaction": Mutant(
        "other requests are decided between the slices of a transaction",
        lambda: patched(OpenDecision, "is_open", property(lambda self: False)),
    ),
    "open-transaction-taken-over": Mutant(
        "a new active controller does not see that the log ends inside of a transaction, and does not abort it",
        lambda: patched(StateMachine, "begin_proposing", _begin_without_a_look_at_the_log),
    ),
    "answer-before-the-end-of-a-transaction": Mutant(
        "a large request is answered when all its slices but the last are committed",
        lambda: patched(Decided, "end", property(_end_of_all_but_the_last_slice)),
    ),
    "open-transaction-shown": Mutant(
        "the committed image has the records of a transaction that is open",
        lambda: patched(StateMachine, "committed", property(_show_what_is_applied)),
    ),
    "deposed-inside-a-transaction": Mutant(
        "a leader that is deposed inside of its transaction follows the log as if none were open",
        lambda: patched(Replay, "adopt", _adopt_without_the_transaction),
    ),
    "mark-inside-a-transaction": Mutant(
        "a snapshot that is due is marked although a transaction is open",
        lambda: patched(Marks, "append_if_due", _append_if_due_at_once),
    ),
}
