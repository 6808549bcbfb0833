"""Healthy logs of many kinds, and their audits. Each finding except an INFO is a false alarm.

The kinds:
    simulated     the disks of a simulated cluster, controllers and brokers, after crashes, power cuts, truncations and
                  retention; no bits rot, because a rotten bit is a finding
    trimmed       nodes that have moved a part of their log to `archive/`, each another part
    written       a node appends, flushes, cuts its tail and seals segments while the audit reads
    two nights    the audit notes a baseline; the cluster goes on and removes its old log; the next audit continues it
    compacted     the logs of a simulated cluster are compacted, each to a snapshot that its controller has: another file
                  than the controller's own is a false alarm, too
"""

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from metadata_log.disk.files import RealDirectory
from metadata_log.format.records import NoOp
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from snapshots.offline.audit.baseline_checks import AgainstBaseline
from snapshots.offline.audit.findings import Severity
from snapshots.offline.audit.result import AuditResult
from snapshots.offline.audit.run import audit
from snapshots.offline.compaction import compact
from snapshots.offline.inputs import METADATA_DIRECTORY, find_log, find_logs
from tests.sim.cluster import Cluster
from tests.sim.options import Options
from tests.sim.world.disk import MemoryDirectory
from tests.snapshots.nodes import Node, copies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: Final = LogConfig(segment_bytes=8 << 10, tail_bytes=1 << 10)


class Round(NamedTuple):
    """One audit, or several of the same logs."""

    kind: str
    seed: int
    logs: int
    alarms: tuple[str, ...]
    """What the audits found, and should not have."""


Audits = Callable[["SparkSession", int, Path], tuple[int, list[str]]]


def errors(result: AuditResult) -> list[str]:
    return [f"{f.rule} {f.node} {f.detail}" for f in result.findings if f.severity is not Severity.INFO]


def export(disk: MemoryDirectory, path: Path) -> Path:
    """Write the simulated disk to a real directory."""
    path.mkdir(parents=True)
    for name in disk.names():
        entry = disk._entries[name]
        if isinstance(entry, MemoryDirectory):
            export(entry, path / name)
        else:
            (path / name).write_bytes(bytes(entry.current))
    return path


@contextmanager
def being_written(path: Path, node: Node) -> Iterator[None]:
    """One thread appends, flushes, cuts its unflushed tail and seals segments of the log in `path`, a copy of `node`'s."""
    log = Log.open(RealDirectory(path / METADATA_DIRECTORY), config=SMALL)
    is_over, has_begun = threading.Event(), threading.Event()

    def write() -> None:
        dice, ends = node.dice, [log.shape.end]
        while not is_over.is_set():
            log.append([NoOp()] * dice.randint(1, 40), node.epoch, node.wall_ms + len(ends))
            ends.append(log.shape.end)
            if dice.random() < 0.8:
                log.flush()
            elif len(ends) > 3:
                del ends[-dice.randint(1, 2) :]
                log.truncate(ends[-1])  # a follower cuts a tail that its leader does not have
            if len(ends) > 20:
                has_begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert has_begun.wait(30)
    try:
        yield
    finally:
        is_over.set()
        writer.join()
        log.close()


def trim(path: Path, number: int) -> bool:
    """Let the node remove its log below its snapshot of this number, and the snapshots below. Return True if it had something to
    remove.
    """
    with_log = RealDirectory(path / METADATA_DIRECTORY)
    snapshot = find_logs([str(path)])[0].snapshots[number]
    log = Log.open(with_log, config=SMALL)
    log.note_snapshot(snapshot)
    removed = log.drop_prefix(snapshot)
    log.close()
    return bool(removed)


# --- kinds ------------------------------------------------------------------------------------------------------------


def _simulated(spark: "SparkSession", seed: int, root: Path) -> tuple[int, list[str]]:
    drawn = Options.draw(random.Random(seed))
    cluster = Cluster(seed, drawn._replace(rot_every_ms=0.0, broker_disk_trouble_every_ms=0.0))
    cluster.run(1_200)
    disks = {each.name: each.disk for each in cluster.controllers}
    disks |= {each.name: each.disk for each in cluster.brokers.values()}
    paths = [export(disk, root / name) for name, disk in disks.items()]
    whole = [str(path) for path in paths if _has_log(path)]
    return len(whole), errors(audit(spark, whole))


