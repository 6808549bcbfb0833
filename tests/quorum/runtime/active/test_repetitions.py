"""A request that takes several batches, and comes again between two of them, is done once, and has one answer."""

import pytest

from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId
from metadata_log.format.partition_state import ADDING
from metadata_log.format.records import METADATA_VERSION, TOPIC_RESOURCE, RequestOutcome
from quorum.controller.protocol.commands import Command, FenceBroker
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.election_commands import ElectionType, ElectLeaders, TopicPartition
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.controller.protocol.mode_commands import DrainBroker
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from quorum.runtime.active.waiting_room import COPIES_MAX
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.requests import MetadataFetch, Refused
from quorum.runtime.protocol.world import Answer, BrokerFetch, ReplyTo, Submission
from tests.quorum.runtime.active.brokers import register, uuid
from tests.quorum.runtime.lone_node import LoneNode, formatted_disk, voters_of

CONFIG = NodeConfig(
    controller=ControllerConfig(
        slice_changes_max=4, slice_partitions_max=4, transaction_slice_records=4, one_batch_records_max=4
    )
)
TOPICS = tuple(f"t{number}" for number in range(5))
PLACES = tuple((name, partition) for name in TOPICS for partition in range(4))
"""Twenty partitions. Broker 7 leads each of them, and broker 8 is in sync: five slices of everything."""


def set_retention(name: str) -> ConfigAlteration:
    return ConfigAlteration(TOPIC_RESOURCE, name, (ConfigOperation(ConfigOperationKind.SET, "retention.ms", "5"),))


LARGE: dict[str, Command] = {
    "ElectLeaders": ElectLeaders(tuple(TopicPartition(*place) for place in PLACES), ElectionType.DESIGNATED, 8),
    "AlterPartitionReassignments": AlterPartitionReassignments(tuple(Reassignment(*place, (7, 9)) for place in PLACES)),
    "UpdateFeatures": UpdateFeatures((FeatureUpdate(METADATA_VERSION, 1, UpgradeType.SAFE_DOWNGRADE),)),
    "FenceBroker": FenceBroker(7),
    "DrainBroker": DrainBroker(7),
    "CreateTopics": CreateTopics((NewTopic("large", 20, 1),)),
    "CreatePartitions": CreatePartitions((NewPartitions("t0", 20),)),
    "DeleteTopics": DeleteTopics(TOPICS),
    "AlterConfigs": AlterConfigs(tuple(set_retention(name) for name in TOPICS)),
}
"""Every kind of request with an id that is decided in slices."""


def started() -> LoneNode:
    """An active controller with brokers 7, 8 and 9 online, and the partitions `PLACES`."""
    lone = LoneNode(formatted_disk(voters_of([1])), CONFIG)
    settle(lone)
    for broker_id in (7, 8, 9):
        unfence(lone, broker_id, register(lone, broker_id))
    for name in TOPICS:
        submit(lone, CreateTopics((NewTopic(name, assignment=((7, 8),) * 4),)), None)
        settle(lone)
    assert lone.node.state.committed.partition_count == len(PLACES)
    return lone


def unfence(lone: LoneNode, broker_id: NodeId, broker_epoch: int) -> None:
    log = lone.node.log
    chain = log.chain_at(log.end)
    assert chain is not None
    where = (log.end, log.shape.last_epoch, chain)
    fetch = MetadataFetch(broker_id, broker_epoch, uuid(broker_id), *where, False, False, (), 0, 1 << 20)
    lone.turn(BrokerFetch(fetch, lone.new_reply_to()))
    settle(lone)
    assert not lone.node.state.committed.brokers[broker_id].fenced


def settle(lone: LoneNode) -> None:
    """Turns and jobs until nothing is left."""
    lone.run_until_idle()
    while lone.node.has_more_to_do:
        lone.turn()
        lone.run_until_idle()


def submission(lone: LoneNode, command: Command, identity: RequestIdentity | None) -> Submission:
    return Submission(command, lone.new_reply_to(), lone.now_ms + 60_000, identity)


def submit(lone: LoneNode, command: Command, identity: RequestIdentity | None) -> ReplyTo:
    """Submits in a turn, without the jobs that it starts."""
    asked = submission(lone, command, identity)
    lone.turn(asked)
    return asked.reply_to


def outcomes(lone: LoneNode, identity: RequestIdentity) -> int:
    """How many times the log says that the request was done."""
    records = [record for batch in lone.node.log.read(0, 1 << 24) for record in decode_batch(batch)]
    return sum(isinstance(each, RequestOutcome) and each.request_id == identity.request_id for each in records)


