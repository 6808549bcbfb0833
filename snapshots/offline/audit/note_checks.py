"""Checks of the small files beside the segments, `flushed` and `log-start`, and of the cluster's genesis chain."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.store.log_notes import FLUSHED_NAME
from snapshots.format import BOOTSTRAP_END, genesis
from snapshots.offline.audit.batch_checks import NodeBatches
from snapshots.offline.audit.batches import Batches
from snapshots.offline.audit.findings import Finding, error
from snapshots.offline.committed import heard_epoch
from snapshots.offline.inputs import NodeLog
from snapshots.reader import read_meta


def check_notes(logs: Iterable[NodeLog], batches: Batches, nodes: dict[str, NodeBatches]) -> list[Finding]:
    """Return the findings of all nodes; `nodes` has the numbers of their batches."""
    logs = tuple(logs)
    noted = {log.flushed.end for log in logs if log.flushed} | {log.start.start.offset for log in logs if log.start}
    chains = batches.chains_at(noted)
    damaged = {(each.node, each.offset) for each in batches.findings if each.rule == "damaged-batch"}
    found: list[Finding] = []
    for log in logs:
        found += _check_flushed(log, nodes.get(log.node))
        found += _check_ends(log, chains, nodes.get(log.node), damaged)
        found += _check_genesis(log, nodes.get(log.node))
    return found


def _check_flushed(log: NodeLog, numbers: NodeBatches | None) -> Iterator[Finding]:
    """Find a log without `flushed`. A node makes the note before it appends or votes. Without the note, a log that somebody has
    cut at the end of a batch looks whole. A note that a power cut has torn is none, too, and healthy.
    """
    if log.flushed is None and not log.directory.exists(FLUSHED_NAME):
        heard = 0
        with suppress(LogFormatError):
            heard = heard_epoch(log)
        if numbers is not None or heard > 0:
            end = numbers.end_offset if numbers else log.start_offset
            what = (
                "has no note `flushed`"
                if numbers
                else f"has heard of epoch {heard}, and has no note `flushed`, and no record"
            )
            yield _at("note-missing", log, end, f"the node {what}; compare the end with the other nodes' ends")


def _check_ends(
    log: NodeLog,
    chains: dict[tuple[str, Offset], bytes],
    numbers: NodeBatches | None,
    damaged: set[tuple[str | None, Offset | None]],
) -> Iterator[Finding]:
    """Check the noted ends. `damaged` has the places of damage: a log that ends there is not too short, it is damaged."""
    end = numbers.end_offset if numbers else log.start_offset
    flushed, start = log.flushed, log.start
    if flushed is not None and end < flushed.end and (log.node, end) not in damaged:
        yield _at("log-too-short", log, end, f"the log ends at {end}; all below {flushed.end} was durable once")
    if flushed is not None and chains.get((log.node, flushed.end), flushed.chain) != flushed.chain:
        yield _at("flushed-chain", log, flushed.end, "`flushed` notes another chain than the log has")
    if start is not None and chains.get((log.node, start.start.offset), start.chain) != start.chain:
        yield _at("start-chain", log, start.start.offset, "`log-start` notes another chain than the log has")


def _check_genesis(log: NodeLog, numbers: NodeBatches | None) -> Iterator[Finding]:
    """Check that the log begins with the genesis chain of this cluster, if that chain is known."""
    identity = log.identity
    if numbers is None or identity is None or numbers.first_offset != 0 or numbers.first_previous_chain is None:
        return
    expected = identity.genesis_chain
    if not expected and log.has_bootstrap:
        try:
            expected = genesis(identity.cluster_id, read_meta(log.directory, BOOTSTRAP_END).voters)
        except LogFormatError as e:
            yield _at("snapshot-damaged", log, 0, str(e))
    if expected and expected != numbers.first_previous_chain:
        yield _at("foreign-genesis", log, 0, f"the first batch continues {numbers.first_previous_chain.hex()[:16]}")


def _at(rule: str, log: NodeLog, offset: Offset, detail: str) -> Finding:
    file = next((s.name for s in reversed(log.segments) if s.base_offset <= offset), None)
    return error(rule, detail, node=log.node, file=file, offset=offset)
