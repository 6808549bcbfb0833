"""A leader and two followers over logs on fake disks, with power cuts and new leaders: what is committed stays on every disk.

`PartitionLeader` and `PartitionFollower` decide, and `PartitionLog` works. All three replicas stay in the ISR here, so the high
watermark is the least durable end, and each of them may be elected. A producer sends each batch until it is acknowledged.
"""

from random import Random

import pytest

from broker_agent.replica.divergence import Diverged, Refused
from broker_agent.replica.follower import (
    BeginAt,
    FollowerEffect,
    FollowerHighWatermarkMoved,
    LogStart,
    PartitionAnswer,
    PartitionFetch,
    PartitionFollower,
    StopReplica,
    TruncateLog,
)
from broker_agent.replica.isr import PartitionMetadata
from broker_agent.replica.leader import LeaderConfig, PartitionLeader, ReplicaFetch
from broker_agent.replica.log_work import carry_out
from broker_agent.replica.partition_log import Appended, PartitionLog
from metadata_log.format.batch import Batch
from metadata_log.format.data_batch import ProducerStamp, stamp_of
from metadata_log.format.errors import ErrorCode
from tests.broker_agent.replica.partition_logs import NOW_MS, SMALL, opened, records
from tests.sim.world.disk import MemoryDirectory, PowerCut

CONFIG = SMALL._replace(segment_bytes=1_500)
IDS = (1, 2, 3)
EPOCHS = {1: 11, 2: 12, 3: 13}


class Replica:
    """One replica: a log, and a follower or a leader."""

    def __init__(self, directory: MemoryDirectory) -> None:
        self.directory = directory
        self.log: PartitionLog = opened(directory, CONFIG)
        self.high_watermark = 0
        self.follower: PartitionFollower | None = None
        self.leader: PartitionLeader | None = None

    def carry_out(self, effect: FollowerEffect) -> None:
        """Do the log's part of a follower's decision."""
        assert self.follower is not None
        assert not isinstance(effect, StopReplica), str(effect.reason)
        if isinstance(effect, FollowerHighWatermarkMoved):
            self.high_watermark = effect.high_watermark
            return
        assert not (isinstance(effect, TruncateLog | BeginAt) and effect.below_high_watermark)
        log = self.log
        ticket = carry_out(log, effect, NOW_MS)
        ticket.sync()
        assert log.complete_flush(ticket)
        for each in self.follower.log_changed(log.shape):
            self.carry_out(each)

    def batches(self) -> list[Batch]:
        found: list[Batch] = []
        place = self.log.shape.start.offset
        while more := self.log.read(place, 1 << 20, self.log.shape.end):
            found += more
            place = more[-1].end_offset
        return found


