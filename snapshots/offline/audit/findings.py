"""The findings of an audit. The name of a rule never changes, so alerts can use it."""

from enum import StrEnum
from typing import Final, NamedTuple


class Severity(StrEnum):
    """ERROR: a promise is broken. WARNING: needs a look. INFO: normal in a running cluster, listed for completeness."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


RULES: Final = {
    "damaged-batch": "bytes where an intact batch should be: length, checksum or format is wrong",
    "offset-gap": "a batch does not begin where the one before it ended: one is missing, doubled or out of order",
    "chain-broken": "a batch does not continue the hash chain of the one before it",
    "segment-chain": "a segment's header names another chain than the segment before it ends with",
    "epoch-regression": "an epoch is lower than one before it",
    "time-regression": "a batch is older than one before it",
    "log-too-short": "the log ends before the offset up to which it was noted as durable",
    "flushed-chain": "the chain at the noted durable end is not the one noted there",
    "start-chain": "the chain at the log's start is not the one noted there",
    "foreign-genesis": "the log begins with another chain than this cluster's id and first voters make",
    "history-differs": "two nodes have different batches of one epoch at one offset: a history was rewritten",
    "divergent-tail": "nodes have batches of different epochs at one offset: a tail that was never committed",
    "two-leaders": "one epoch has two leaders",
    "epoch-without-leader": "an epoch does not begin with a LeaderChange",
    "snapshot-damaged": "a snapshot does not verify",
    "snapshot-order": "a snapshot's records are not in canonical order",
    "snapshot-boundary": "a snapshot ends inside a batch of the log",
    "snapshot-chain": "a snapshot's footer has another chain than the log at its end",
    "snapshot-state": "a snapshot does not hold the state that the log makes",
    "snapshot-differs": "nodes have different files for one snapshot",
    "no-snapshot": "the log starts above 0 and no whole snapshot reaches its start",
    "batch-skipped": "an operator had a batch dropped that no node could apply: its records are lost",
    "record-misfit": "a record does not fit the state that the records before it made",
    "fenced-in-isr": "a fenced broker is in an ISR",
    "unknown-broker": "a replica is on a broker that was never registered",
    "orphaned-entity": "an ephemeral entity has outlived the session that owns it",
    "clusters-mixed": "the directories belong to different clusters",
}


class Finding(NamedTuple):
    """One finding. Fields that do not apply are None."""

    severity: Severity
    rule: str
    node: str | None
    file: str | None
    position: int | None
    """The byte in `file`."""
    offset: int | None
    """The offset in the log; for damage, the offset up to which the log is intact."""
    entity: str | None
    detail: str


def error(
    rule: str,
    detail: str,
    *,
    node: str | None = None,
    file: str | None = None,
    position: int | None = None,
    offset: int | None = None,
    entity: str | None = None,
    severity: Severity = Severity.ERROR,
) -> Finding:
    """Make a finding; an error unless `severity` says otherwise."""
    assert rule in RULES, rule
    return Finding(severity, rule, node, file, position, offset, entity, detail)
