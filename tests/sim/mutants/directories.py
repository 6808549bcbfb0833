"""Bugs of log directories (KIP-858)."""

from collections.abc import Set
from dataclasses import replace

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.partition_state import NodeIds
from metadata_log.format.records import BrokerRegistrationChange, RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.lost_directories import LostDirectories
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.partitions.partition_changes import PartitionChangeBuilder
from quorum.controller.protocol.commands import BrokerContactReply
from quorum.controller.protocol.decision import Decision
from tests.sim.mutants.patching import Mutant, patched

_lose = LostDirectories.lose


def _everybody(self: BrokerView, replicas: NodeIds, directories: tuple[Uuid, ...], brokers: Set[NodeId]) -> Set[NodeId]:
    return brokers


def _registration_of(broker: RegisterBroker, directories: frozenset[Uuid]) -> BrokerRegistrationChange:
    kept = tuple(each for each in broker.log_dirs if each not in directories)
    return BrokerRegistrationChange(broker.broker_id, broker.broker_epoch, log_dirs=kept)


def _registration_alone(
    self: LostDirectories, image: MetadataImage, broker: RegisterBroker, directories: frozenset[Uuid], now_ms: int
) -> Decision:
    return Decision((_registration_of(broker, directories),), BrokerContactReply())


def _registration_first(
    self: LostDirectories, image: MetadataImage, broker: RegisterBroker, directories: frozenset[Uuid], now_ms: int
) -> Decision:
    decision = _lose(self, image, broker, directories, now_ms)
    if decision.then is None:
        return decision
    return replace(decision, records=(_registration_of(broker, directories), *decision.records))


def _leaving_the_isr_only(self: PartitionChangeBuilder, broker_id: NodeId) -> PartitionChangeBuilder:
    return self.without(broker_id)


DIRECTORIES: dict[str, Mutant] = {
    "offline-directory-leads": Mutant(
        "a replica in an offline log directory may be elected, and enter ISRs",
        lambda: patched(BrokerView, "present_in", _everybody),
    ),
    "lost-directory-keeps-its-leaders": Mutant(
        "a lost log directory leaves the registration, and its replicas go on leading",
        lambda: patched(LostDirectories, "lose", _registration_alone),
    ),
    "directory-lost-before-its-leaders": Mutant(
        "a lost log directory leaves the registration in the first batch, and its leaderships move later",
        lambda: patched(LostDirectories, "lose", _registration_first),
    ),
    "lost-replica-is-eligible": Mutant(
        "a replica in a lost log directory stays an eligible leader",
        lambda: patched(PartitionChangeBuilder, "leaving", _leaving_the_isr_only),
    ),
}
