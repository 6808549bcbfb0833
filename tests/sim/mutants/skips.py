"""Bugs of skips: who skips what, who is told, and what becomes of an image that has the effect."""

from collections.abc import Iterable

from broker_agent.store import BrokerStore
from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.format.records import SkippedBatch
from metadata_log.image.replay import ReplayResult
from metadata_log.image.skips import Skips
from metadata_log.store.log_view import LogView
from quorum.runtime.active.skipping import Skipping
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.requests import SkipRequest
from tests.sim.mutants.patching import Mutant, patched

_apply = BrokerStore.apply


def _as_if_done(self: Skips, skip: SkippedBatch) -> bool:
    return True


def _never_mind(self: Skipping, batch: Batch, request: SkipRequest) -> Offset | None:
    return None


def _deaf(self: BrokerStore, data: bytes, previous_chain: bytes, skips: Iterable[bytes] = ()) -> ReplayResult:
    return _apply(self, data, previous_chain)


def _believe_all(self: StateMachine, log: LogView, until: Offset) -> None:
    self._replay.learn(skip for _, skip in log.skipped())
    if self.poison is not None and self._replay.stopped is None:
        self.stopped = self.poison = None


def _know_none(self: StateMachine, log: LogView, until: Offset) -> None:
    return None


SKIPS: dict[str, Mutant] = {
    "image-kept-behind-a-skip": Mutant(
        "an image that has the effect of a skipped batch is not made anew",
        lambda: patched(Skips, "has_done", _as_if_done),
    ),
    "skipped-without-a-look": Mutant(
        "a leader skips any batch, whether or not its own replay stands still there",
        lambda: patched(Skipping, "_poison_at", _never_mind),
    ),
    "skip-believed-uncommitted": Mutant(
        "a batch is dropped as soon as the record that skips it is in the log, committed or not",
        lambda: patched(StateMachine, "_learn_skips", _believe_all),
    ),
    "skip-not-looked-for": Mutant(
        "a controller that stands in front of a batch does not look for its skip",
        lambda: patched(StateMachine, "_learn_skips", _know_none),
    ),
    "broker-deaf-to-skips": Mutant(
        "a broker takes no notice of the skips that come along with a batch",
        lambda: patched(BrokerStore, "apply", _deaf),
    ),
}
