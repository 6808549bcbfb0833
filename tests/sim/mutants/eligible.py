"""Bugs of eligible leader replicas (KIP-966)."""

from collections.abc import Iterable, Sequence

from metadata_log.format.ids import Uuid
from metadata_log.format.partition_state import ISR, REPLICAS, PartitionState
from metadata_log.format.records import Config, PartitionChange, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.brokers import registrations
from quorum.controller.features import updates
from quorum.controller.partitions import elr_clearing
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.protocol.commands import RegisterBrokerCommand
from quorum.controller.topics import configs
from tests.sim.mutants.patching import Mutant, patched

_note_eligible = PartitionChangeBuilder._note_eligible


def _believed(old: RegisterBroker, command: RegisterBrokerCommand) -> bool:
    return False


def _none(image: MetadataImage, changed: Sequence[Config]) -> Iterable[TopicImage]:
    return ()


def _whoever_has_left(self: PartitionChangeBuilder) -> None:
    _note_eligible(self)
    if self._rules.keeps_elr and not self._is_unclean:
        former = {*self._state[ISR], *self._elr} - {self._distrusted}
        self._elr = tuple([each for each in self._state[REPLICAS] if each in former and each not in self._isr])


def _all_of_the_assignment(self: PartitionChangeBuilder) -> None:
    _note_eligible(self)
    if self._rules.keeps_elr and not self._isr:
        self._elr = tuple([each for each in self._state[REPLICAS] if each != self._distrusted])


def _as_clear_elr(topic_id: Uuid, partition: int, state: PartitionState) -> PartitionChange:
    return PartitionChange(topic_id, partition, elr=(), last_known_elr=())


ELIGIBLE: dict[str, Mutant] = {
    "crash-taken-for-clean": Mutant(
        "a broker that crashed stays an eligible leader of its partitions",
        lambda: patched(registrations, "may_have_lost_records", _believed),
    ),
    "elr-beside-a-large-isr": Mutant(
        "a member that leaves an ISR is an eligible leader, however large the ISR is afterwards",
        lambda: patched(PartitionChangeBuilder, "_note_eligible", _whoever_has_left),
    ),
    "elr-outlives-min-isr": Mutant(
        "a change of min.insync.replicas leaves eligible leaders that the high watermark has passed",
        lambda: patched(configs, "_losing_elr", _none),
    ),
    "elr-cleared-in-later-batches": Mutant(
        "a change of min.insync.replicas that clears many ELRs is several batches, and no transaction",
        lambda: patched(configs, "_TRANSACTION", ""),
    ),
    "elr-outlives-its-feature": Mutant(
        "the end of the feature leaves the eligible leaders, which nobody takes for safe any more",
        lambda: patched(updates, "cleared", lambda topics, records_max: iter(())),
    ),
    "safe-leaders-lost": Mutant(
        "when eligible leaders are cleared, a partition without a leader loses all safe leaders that it has",
        lambda: patched(elr_clearing, "_without_elr", _as_clear_elr),
    ),
    "everybody-is-eligible": Mutant(
        "when the last member leaves the ISR, every replica is an eligible leader",
        lambda: patched(PartitionChangeBuilder, "_note_eligible", _all_of_the_assignment),
    ),
}