class Cluster:
    """Three replicas and one producer, driven by one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.replicas = {each: Replica(MemoryDirectory(f"/{each}")) for each in IDS}
        self.epoch = 0
        self.committed: dict[int, Batch] = {}
        self.sequence = 0
        self.in_flight: Appended | None = None
        self.lead(1)

    @property
    def leading(self) -> Replica:
        return self.replicas[self.leader_id]

    @property
    def leader(self) -> PartitionLeader:
        assert self.leading.leader is not None
        return self.leading.leader

    def lead(self, leader_id: int) -> None:
        self.epoch += 1
        self.leader_id = leader_id
        self.in_flight = None
        metadata = PartitionMetadata(leader_id, self.epoch, self.epoch, IDS, IDS)
        for each, replica in self.replicas.items():
            shape = replica.log.shape
            replica.leader = replica.follower = None
            if each == leader_id:
                replica.log.flush()
                shape, config = replica.log.shape, LeaderConfig(1 << 40, 3)
                known = min(replica.high_watermark, shape.flushed_end)
                replica.leader = PartitionLeader(each, EPOCHS[each], metadata, shape, known, config, EPOCHS, 0)
            else:
                replica.follower = PartitionFollower(leader_id, self.epoch, shape, replica.high_watermark)

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        steps = (self.produce, self.fetch, self.flush, self.delete, self.elect, self.rest)
        self.rng.choices(steps, (6, 12, 4, 0.3, 0.5, 1))[0]()
        self.check()

    def produce(self) -> None:
        """Send the next batch, or the last one again, which must not be appended twice."""
        sent = records(2, self.rng.randrange(200))
        if self.in_flight is not None and self.leader.high_watermark >= self.in_flight.end_offset:
            self.sequence += 2
            self.in_flight = None
        self.in_flight = self.leading.log.append(sent, ProducerStamp(7, 0, self.sequence), self.epoch, NOW_MS)
        self.leader.log_changed(self.leading.log.shape, 0)

    def flush(self) -> None:
        self.leading.log.flush()
        self.leader.log_changed(self.leading.log.shape, 0)
        self.note_committed()

    def fetch(self) -> None:
        self.fetch_by(self.rng.choice([each for each in IDS if each != self.leader_id]))

    def fetch_by(self, broker_id: int) -> None:
        replica, leading = self.replicas[broker_id], self.leading
        assert replica.follower is not None
        if not replica.follower.is_active:  # the log found unflushed bytes when the follower began
            replica.log.flush()
            replica.follower.log_changed(replica.log.shape)
        asked = replica.follower.next_fetch()
        verdict, _ = self.leader.fetched(ReplicaFetch(broker_id, EPOCHS[broker_id], *self.leader_view(asked)), 0)
        start = leading.log.start
        if isinstance(verdict, Diverged):
            answer = PartitionAnswer(diverged=verdict.end)
        elif isinstance(verdict, Refused):
            assert verdict.code is ErrorCode.OFFSET_OUT_OF_RANGE
            answer = PartitionAnswer(verdict.code, begin_at=LogStart(*start.start, start.chain))
        else:
            batches = leading.log.read(asked.offset, 600, leading.log.shape.end)
            answer = PartitionAnswer(ErrorCode.NONE, self.leader.high_watermark, start.start.offset, batches)
        self.note_committed()
        _, effects = replica.follower.answered(asked, answer)
        for effect in effects:
            replica.carry_out(effect)

    @staticmethod
    def leader_view(asked: PartitionFetch) -> tuple[int, int, int]:
        offset, leader_epoch, last_epoch = asked[:3]
        return leader_epoch, offset, last_epoch

    def delete(self) -> None:
        self.leading.log.delete_below(self.rng.randint(0, self.leader.high_watermark))
        self.leader.log_changed(self.leading.log.shape, 0)

    def elect(self) -> None:
        self.lead(self.rng.choice(IDS))

    def rest(self) -> None:
        self.rng.choice(list(self.replicas.values())).log.rest()

    def cut_power(self) -> None:
        """One to three machines lose power, in the middle of what they do. Then another leader is elected."""
        struck = self.rng.sample(IDS, self.rng.randint(1, 3))
        for each in struck:
            self.replicas[each].directory.cut_power_after(self.rng.randint(1, 25))
        try:
            for _ in range(30):
                self.step()
        except PowerCut:
            pass
        for each in struck:
            replica = Replica(self.replicas[each].directory.crash(self.rng))
            replica.high_watermark = replica.log.shape.start.offset
            self.replicas[each] = replica
        self.lead(self.rng.choice(IDS))

    # --- laws --------------------------------------------------------------------------------------------------------

    def note_committed(self) -> None:
        log, high_watermark = self.leading.log, self.leader.high_watermark
        place = max([log.shape.start.offset, *(batch.end_offset for batch in self.committed.values())])
        for batch in log.read(place, 1 << 30, high_watermark):
            self.committed[batch.base_offset] = batch

    def check(self) -> None:
        for each, replica in self.replicas.items():
            shape = replica.log.shape
            found = {batch.base_offset: batch for batch in replica.batches()}
            for base, batch in self.committed.items():
                assert batch.base_offset < shape.start.offset or found.get(base) == batch, f"{each} lacks {batch}"
                assert batch.end_offset <= shape.flushed_end, f"{each} has not flushed {batch}"

    def heal(self) -> None:
        for _ in range(30):
            self.flush()
            for each in IDS:
                if each != self.leader_id:
                    self.fetch_by(each)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_committed_stays_on_every_disk(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(4):
        for _ in range(40):
            cluster.step()
        cluster.cut_power()
    cluster.heal()

    logs = [replica.batches() for replica in cluster.replicas.values()]
    assert len({each[-1].chain if each else b"" for each in logs}) == 1
    assert cluster.leader.high_watermark == cluster.leading.log.shape.end
    sequences = [stamp_of(batch).base_sequence for batch in cluster.committed.values()]
    assert sequences == [2 * i for i in range(len(sequences))], "each batch is committed once, in order, without a gap"
    assert len(sequences) > 5
    for leader_id in IDS:
        before = len(cluster.committed)
        cluster.lead(leader_id)
        for _ in range(3):
            cluster.produce()
            cluster.heal()
        assert len(cluster.committed) > before, "the producer goes on with each replica as leader"


def test_a_new_replica_copies_the_log_from_the_leaders_log_start() -> None:
    cluster = Cluster(1)
    for _ in range(10):
        cluster.produce()
        cluster.heal()
    cluster.leading.log.delete_below(9)
    cluster.leader.log_changed(cluster.leading.log.shape, 0)
    fresh = Replica(MemoryDirectory("/fresh"))
    fresh.follower = PartitionFollower(cluster.leader_id, cluster.epoch, fresh.log.shape, 0)
    cluster.replicas[2] = fresh
    for _ in range(20):
        cluster.fetch_by(2)

    assert fresh.log.shape.start.offset == 8
    assert fresh.batches() == cluster.leading.batches()
    assert fresh.high_watermark == cluster.leader.high_watermark == fresh.log.shape.end
