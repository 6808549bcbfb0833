"""Bugs of watches and of the past: what they show, where they stop, and which positions they go on from."""

from collections.abc import Iterable, Iterator, Sequence

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.format.records import Record
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.replay import Replay, ReplayResult
from snapshots.history import past
from snapshots.history.wanted import Wanted
from tests.sim.entities import watching
from tests.sim.mutants.patching import Mutant, patched
from watches.core import changes, filters, position
from watches.core.changes import Change
from watches.core.filters import EntityFilter, Filter
from watches.core.log_plan import LogPlan
from watches.core.position import Place, Position, Verdict, verdict
from watches.core.state import state_of


def _hide_nothing(self: LogPlan, offset: Offset) -> bool:
    return False


def _stop_anywhere(self: LogPlan, offset: Offset) -> bool:
    return True


def _by_the_epoch_alone(position: Position, generation: int, place: Place) -> Verdict:
    chain = position.chain if place.chain is None else place.chain
    return verdict(position._replace(chain=chain), generation, place)


def _as_in_the_log(record: Record, offset: Offset) -> Record:
    return record


def _narrowest(entities: Iterable[EntityFilter]) -> set[EntityFilter]:
    given = set(entities)
    return {
        each
        for each in given
        if not any(other != each and other.name_prefix.startswith(each.name_prefix) for other in given)
    }


def _without_the_first(image: MetadataImage, shown: Filter) -> Iterator[Change]:
    pieces = [*state_of(image, shown)]
    return iter(pieces[1:])


def _one_more(self: Wanted, end: Offset, timestamp_ms: int) -> bool:
    return self.offset is None or end <= self.offset + 1


class _WithTheOpenOne(Replay):
    """Shows the records of the transaction that is open."""

    def apply(self, batches: Sequence[Batch]) -> ReplayResult:
        result = super().apply(batches)
        if self.open is not None:
            self.image = self.open.image
        return result


WATCHES: dict[str, Mutant] = {
    "watch-shows-the-aborted": Mutant(
        "a watch shows the records of transactions that were aborted",
        lambda: patched(LogPlan, "hides", _hide_nothing),
    ),
    "watch-stops-inside": Mutant(
        "a watch has a position inside of a transaction",
        lambda: patched(LogPlan, "may_stop_at", _stop_anywhere),
    ),
    "watch-position-without-chain": Mutant(
        "a watch goes on at a position of another history with the same epoch",
        lambda: patched(position, "verdict", _by_the_epoch_alone),
    ),
    "watch-version-of-the-log": Mutant(
        "a watch shows an entity as the log has it, without its version",
        lambda: patched(changes, "filled_in", _as_in_the_log),
    ),
    "watch-narrowest-filter": Mutant(
        "of two filters of entities a watch keeps the one that shows less",
        lambda: patched(filters, "_widest", _narrowest),
    ),
    "watch-state-with-a-gap": Mutant(
        "the state that a watch begins with lacks one record",
        lambda: patched(watching, "state_of", _without_the_first),
    ),
    "past-takes-one-more": Mutant(
        "an image of the past has the batch that ends one record above the offset",
        lambda: patched(Wanted, "reaches", _one_more),
    ),
    "past-inside-a-transaction": Mutant(
        "an image of the past has the records of a transaction that is open at the offset",
        lambda: patched(past, "Replay", _WithTheOpenOne),
    ),
}
