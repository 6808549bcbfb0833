"""Bugs of features: levels that rise over nodes, fall over records, and registrations that are lost."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from metadata_log.format.errors import ErrorCode
from metadata_log.image import delta
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.features import support, updates
from quorum.controller.features.losses import Found
from quorum.controller.partitions.reassignment import reassignments
from quorum.controller.protocol.commands import RegisterControllerCommand
from quorum.controller.protocol.feature_commands import LookedAt
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.registration import Registration
from tests.sim.mutants.patching import Mutant, patched

_ended = Registration._ended
_brokers = support._brokers


def _online_only(image: MetadataImage, name: str, level: int) -> Iterator[str]:
    for text in _brokers(image, name, level):
        if not image.brokers[int(text.split()[1])].fenced:
            yield text


def _ended_for_good(self: Registration, error: ErrorCode | None) -> None:
    _ended(self, error)
    self._asked = True


def _nothing_found(image: MetadataImage, lowered: Mapping[str, int], looked_at: LookedAt, partitions_max: int) -> Found:
    return Found(is_complete=True)


def _register_at_once(self: ActiveController, command: RegisterControllerCommand, now_ms: int) -> None:
    self._now_ms = now_ms
    self._deciding.decide(command, now_ms)


@contextmanager
def _without_a_gate() -> Iterator[None]:
    with (
        patched(reassignments, "require_level", lambda image, level, what: None),
        patched(delta, "level_problem", lambda record, level: None),
    ):
        yield


FEATURES: dict[str, Mutant] = {
    "written-above-the-level": Mutant(
        "a reassignment begins at level 1, and no replay minds",
        _without_a_gate,
    ),
    "raised-over-fenced-brokers": Mutant(
        "a level rises although a fenced broker does not support it",
        lambda: patched(support, "_brokers", _online_only),
    ),
    "raised-over-old-voters": Mutant(
        "a level rises although a voter does not support it",
        lambda: patched(support, "_voters", lambda image, voters, name, level: iter(())),
    ),
    "added-without-features": Mutant(
        "a controller becomes a voter although it has not registered that it supports the cluster's level",
        lambda: patched(Registration, "judge", lambda self, newcomer: None),
    ),
    "registered-once": Mutant(
        "a controller registers with one leader only, and never asks again",
        lambda: patched(Registration, "_ended", _ended_for_good),
    ),
    "registered-inside-a-transaction": Mutant(
        "a controller's registration is taken between the slices of a transaction",
        lambda: patched(ActiveController, "register", _register_at_once),
    ),
    "lowered-without-a-look": Mutant(
        "a level falls although partitions need it",
        lambda: patched(updates, "find_losses", _nothing_found),
    ),
}
