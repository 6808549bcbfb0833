"""The observer of committed records accuses what is wrong, and only that."""

import pytest

from broker_agent.replica.partition_log import PartitionLog
from metadata_log.format.data_batch import DataRecord, ProducerStamp, pack_records
from tests.sim.laws.broken import LawBroken
from tests.sim.laws.partitions.committed import CommittedRecords
from tests.sim.world.disk import MemoryDirectory

TOPIC = bytes(16)


def log_of(*sequences: int, epoch: int = 1) -> PartitionLog:
    """A log with a record of producer 7 for each sequence, whatever a leader would have said."""
    disk = MemoryDirectory()
    disk.stop_reserving()
    log = PartitionLog.open(disk, TOPIC, 0, wall_ms=0)
    for sequence in sequences:
        records = pack_records([DataRecord(1, None, f"{sequence}".encode())])
        log._producers.begin_at(log.shape.end)
        log._producers.states.is_complete = False
        log.append(records, ProducerStamp(7, 0, sequence), epoch, 0)
    log.flush()
    return log


def test_two_replicas_with_the_same_records_are_one_history() -> None:
    """The second replica is compared by its chain, and may know less."""
    known = CommittedRecords("orders-0")
    known.moved("b101", log_of(0, 1, 2), 1, 3)
    known.moved("b102", log_of(0, 1), 1, 2)

    assert (known.end, [batch.base_offset for batch in known.batches]) == (3, [0, 1, 2])
    assert known.batch_with(1) == known.batches[1]


def test_other_records_below_a_high_watermark_are_an_offence() -> None:
    """P3: the second replica has a record of another leader epoch at offset 0."""
    known = CommittedRecords("orders-0")
    known.moved("b101", log_of(0, 1), 1, 2)

    with pytest.raises(LawBroken, match="P3 SameBelowHW: b102: orders-0 has other records below 2"):
        known.moved("b102", log_of(0, 1, epoch=2), 2, 2)


@pytest.mark.parametrize(("sequences", "law"), [((0, 2), "P7 NoGap"), ((0, 1, 1), "P7 NoDuplicate")])
def test_the_sequences_of_a_producer_follow_each_other(sequences: tuple[int, ...], law: str) -> None:
    """P7: a gap, and a repetition."""
    with pytest.raises(LawBroken, match=law):
        CommittedRecords("orders-0").moved("b101", log_of(*sequences), 1, len(sequences))


def test_a_leader_must_have_what_earlier_epochs_have_committed() -> None:
    """P1: a leader of epoch 2 needs what epoch 1 has committed, and not what epoch 3 has."""
    known = CommittedRecords("orders-0")
    log = log_of(0, 1, 2)
    known.moved("b101", log, 1, 1)
    known.moved("b101", log, 3, 3)

    assert [known.end_before(epoch) for epoch in (1, 2, 3, 4)] == [0, 1, 1, 3]
    assert known.has(log_of(0), known.end_before(2))
    assert not known.has(log_of(0), known.end_before(4))