def _compacted(spark: "SparkSession", seed: int, root: Path) -> tuple[int, list[str]]:
    cluster = Cluster(seed, Options.draw(random.Random(seed))._replace(rot_every_ms=0.0))
    cluster.run(1_500)
    logs, found = 0, []
    for controller in cluster.controllers:
        log = find_log(str(export(controller.disk, root / controller.name)))
        ends = [end.offset for end in log.snapshots if log.start_offset < end.offset <= (log.durable_end or 0)]
        if ends:
            compacted = compact(spark, log.path, ends[-1], str(root / "out"))
            logs += 1
            if compacted.same_as_source is not True:
                found.append(f"{controller.name}: the compacted file at {ends[-1]} is not the controller's")
    return logs, found


def _has_log(path: Path) -> bool:
    """Return False for a broker that never came to its first record."""
    return (path / METADATA_DIRECTORY).is_dir() and any((path / METADATA_DIRECTORY).glob("*.log"))


def _trimmed(spark: "SparkSession", seed: int, root: Path) -> tuple[int, list[str]]:
    node = Node(root / "node", seed, config=SMALL).live(30)
    paths = copies(node, root)
    trim(paths[1], 0)
    trim(paths[2], 1)
    return len(paths), errors(audit(spark, [str(path) for path in paths]))


def _written(spark: "SparkSession", seed: int, root: Path) -> tuple[int, list[str]]:
    node = Node(root / "node", seed, config=SMALL).live(15)
    paths = copies(node, root)
    with being_written(paths[0], node):
        result = audit(spark, [str(path) for path in paths])
    return len(paths), errors(result)


def _two_nights(spark: "SparkSession", seed: int, root: Path) -> tuple[int, list[str]]:
    node = Node(root / "node", seed, config=SMALL).live(20)
    first = [str(path) for path in copies(node, root / "first")]
    result = audit(spark, [], against=AgainstBaseline(None, find_logs(first), is_full=False))
    found = errors(result)
    baseline = None if result.baseline is None else result.baseline.after
    if baseline is None:
        return len(first), [*found, "no baseline after the first night"]
    for leader_id in (2, 3):
        node.elect(leader_id)
        node.work(20)
        node.mark()
    second = copies(node, root / "second")
    trim(second[1], 1)
    paths = [str(path) for path in second]
    result = audit(spark, [], against=AgainstBaseline(baseline, find_logs(paths), is_full=False))
    after = None if result.baseline is None else result.baseline.after
    if after is None or after.end <= baseline.end:
        found.append("the baseline did not move")
    return len(first) + len(second), [*found, *errors(result)]


KINDS: Final[dict[str, Audits]] = {
    "simulated": _simulated,
    "trimmed": _trimmed,
    "written": _written,
    "two nights": _two_nights,
    "compacted": _compacted,
}
_CHOICES: Final = ("simulated", "simulated", "trimmed", "simulated", "written", "simulated", "two nights")
"""Most logs are those of simulated clusters: the simulator has the controllers' own code and every kind of crash."""


def rounds(
    spark: "SparkSession", count: int, root: Path, *, first: int = 1, only: str | None = None
) -> Iterator[Round]:
    """Read at least `count` healthy logs, seed after seed, of all kinds but "compacted", or `only` of one. The directories of
    rounds without an alarm are removed.
    """
    done, seed = 0, first
    while done < count:
        kind = only or _CHOICES[random.Random(seed).randrange(len(_CHOICES))]
        place = root / f"{kind.replace(' ', '-')}-{seed}"
        logs, alarms = KINDS[kind](spark, seed, place)
        if not alarms:
            shutil.rmtree(place, ignore_errors=True)
        yield Round(kind, seed, logs, tuple(alarms))
        done, seed = done + logs, seed + 1
