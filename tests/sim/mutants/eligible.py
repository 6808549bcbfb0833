"""Bugs of eligible leader replicas (KIP-966)."""

from collections.abc import Sequence

from metadata_log.format.partition_state import ISR, REPLICAS
from metadata_log.format.records import ClearElr, Config, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers import broker_commands
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.protocol.commands import RegisterBrokerCommand
from quorum.controller.topics import configs
from tests.sim.mutants.patching import Mutant, patched

_note_eligible = PartitionChangeBuilder._note_eligible


def _believed(old: RegisterBroker, command: RegisterBrokerCommand) -> bool:
    return False


def _kept(image: MetadataImage, records: Sequence[Config | ClearElr]) -> list[ClearElr]:
    return []


def _whoever_has_left(self: PartitionChangeBuilder) -> None:
    _note_eligible(self)
    if self._rules.keeps_elr and not self._is_unclean:
        former = {*self._state[ISR], *self._elr} - {self._distrusted}
        self._elr = tuple([each for each in self._state[REPLICAS] if each in former and each not in self._isr])


def _all_of_the_assignment(self: PartitionChangeBuilder) -> None:
    _note_eligible(self)
    if self._rules.keeps_elr and not self._isr:
        self._elr = tuple([each for each in self._state[REPLICAS] if each != self._distrusted])


ELIGIBLE: dict[str, Mutant] = {
    "crash-taken-for-clean": Mutant(
        "a broker that crashed stays an eligible leader of its partitions",
        lambda: patched(broker_commands, "may_have_lost_records", _believed),
    ),
    "elr-beside-a-large-isr": Mutant(
        "a member that leaves an ISR is an eligible leader, however large the ISR is afterwards",
        lambda: patched(PartitionChangeBuilder, "_note_eligible", _whoever_has_left),
    ),
    "elr-outlives-min-isr": Mutant(
        "a change of min.insync.replicas leaves eligible leaders that the high watermark has passed",
        lambda: patched(configs, "_clear_eligible", _kept),
    ),
    "everybody-is-eligible": Mutant(
        "when the last member leaves the ISR, every replica is an eligible leader",
        lambda: patched(PartitionChangeBuilder, "_note_eligible", _all_of_the_assignment),
    ),
}
