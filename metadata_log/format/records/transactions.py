"""Records that bracket others: transactions (KIP-868), and the record without effect, which this release never writes."""

from typing import Final, NamedTuple

from metadata_log.format.records.registry import record


@record(20)
class NoOp(NamedTuple):
    """A record without effect. An idle cluster writes none; replay accepts the type."""


@record(23)
class BeginTransaction(NamedTuple):
    """The following records take effect together, at `EndTransaction` (KIP-868)."""

    name: str


@record(24)
class EndTransaction(NamedTuple):
    """The open transaction takes effect."""


@record(25)
class AbortTransaction(NamedTuple):
    """The open transaction is discarded."""

    reason: str


TRANSACTION_MARKERS: Final = frozenset({BeginTransaction, EndTransaction, AbortTransaction})
"""The records at the beginning and at the end of a transaction."""
