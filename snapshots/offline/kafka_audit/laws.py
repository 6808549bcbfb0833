"""The laws of our own audit that Kafka does not promise. Each is left out, or is a finding of another severity.

The first group needs bytes that Kafka's log does not have, so those rules are never asked. The second group is asked, because the
replay cannot leave it out, and judged here.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from snapshots.offline.audit.findings import Finding, Severity

NOT_ASKED: Final[dict[str, str]] = {
    "chain-broken": "Kafka's batches have no chain",
    "segment-chain": "Kafka's segments have no header",
    "flushed-chain": "Kafka notes no durable end",
    "start-chain": "Kafka notes no chain at the log's start",
    "foreign-genesis": "Kafka's log does not name its cluster; `clusters-mixed` compares meta.properties",
    "log-too-short": "Kafka notes no durable end",
    "note-missing": "Kafka notes no durable end",
    "snapshot-above-log": "the names of Kafka's snapshots have no chain to compare",
    "snapshot-chain": "Kafka's snapshots name an offset and an epoch only",
    "snapshot-order": "Kafka's snapshots have their records in no promised order",
    "time-regression": "each leader writes the time of its own clock, and the next leader's clock may be behind",
    "batch-skipped": "Kafka skips no batch",
    "skip-of-another-batch": "Kafka skips no batch",
    "voters-replaced": "Kafka has no such recovery",
    "level-not-allowed": "Kafka's levels of metadata.version are others, and its record versions say what a reader must know",
}
"""Rule -> the reason why no audit of a log of Kafka asks it."""


class Judgement(NamedTuple):
    """The severity of a rule for a log of Kafka, and the reason."""

    severity: Severity
    reason: str


JUDGED: Final[dict[str, Judgement]] = {
    "leader-fenced": Judgement(
        Severity.INFO,
        "a broker that restarts within its session registers, is fenced, and leads on until its leaderships are moved",
    ),
    "fenced-in-isr": Judgement(Severity.INFO, "the same restart: the broker is still in its ISRs"),
    "unknown-record": Judgement(
        Severity.WARNING, "the record is of a later Kafka, which is no damage; the audit cannot judge its effect"
    ),
}
"""Rule -> another severity than in our own logs."""


def judged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Return the findings with the severities that hold for Kafka."""
    for finding in findings:
        judgement = JUDGED.get(finding.rule)
        yield finding if judgement is None else finding._replace(severity=judgement.severity)
