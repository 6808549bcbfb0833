"""The checks of the audit over whole logs in this process: all but the bytes and the snapshots, which Spark's tasks read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from snapshots.offline.audit.batch_checks import Held, Places, check_skips
from snapshots.offline.audit.batches import WholeBatches
from snapshots.offline.audit.findings import Finding
from snapshots.offline.audit.leader_checks import check_beginnings, check_named_skips, check_voters, leaders_of
from snapshots.offline.audit.state_checks import check_state, placed
from snapshots.offline.inputs import NodeLog, find_logs
from snapshots.offline.look import agree, joined
from snapshots.offline.reading.options import parse_options
from snapshots.offline.reading.tables import TableReader
from tests.snapshots.nodes import batches_of, segments
from tests.snapshots.strict.shares import replay_shares


class BatchesInProcess(WholeBatches):
    """The batches of whole logs. The rows come from the files, not from Spark."""

    def __init__(self, paths: list[Path], logs: tuple[NodeLog, ...]) -> None:
        whole = joined([log.node for log in logs], _stretches(paths))
        assert whole is not None
        assert agree(whole.values())
        self._held: list[tuple[str, str, int, Batch]] = [
            (log.node, segment.name, position, batch)
            for log, path in zip(logs, paths, strict=True)
            for segment in segments(path)
            for position, batch in batches_of(segment)
        ]
        super().__init__(None, logs, "flushed", whole, set())

    def places_of(self, offsets: Iterable[Offset]) -> Places:
        found: dict[Offset, dict[str, Held]] = {}
        for offset in set(offsets):
            for node, name, position, batch in self._held:
                if batch.base_offset <= offset < batch.end_offset:
                    held = Held(name, position, batch.base_offset, batch.epoch, batch.chain)
                    found.setdefault(offset, {})[node] = held
        return found


def findings_in_process(paths: list[Path]) -> list[Finding]:
    """Return the findings in the records of these logs, which start at 0."""
    logs = find_logs([str(path) for path in paths])
    named = {log.node: log for log in logs}
    batches = BatchesInProcess(paths, logs)
    punctuation = batches.punctuation()
    _, beginnings, found = leaders_of(punctuation)
    found += check_beginnings(named, batches.firsts(), beginnings)
    found += placed(check_voters(logs, punctuation), batches)
    wrong_skips = [*placed(check_named_skips(named, batches, punctuation), batches)]
    found += [*wrong_skips, *check_skips(punctuation, {each.offset or 0 for each in wrong_skips})]
    log = [batch for segment in segments(paths[0]) for _, batch in batches_of(segment)]
    replayed = replay_shares(log, [log[-1].end_offset])
    return [*found, *check_state(named, batches, logs[0].node, replayed, (), {})]


def _stretches(paths: list[Path]) -> list[dict[str, Any]]:
    settings = {"path": json.dumps([str(path) for path in paths]), "mode": "stretches", "until": "flushed"}
    reader = TableReader(parse_options(settings))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
