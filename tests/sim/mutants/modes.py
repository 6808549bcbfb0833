"""Bugs of the modes that operators give to brokers."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeAlias
from unittest import mock

from metadata_log.format.ids import NodeId, Offset, Uuid
from metadata_log.format.records import RegisterBroker
from metadata_log.image.delta import REPLAYS, MetadataDelta
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.modes import Modes
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.mode_commands import DrainBroker, Mode
from tests.sim.mutants.patching import Mutant, patched

Failing: TypeAlias = Mapping[NodeId, frozenset[Uuid]]
NOTHING: Final[Failing] = {}
_make_view = BrokerView.__init__
_drain = Modes.drain
_register = REPLAYS[RegisterBroker]


def _nobody_is_kept_out(
    self: BrokerView,
    image: MetadataImage,
    barred: frozenset[NodeId],
    drained: frozenset[NodeId],
    rng: random.Random,
    failing: Failing = NOTHING,
) -> None:
    _make_view(self, image, barred, drained, rng, failing)
    self.kept_out = frozenset()


def _nobody_rests(
    self: BrokerView,
    image: MetadataImage,
    barred: frozenset[NodeId],
    drained: frozenset[NodeId],
    rng: random.Random,
    failing: Failing = NOTHING,
) -> None:
    _make_view(self, image, barred, drained, rng, failing)
    self.resting = frozenset()
    self.may_lead = self.active


def _drained_may_be_elected(
    self: BrokerView,
    image: MetadataImage,
    barred: frozenset[NodeId],
    drained: frozenset[NodeId],
    rng: random.Random,
    failing: Failing = NOTHING,
) -> None:
    _make_view(self, image, barred, drained, rng, failing)
    self.may_lead = self.active


def _mode_first(
    self: Modes, image: MetadataImage, broker: RegisterBroker, command: DrainBroker, now_ms: int
) -> Decision:
    decision = _drain(self, image, broker, command, now_ms)
    if decision.then is None:
        return decision
    record, _ = self._set(image, broker.broker_id, Mode.MAINTENANCE, command.reason)
    return replace(decision, records=(*decision.records, *record))


def _register_without_mode(self: MetadataDelta, record: RegisterBroker, offset: Offset) -> None:
    _register.apply(self, record, offset)
    if record.broker_id in self._broker_modes:
        self._drop(self._broker_modes, record.broker_id, "mode")


@contextmanager
def _replay_without_modes() -> Iterator[None]:
    with mock.patch.dict(REPLAYS, {RegisterBroker: _register._replace(apply=_register_without_mode)}):
        yield


MODES: dict[str, Mutant] = {
    "fence-ended-by-a-fetch": Mutant(
        "a broker that an operator has fenced is unfenced by its next fetch",
        lambda: patched(BrokerView, "__init__", _nobody_is_kept_out),
    ),
    "maintenance-in-name-only": Mutant(
        "a broker in maintenance keeps its leaderships, and gets replicas",
        lambda: patched(BrokerView, "__init__", _nobody_rests),
    ),
    "drained-and-elected": Mutant(
        "an election on request, or the balancing, gives a leadership to a broker in maintenance",
        lambda: patched(BrokerView, "__init__", _drained_may_be_elected),
    ),
    "mode-before-the-moves": Mutant(
        "the mode is in the first batch of a drain, and the leaderships move later",
        lambda: patched(Modes, "drain", _mode_first),
    ),
    "mode-lost-by-a-restart": Mutant(
        "a mode ends when another process registers under the broker id",
        _replay_without_modes,
    ),
}