def identity() -> RequestIdentity:
    return RequestIdentity(bytes(15) + b"\1", bytes(32), "anonymous", 0)


@pytest.mark.parametrize("name", LARGE)
def test_a_repetition_between_two_slices_is_answered_as_the_first(name: str) -> None:
    """Two copies come in one turn, and one more in each turn until the end. All have one answer, and one outcome is written."""
    lone, command = started(), LARGE[name]
    copies = [submission(lone, command, identity()), submission(lone, command, identity())]
    lone.turn(*copies)
    asked = [copy.reply_to for copy in copies]
    turns = 0
    while lone.node.state.proposed.request_outcome(identity().request_id) is None:
        assert not lone.answers.keys() & set(asked)
        asked.append(submit(lone, command, identity()))
        turns += 1
        assert turns < 100, "the copies keep each other from the end"
    assert turns >= 2, "the copies came between the slices"
    settle(lone)

    told = [lone.answers[reply_to] for reply_to in asked]

    check_done(told[0])
    assert told == [told[0]] * len(asked)
    assert outcomes(lone, identity()) == 1
    end = lone.node.log.end
    late = submit(lone, command, identity())
    settle(lone)
    assert lone.answers[late] == told[0]
    assert lone.node.log.end == end


def check_done(answer: Answer) -> None:
    assert not isinstance(answer, Refused), answer
    for result in getattr(answer, "results", ()):
        assert not result.error, result


def test_only_so_many_copies_wait() -> None:
    """A client in a loop does not fill the memory: a copy above the bound did nothing, and may come again."""
    lone, command = started(), LARGE["ElectLeaders"]
    first = submit(lone, command, identity())
    copies = [submission(lone, command, identity()) for _ in range(COPIES_MAX + 2)]
    lone.node.turn(copies, lone.now_ms, lone.wall_ms)
    refused = [copy.reply_to for copy in copies[COPIES_MAX:]]
    assert {reply_to for reply_to, answer in lone.answers.items() if isinstance(answer, Refused)} == set(refused)
    told = lone.answers[refused[0]]
    assert isinstance(told, Refused) and told.code is ErrorCode.NOT_READY and "did nothing" in told.message
    settle(lone)
    assert {lone.answers[copy.reply_to] == lone.answers[first] for copy in copies[:COPIES_MAX]} == {True}
    late = submit(lone, command, identity())
    settle(lone)
    assert lone.answers[late] == lone.answers[first]


@pytest.mark.parametrize("name", LARGE)
def test_a_copy_with_another_payload_between_two_slices_is_refused_at_the_end(name: str) -> None:
    """Two requests share one id by mistake: only the first is done."""
    lone, command = started(), LARGE[name]
    first = submit(lone, command, identity())
    other = submit(lone, command, identity()._replace(payload_hash=b"\1" * 32))
    assert not lone.answers.keys() & {first, other}
    settle(lone)
    check_done(lone.answers[first])
    assert isinstance(lone.answers[other], Refused)
    assert outcomes(lone, identity()) == 1


def test_a_large_reassignment_is_begun_as_a_whole_by_the_leader_that_ends_it() -> None:
    """1. The leader dies between two slices: no partition is in reassignment. 2. The client repeats its request, with its id, and
    all twenty are. 3. Another client cancels one of them. 4. A late copy gets the first answer, and begins nothing again."""
    lone = started()
    submit(lone, LARGE["AlterPartitionReassignments"], identity())
    lone.finish(lone.flushes()[0])
    assert lone.node.state.transaction is not None

    again = LoneNode(lone.disk.kill(), CONFIG)
    settle(again)
    assert moving(again) == []

    first = submit(again, LARGE["AlterPartitionReassignments"], identity())
    settle(again)
    check_done(again.answers[first])
    assert len(moving(again)) == len(PLACES)
    other = submit(again, AlterPartitionReassignments((Reassignment("t0", 0, None),)), None)
    settle(again)
    check_done(again.answers[other])
    late = submit(again, LARGE["AlterPartitionReassignments"], identity())
    settle(again)
    assert again.answers[late] == again.answers[first]
    assert len(moving(again)) == len(PLACES) - 1
    assert outcomes(again, identity()) == 1


def moving(lone: LoneNode) -> list[tuple[str, int]]:
    """The partitions that get a new replica."""
    return [
        (topic.name, number)
        for topic in lone.node.state.committed.topics()
        for number, state in enumerate(topic.states())
        if state[ADDING]
    ]
