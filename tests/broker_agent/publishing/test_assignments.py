"""Assignments against a dumb twin: a reader that carries out what it is told has the roles of the image, however it reads."""

import random
from itertools import pairwise

import pytest

from broker_agent.publishing.assignments import (
    Assignment,
    AssignmentTable,
    Delete,
    Follow,
    Lead,
    ResumePoint,
    Stop,
    TopicIdPartition,
    WholeSet,
    all_assignments,
    changed_assignments,
)
from broker_agent.publishing.publishers import ImageUpdate
from metadata_log.format.ids import NO_LEADER
from metadata_log.format.records import (
    RECOVERED,
    RECOVERING,
    MetadataRecord,
    Partition,
    PartitionChange,
    RemoveTopic,
    Topic,
)
from metadata_log.image.changes import Changes
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import NOWHERE, MetadataImage, Provenance
from tests.metadata_log.image.histories import History, broker, newest_level

ME = 1
ORDERS, LOGS = b"o" * 16, b"l" * 16
DIRECTORY = b"d" * 16


class Broker:
    """The table of broker 1, which takes one image after the other."""

    def __init__(self, deletions_max: int = 10_000) -> None:
        delta = MetadataDelta(newest_level())
        for broker_id in (1, 2, 3):
            delta.replay(broker(broker_id), 0)
        self.image = delta.finish(NOWHERE)
        self.table = AssignmentTable(deletions_max)
        self.table.begin(1, 0, {})

    def write(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for offset, record in enumerate(records, self.image.offset):
            delta.replay(record, offset)
        self.take(delta.finish(Provenance(self.image.offset + len(records), 1, 1_000)))

    def take(self, image: MetadataImage) -> None:
        changes = Changes.between(self.image, image)
        self.table.add(image.offset, changed_assignments(self.image, image, changes, ME))
        self.image = image

    def news(self, since: int) -> list[str]:
        reading = self.table.after(ResumePoint(1, since))
        assert reading is not None
        return [drawn(each) for each in reading.news]


def drawn(news: object) -> str:
    if isinstance(news, Assignment):
        return f"{type(news).__name__} {news.topic}-{news.partition} {news.leader} in {news.leader_epoch}"
    assert isinstance(news, WholeSet)
    return f"WholeSet of {len(news.replicas)} at {news.offset}"


def partition(number: int, replicas: tuple[int, ...], leader: int, topic_id: bytes = ORDERS) -> Partition:
    return Partition(topic_id, number, replicas, replicas, (), (), leader, RECOVERED, 3, 0)


def test_a_replica_leads_follows_stops_and_is_deleted() -> None:
    """Each change of a partition of this broker is one assignment; partitions of others are none."""
    me = Broker()
    me.write(Topic("orders", ORDERS), partition(0, (1, 2), 2), partition(1, (1, 2), 1), partition(2, (2, 3), 2))  # 0..4
    assert me.news(0) == ["Follow orders-0 2 in 3", "Lead orders-1 1 in 3"]
    me.write(PartitionChange(ORDERS, 0, leader=1), PartitionChange(ORDERS, 2, isr=(2,)))
    assert me.news(4) == ["Lead orders-0 1 in 4"]
    me.write(PartitionChange(ORDERS, 0, leader=NO_LEADER))
    assert me.news(6) == ["Stop orders-0 None in 5"]
    me.write(PartitionChange(ORDERS, 0, leader=2))
    me.write(PartitionChange(ORDERS, 0, replicas=(2, 3), isr=(2,)))
    assert me.news(7) == ["Delete orders-0 2 in 6"]
    me.write(PartitionChange(ORDERS, 2, replicas=(2, 1)))
    me.write(RemoveTopic("orders", ORDERS), Topic("orders", LOGS), partition(0, (1,), 1, LOGS))
    assert me.news(9) == ["Delete orders-1 1 in 3", "Delete orders-2 2 in 3", "Lead orders-0 1 in 3"]


def test_an_assignment_has_everything_that_a_data_plane_needs() -> None:
    """The directory is this broker's own; the change of any field is news."""
    me = Broker()
    me.write(
        Topic("orders", ORDERS),
        Partition(ORDERS, 0, (2, 1), (1,), (), (), 1, RECOVERING, 7, 9, (b"2" * 16, DIRECTORY)),
    )
    (lead,) = (me.table.after(ResumePoint(1, 0)) or pytest.fail()).news
    assert lead == Lead(ORDERS, "orders", 0, 1, 7, 9, (2, 1), (1,), DIRECTORY, True, 2)
    assert isinstance(lead, Lead) and lead.replica == TopicIdPartition(ORDERS, 0)
    follow: Assignment = Follow(ORDERS, "orders", 0, 1, 7, 9, (2, 1), (1,), DIRECTORY, True, 2)
    assert lead != follow
    me.write(PartitionChange(ORDERS, 0, isr=(1, 2)))
    assert me.news(2) == ["Lead orders-0 1 in 7"]


def test_an_assignment_draws_itself() -> None:
    """One line for a log: what to do, with which partition, and who else has it."""
    me = Broker()
    me.write(Topic("orders", ORDERS), partition(0, (1, 2), 2), partition(1, (1, 3), 1))
    me.write(PartitionChange(ORDERS, 1, isr=(1,)))

    def lines() -> list[str]:
        return [str(each) for each in all_assignments(me.image, ME).values()]

    assert lines() == [
        "Follow orders-0 in epoch 3, led by 2: replicas 1,2, ISR 1,2",
        "Lead orders-1 in epoch 3: replicas 1,3, ISR 1",
    ]
    me.write(PartitionChange(ORDERS, 0, isr=(), leader=NO_LEADER, elr=(2,)))
    me.write(PartitionChange(ORDERS, 1, isr=(1,), leader=1, leader_recovery_state=RECOVERING))
    assert lines() == [
        "Stop orders-0 in epoch 4: replicas 1,2, ISR -",
        "Lead orders-1 in epoch 4: replicas 1,3, ISR 1, recovering",
    ]
    me.write(RemoveTopic("orders", ORDERS))
    reading = me.table.after(ResumePoint(1, me.image.offset - 1))
    assert reading is not None
    assert [str(each) for each in reading.news] == [
        "Delete orders-0 in epoch 4: replicas 1,2, ISR -",
        "Delete orders-1 in epoch 4: replicas 1,3, ISR 1, recovering",
    ]
    me.table.begin(2, 0, {})
    whole = me.table.after(None)
    assert whole is not None and [str(each) for each in whole.news] == ["WholeSet of 0 replicas at offset 0"]


def test_a_slow_reader_skips_what_is_out_of_date() -> None:
    """The newest assignment of each partition is enough, in the order of the changes."""
    me = Broker()
    me.write(Topic("orders", ORDERS), partition(0, (1, 2), 1), partition(1, (1, 2), 1))
    for leader in (2, 1, 2):
        me.write(PartitionChange(ORDERS, 0, leader=leader))
    assert me.news(3) == ["Follow orders-0 2 in 6"]
    assert me.news(0) == ["Lead orders-1 1 in 3", "Follow orders-0 2 in 6"]


def test_a_reader_that_may_have_missed_a_deletion_gets_the_whole_set() -> None:
    """So does a reader from another generation, and a reader from the future."""
    me = Broker(deletions_max=1)
    me.write(Topic("orders", ORDERS), *(partition(number, (1, 2), 1) for number in range(3)))
    for number in (0, 1):
        me.write(PartitionChange(ORDERS, number, replicas=(2,), isr=(2,), leader=2))
    assert me.news(5) == ["Delete orders-1 1 in 3"]
    assert me.news(4) == ["WholeSet of 1 at 6", "Lead orders-2 1 in 3"]
    for strange in (None, ResumePoint(2, 5), ResumePoint(1, 7)):
        reading = me.table.after(strange)
        assert reading is not None and reading.end == ResumePoint(1, 6)
        assert [drawn(each) for each in reading.news] == ["WholeSet of 1 at 6", "Lead orders-2 1 in 3"]


def test_a_new_generation_begins_with_the_whole_set_and_deletes_nothing() -> None:
    """A history that was recovered without a majority may lack a topic by accident: an operator decides about its data."""
    me = Broker()
    me.write(Topic("orders", ORDERS), partition(0, (1, 2), 1))
    me.table.begin(2, 1, {})
    reading = me.table.after(ResumePoint(1, 2))
    assert reading is not None and [drawn(each) for each in reading.news] == ["WholeSet of 0 at 1"]


class Reader:
    """The dumb twin's other half: a data plane that does as it is told, and forgets where it was from time to time."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.roles: dict[TopicIdPartition, Assignment] = {}
        self.since: ResumePoint | None = None

    def read(self, table: AssignmentTable) -> None:
        if self.dice.random() < 0.1:
            self.roles, self.since = {TopicIdPartition(b"?" * 16, 0): None}, None  # type: ignore[dict-item]
        reading = table.after(self.since)
        assert reading is not None
        offsets = [each.offset for each in reading.news if not isinstance(each, WholeSet)]
        assert all(one <= other for one, other in pairwise(offsets))
        broke_off = self.dice.random() < 0.2
        for each in reading.news:
            if broke_off and self.dice.random() < 0.1:
                return
            if isinstance(each, WholeSet):
                self.roles = {replica: role for replica, role in self.roles.items() if replica in each.replicas}
            elif isinstance(each, Delete):
                self.roles.pop(each.replica, None)
            else:
                self.roles[each.replica] = each
        self.since = reading.end


def twin(image: MetadataImage) -> dict[tuple[bytes, int], tuple[type[Assignment], int | None, int, int]]:
    """The roles of this broker, worked out from the canonical records alone."""
    roles: dict[tuple[bytes, int], tuple[type[Assignment], int | None, int, int]] = {}
    for each in image.canonical_records():
        if isinstance(each, Partition) and ME in each.replicas:
            role = Stop if each.leader == NO_LEADER else Lead if each.leader == ME else Follow
            leader = None if each.leader == NO_LEADER else each.leader
            roles[each.topic_id, each.partition] = (role, leader, each.leader_epoch, each.partition_epoch)
    return roles


@pytest.mark.parametrize("seed", range(6))
def test_replayed_assignments_give_the_roles_of_the_image(seed: int) -> None:
    """Readers at any pace, after any merging of updates, that break off and begin again, and forgotten deletions."""
    dice = random.Random(seed)
    history = History(seed).run(5)
    table, readers = AssignmentTable(deletions_max=3), [Reader(dice) for _ in range(3)]
    table.begin(1, history.image.offset, all_assignments(history.image, ME))
    done, pending, compared = history.image, None, 0
    for _ in range(150):
        before = history.image
        for record in history.next_records():
            history.append(record)
        update = ImageUpdate(before, history.image, Changes.between(before, history.image))
        pending = update if pending is None else pending.then(update)
        if dice.random() < 0.5:
            assert pending.before is done
            table.add(pending.after.offset, changed_assignments(done, pending.after, pending.changes, ME))
            done, pending = pending.after, None
            for reader in readers:
                if dice.random() < 0.4:
                    reader.read(table)
                    if reader.since == table.end:
                        told = {
                            (*key,): (type(it), it.leader, it.leader_epoch, it.partition_epoch)
                            for key, it in reader.roles.items()
                        }
                        assert told == twin(done)
                        compared += bool(told)
    assert compared > 10
