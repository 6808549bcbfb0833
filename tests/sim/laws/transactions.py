"""The law of what stands inside of a transaction (C8 NothingElseInside): the records of its own request.

Replay takes every record after BeginTransaction into the transaction, and an abort deletes all of them. Example: 1. Leader 1
begins a transaction for CreateTopics. 2. Controller 3 registers, and leader 1 appends the registration. 3. Leader 1 dies, and
leader 2 aborts the transaction. 4. Controller 3 was told that it is registered, and no image has it.

The law looks at each committed batch while the transaction is open, so it need not wait for an abort.
"""

from collections.abc import Mapping
from typing import Final

from metadata_log.format.codec import decode_batch
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    Config,
    EndTransaction,
    FeatureLevel,
    Partition,
    PartitionChange,
    RemoveTopic,
    RequestOutcome,
    Topic,
)
from tests.sim.history import Step
from tests.sim.laws.broken import hold

_OWN: Final[Mapping[str, frozenset[type]]] = {
    "CreateTopics": frozenset({Topic, Config, Partition, RequestOutcome}),
    "CreatePartitions": frozenset({Partition, RequestOutcome}),
    "DeleteTopics": frozenset({RemoveTopic, RequestOutcome}),
    "AlterConfigs": frozenset({Config, PartitionChange, RequestOutcome}),
    "AlterPartitionReassignments": frozenset({PartitionChange, RequestOutcome}),
    "UpdateFeatures": frozenset({PartitionChange, FeatureLevel, RequestOutcome}),
}
"""The name of a transaction -> the types of the records that its request writes."""


class TransactionLaws:
    """Checks every committed batch, in order."""

    def __init__(self) -> None:
        self._name: str | None = None
        """The name of the transaction that is open."""

    def committed(self, step: Step) -> None:
        """Checks a newly committed batch. A batch that is not inside of a transaction has its records in the step."""
        if step.batch.is_control or (self._name is None and step.records):
            return
        for offset, record in enumerate(decode_batch(step.batch), step.batch.base_offset):
            match record:
                case BeginTransaction(name):
                    self._name = name
                case EndTransaction() | AbortTransaction():
                    self._name = None
                case _ if self._name is not None:
                    own = type(record) in _OWN[self._name]
                    text = f"{type(record).__name__} at {offset} is inside of a transaction for {self._name}"
                    hold(own, "C8 NothingElseInside", text)
