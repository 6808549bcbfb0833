"""The first active controller of a generation raises all epochs, before it decides anything else."""

from metadata_log.disk.identity import Identity
from metadata_log.format.codec import decode_batch
from metadata_log.format.records import AbortTransaction, EpochFloor, EpochsRaised
from quorum.controller.partitions.epoch_raise import STEP
from quorum.controller.protocol.commands import AllocateProducerIds, AllocateProducerIdsReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.topic_commands import CreateTopics, CreateTopicsReply, NewTopic
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.world import BrokerFetch, Submission
from tests.quorum.runtime.active.brokers import register
from tests.quorum.runtime.active.test_transactions import fetch_of
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

CONFIG = NodeConfig(controller=ControllerConfig(transaction_slice_records=4, session_timeout_ms=90_000))


def started(disk: MemoryDirectory, generation: int) -> LoneNode:
    return LoneNode(disk, CONFIG, identity=Identity(CLUSTER_ID, 1, directory_id(1), generation, "controller"))


def settle(lone: LoneNode) -> None:
    lone.run_until_idle()
    while lone.node.has_more_to_do:
        lone.turn()
        lone.run_until_idle()


def with_topics(disk: MemoryDirectory) -> int:
    """A cluster with three topics, broker 7 and a block of producer ids. Returns the broker's epoch."""
    lone = started(disk, generation=1)
    settle(lone)
    epoch = register(lone, 7)
    lone.turn(BrokerFetch(fetch_of(lone, 7, epoch), lone.new_reply_to()))
    settle(lone)
    topics = tuple(NewTopic(f"t{number}", assignment=((7,),)) for number in range(3))
    created = lone.new_reply_to()
    lone.turn(Submission(CreateTopics(topics), created, lone.now_ms + 9_000))
    settle(lone)
    answer = lone.answers[created]
    assert isinstance(answer, CreateTopicsReply) and [each.partitions for each in answer.results] == [1, 1, 1]
    assert allocated(lone, epoch) == 0
    return epoch


def allocated(lone: LoneNode, broker_epoch: int) -> int:
    asked = lone.new_reply_to()
    lone.turn(Submission(AllocateProducerIds(7, broker_epoch), asked, lone.now_ms + 9_000))
    settle(lone)
    answer = lone.answers[asked]
    assert isinstance(answer, AllocateProducerIdsReply), answer
    return answer.first_producer_id


def epochs(lone: LoneNode) -> set[int]:
    image = lone.node.state.committed
    return {epoch for topic in image.topics() for each in topic.partitions() for epoch in each[8:10]}


def written(lone: LoneNode) -> list[type]:
    return [type(record) for batch in lone.node.log.read(0, 1 << 20) for record in decode_batch(batch)]


def test_the_first_leader_of_a_generation_raises_the_epochs_and_the_next_one_does_not() -> None:
    disk = formatted_disk(voters_of([1]))
    broker_epoch = with_topics(disk)
    recovered = started(disk, generation=3)
    settle(recovered)
    assert epochs(recovered) == {2 * STEP}
    assert allocated(recovered, broker_epoch) == 2 * STEP
    assert written(recovered).count(EpochsRaised) == 3

    restarted = started(disk, generation=3)
    settle(restarted)
    assert epochs(restarted) == {2 * STEP}
    assert written(restarted).count(EpochFloor) == 1


def test_no_request_is_decided_before_the_epochs_are_raised() -> None:
    """A broker asks for producer ids as soon as the node runs. The next block of the old range may be in the hands of a producer,
    and its record lost."""
    disk = formatted_disk(voters_of([1]))
    broker_epoch = with_topics(disk)
    recovered = started(disk, generation=3)
    assert allocated(recovered, broker_epoch) == 2 * STEP


def test_a_raise_that_was_cut_short_is_aborted_and_begun_again() -> None:
    """The node dies between two slices. Then no epoch is raised, and the next leader raises all."""
    disk = formatted_disk(voters_of([1]))
    with_topics(disk)
    dying = started(disk, generation=3)
    for _ in range(100):
        if EpochsRaised in written(dying):
            break
        if dying.jobs:
            dying.finish(dying.jobs[0])
        else:
            dying.turn()
    assert dying.node.state.transaction is not None, "another slice was to come"
    assert epochs(dying) == {0}, "a raise takes effect as a whole"

    restarted = started(disk, generation=3)
    settle(restarted)
    assert epochs(restarted) == {2 * STEP}
    assert written(restarted).count(EpochFloor) == 2, "that of the aborted transaction, and the one that counts"


def test_a_raise_that_takes_long_is_not_given_up() -> None:
    """The disk is slow, and 2,000,000 partitions take minutes. Without the raise the next decisions would give old numbers."""
    disk = formatted_disk(voters_of([1]))
    broker_epoch = with_topics(disk)
    slow = started(disk, generation=3)
    for _ in range(100):
        if EpochsRaised in written(slow):
            break
        if slow.jobs:
            slow.finish(slow.jobs[0])
        else:
            slow.turn()
    assert slow.node.state.transaction is not None, "another slice was to come"
    slow.now_ms += CONFIG.controller.transaction_timeout_ms + 1
    settle(slow)
    assert epochs(slow) == {2 * STEP}
    assert allocated(slow, broker_epoch) == 2 * STEP
    assert AbortTransaction not in written(slow)
