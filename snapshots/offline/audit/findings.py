"""The findings of an audit. The name of a rule never changes, so alerts can use it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Severity(StrEnum):
    """ERROR: a promise is broken. WARNING: needs a look. INFO: normal in a running cluster, listed for completeness."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Rule(NamedTuple):
    """A rule: the severity of a finding, and its meaning in one line."""

    severity: Severity
    meaning: str


_E, _W, _I = Severity

RULES: Final[dict[str, Rule]] = {
    "damaged-batch": Rule(_E, "bytes where an intact batch should be: length, checksum or format is wrong"),
    "offset-gap": Rule(_E, "a batch does not begin where the one before it ended: one is missing, doubled or out of order"),
    "chain-broken": Rule(_E, "a batch does not continue the hash chain of the one before it"),
    "segment-chain": Rule(_E, "a segment's header names another chain than the segment before it ends with"),
    "torn-tail": Rule(_I, "a log of Kafka ends inside a batch: an append was cut short, and Kafka cuts it at its next start"),
    "epoch-regression": Rule(_E, "an epoch is lower than one before it"),
    "time-regression": Rule(_E, "a batch is older than one before it"),
    "log-too-short": Rule(_E, "the log ends before the offset up to which it was noted as durable"),
    "note-missing": Rule(_W, "the note `flushed` is gone: the audit cannot tell if the log has lost its end"),
    "flushed-chain": Rule(_E, "the chain at the noted durable end is not the one noted there"),
    "start-chain": Rule(_E, "the chain at the log's start is not the one noted there"),
    "foreign-genesis": Rule(_E, "the log begins with another chain than this cluster's id and first voters make"),
    "history-differs": Rule(_E, "two nodes have different batches of one epoch at one offset: a history was rewritten"),
    "divergent-tail": Rule(_I, "nodes have batches of different epochs at one offset: a tail that was never committed"),
    "two-leaders": Rule(_E, "one epoch has two leaders"),
    "epoch-without-leader": Rule(_E, "an epoch does not begin with a LeaderChange"),
    "voters-changed-by-many": Rule(_E, "a voter set differs from the set before it by more than one voter"),
    "voters-replaced": Rule(_I, "`quorum recover` has made a quorum of one: what only other voters had is lost"),
    "snapshot-damaged": Rule(_E, "a snapshot does not verify"),
    "snapshot-order": Rule(_E, "a snapshot's records are not in canonical order"),
    "snapshot-boundary": Rule(_E, "a snapshot ends inside a batch of the log"),
    "snapshot-chain": Rule(_E, "a snapshot's footer has another chain than the log at its end"),
    "snapshot-state": Rule(_E, "a snapshot does not hold the state that the log makes"),
    "snapshot-differs": Rule(_E, "nodes have different files for one snapshot"),
    "snapshot-misfit": Rule(_E, "the records of the snapshot below the log do not make an image"),
    "snapshot-above-log": Rule(_W, "a snapshot ends above the log, and no audited log leads to it: nothing proves its state"),
    "no-snapshot": Rule(_E, "the log starts above 0 and no whole snapshot reaches its start"),
    "batch-skipped": Rule(_I, "an operator had a batch dropped that no node could apply: its records are lost"),
    "skip-of-another-batch": Rule(_E, "a skip names a batch that the log does not have: replay stops at the skip"),
    "unknown-record": Rule(_E, "a record of a type or version that this release does not know: replay stops there"),
    "record-malformed": Rule(_E, "the bytes of a record are not what its type needs, though the checksum is right"),
    "transaction-markers": Rule(_E, "a marker does not pair: a transaction in a transaction, or an end without a beginning"),
    "level-not-allowed": Rule(_E, "a record needs a higher metadata.version than the cluster has at that place"),
    "record-misfit": Rule(_E, "a record does not fit the state that the records before it made"),
    "reference-to-nothing": Rule(_E, "a record changes or removes what does not exist, or belongs to it"),
    "topic-name-twice": Rule(_E, "a topic is created while a topic of this name exists"),
    "topic-id-reused": Rule(_E, "a topic is created with an id that a topic has, or once had"),
    "partition-unsound": Rule(_E, "a partition cannot be in this state: leader, ISR and replicas contradict each other"),
    "leader-fenced": Rule(_E, "a fenced broker leads a partition at the end of a batch"),
    "fenced-in-isr": Rule(_W, "a fenced broker is in an ISR at the log's end"),
    "unknown-broker": Rule(_E, "a partition names a broker that is not registered"),
    "broker-epoch-reused": Rule(_E, "a process registers with a broker epoch that is neither new nor its own"),
    "broker-epoch-stale": Rule(_E, "a record changes a broker under another epoch than the broker has"),
    "dead-broker-serves": Rule(_E, "a broker process that was proved dead is unfenced, or registers again"),
    "request-done-twice": Rule(_E, "a request was done again, although its outcome was remembered"),
    "entity-conflict": Rule(_E, "an entity is created twice, or written under a creation that it does not have"),
    "owner-not-open": Rule(_E, "an ephemeral entity gets an owner whose session is not open"),
    "orphaned-entity": Rule(_E, "a session ends while it owns ephemeral entities"),
    "session-conflict": Rule(_E, "a session is opened while it is open, or ends under another epoch"),
    "number-went-back": Rule(_E, "producer ids, or the floor of epochs, do not rise"),
    "history-rewritten": Rule(_E, "the log has another history below the baseline than an earlier audit has proven"),
    "baseline-missing": Rule(_E, "the log ends below the baseline: it was cut, or restored from an older copy"),
    "baseline-snapshot": Rule(_E, "a snapshot below the baseline is another file than an earlier audit has proven"),
    "baseline-state": Rule(_E, "the log makes another state at the baseline than an earlier audit has noted"),
    "baseline-trimmed": Rule(_W, "no node has the log down to the baseline: the audits are too far apart to be joined"),
    "clusters-mixed": Rule(_E, "the directories belong to different clusters"),
}  # fmt: skip


class Neighbour(NamedTuple):
    """A record near a finding, for people."""

    offset: int
    type: str
    data: str
    """The fields as JSON, cut after some hundred characters. Secrets are not shown."""


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
    records: tuple[Neighbour, ...] = ()
    """The record at `offset` and some around it, in the log of the node. Only for findings about records."""

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a document."""
        return {**self._asdict(), "records": [each._asdict() for each in self.records]}


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings as people read them: the worst first, then by node and place."""
    severities = list(Severity)

    def rank(finding: Finding) -> tuple[int, str, str, int, int, str]:
        place = (finding.node or "", finding.file or "", finding.offset or 0, finding.position or 0)
        return (severities.index(finding.severity), *place, finding.rule)

    return tuple(sorted(findings, key=rank))


def error(
    rule: str,
    detail: str,
    *,
    node: str | None = None,
    file: str | None = None,
    position: int | None = None,
    offset: int | None = None,
    entity: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    """Make a finding, with the severity of its rule unless `severity` says otherwise."""
    return Finding(severity or RULES[rule].severity, rule, node, file, position, offset, entity, detail)
