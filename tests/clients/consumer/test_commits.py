"""What is committed is what the program has taken, never more, and at most every five seconds."""

from clients.consumer.commits import Commits
from clients.consumer.positions import Position, StoredPosition
from clients.partition_values import EndOfLog
from tests.clients.consumer.leaders import TOPIC_ID, key
from tests.clients.consumer.world import World


def reading(*values: str) -> World:
    world = World()
    for value in values:
        world.leaders.append(value)
    world.core.assign([key()])
    world.learn()
    world.run(100)
    return world


def offset(world: World) -> int | None:
    """The offset that a commit would store now."""
    found = world.core.commits.begin(world.now_ms).get(key())
    return None if found is None else found.offset


def test_the_records_that_the_program_works_on_are_not_committed() -> None:
    world = reading("a", "b", "c")
    assert len(world.core.poll(2)) == 2
    assert offset(world) == 0
    world.core.poll(2)
    assert offset(world) == 2
    world.core.poll(2)
    assert offset(world) == 3


def test_a_position_has_its_epoch_and_its_topic() -> None:
    world = reading("a")
    world.core.poll(5)
    world.core.poll(5)
    assert world.core.commits.begin(world.now_ms) == {key(): StoredPosition(1, 1, TOPIC_ID)}


def test_commits_are_an_interval_apart() -> None:
    commits = Commits(5_000, {})
    assert commits.due_ms(1_000) is None
    commits.hand_out(key(), StoredPosition(1))
    commits.take_all()
    assert commits.due_ms(1_200) == 6_000
    commits.done(commits.begin(6_000))
    assert commits.due_ms(6_000) is None
    commits.hand_out(key(), StoredPosition(2))
    commits.take_all()
    assert commits.due_ms(6_001) == 11_000


def test_nothing_new_is_not_committed() -> None:
    commits = Commits(5_000, {key(): StoredPosition(1)})
    commits.hand_out(key(), StoredPosition(1))
    commits.take_all()
    assert commits.begin(0) == {}


def test_a_failed_commit_is_repeated_after_the_interval() -> None:
    commits = Commits(5_000, {})
    commits.hand_out(key(), StoredPosition(1))
    commits.take_all()
    assert commits.begin(5_000)
    assert commits.due_ms(5_001) == 10_000
    assert commits.begin(10_000) == {key(): StoredPosition(1)}


def test_records_taken_during_a_commit_are_committed_by_the_next_one() -> None:
    commits = Commits(5_000, {})
    commits.hand_out(key(), StoredPosition(1))
    commits.take_all()
    under_way = commits.begin(5_000)
    commits.hand_out(key(), StoredPosition(2))
    commits.take_all()
    commits.done(under_way)
    assert commits.begin(10_000) == {key(): StoredPosition(2)}


def test_a_seek_is_committed_and_voids_what_was_handed_out() -> None:
    world = reading("a", "b", "c")
    world.core.poll(3)
    world.core.seek(key(), Position(1))
    assert offset(world) == 1


def test_a_seek_to_the_end_is_committed_once_the_end_is_known() -> None:
    world = reading("a", "b", "c")
    world.core.poll(1)
    world.core.seek_to(key(), EndOfLog.LATEST)
    assert offset(world) == 0
    world.run(50)
    assert offset(world) == 3


def test_a_partition_that_is_assigned_again_goes_on_where_the_program_was() -> None:
    world = reading("a", "b", "c")
    world.core.poll(2)
    world.core.poll(0)
    world.core.assign([])
    world.core.assign([key()])
    assert world.values() == ["c"]
