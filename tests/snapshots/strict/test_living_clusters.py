"""No false alarms: the strict replay in shares accepts all records of simulated controllers, through every kind of crash."""

import random

import pytest

from metadata_log.format.codec import decode_batch
from metadata_log.format.records import ClientSession, EndClientSession, Entity, RemoveEntity
from snapshots.format import parse_name
from snapshots.reader import read_runs
from tests.sim.cluster import Cluster
from tests.sim.nodes.controllers import SimController
from tests.sim.options import Options
from tests.snapshots.strict.shares import replay_shares

EVENTS = 1_500


pytestmark = pytest.mark.slow


def check(controller: SimController, cluster: Cluster) -> bool:
    """Replay the log of one controller's disk, on top of its snapshot if the log does not start at 0. Return True if there was
    something to replay.
    """
    log = controller.log
    start, end = log.shape.start.offset, log.shape.flushed_end
    snapshots = [parsed[0] for parsed in map(parse_name, controller.metadata.names()) if parsed and not parsed[1]]
    base = min((each for each in snapshots if each.offset >= start), default=None) if start else None
    if start and (base is None or base.offset > end):
        return False
    since = 0 if base is None else base.offset
    pieces = () if base is None else [*read_runs(controller.metadata, base)]
    batches = [batch for batch in log.read(start, 1 << 30) if since < batch.end_offset <= end]
    result = replay_shares(batches, [end], base=pieces, since=since)
    assert result.misfits == (), controller.name
    digest = cluster.laws.history.digest_at(end)
    assert digest is None or result.digests[end][0] == digest, controller.name
    return bool(batches)


def check_all(cluster: Cluster) -> int:
    """Check all controllers; return how many had something to replay."""
    return sum(check(controller, cluster) for controller in cluster.controllers)


@pytest.mark.parametrize("seed", [14, 18, 19, 23])
def test_all_that_clusters_write_fits(seed: int) -> None:
    """Elections, crashes, transactions, reassignments, modes, cleared ELRs, snapshots and retention."""
    cluster = Cluster(seed)
    cluster.run(EVENTS)
    assert check_all(cluster) > 0


@pytest.mark.parametrize("seed", [1, 2, 16])
def test_all_that_clusters_with_entities_write_fits(seed: int) -> None:
    """Sessions begin and expire, and take their ephemeral entities along; entities have a TTL, and brokers own some."""
    options = Options.draw(random.Random(seed))._replace(
        entities=True, entity_every_ms=30.0, bootstrap_level=3, feature_change_chance=0.0, old_release_chance=0.0,
        data=False, session_timeout_ms=1_500,
    )  # fmt: skip
    cluster = Cluster(seed, options)
    cluster.run(2 * EVENTS)
    assert check_all(cluster) > 0
    log = cluster.controllers[0].log
    written = {type(each) for batch in log.read(log.shape.start.offset, 1 << 30) for each in decode_batch(batch)}
    assert written & {Entity, RemoveEntity} and written & {ClientSession, EndClientSession}
