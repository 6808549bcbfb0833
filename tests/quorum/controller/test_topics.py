"""Topics: what is created, and every way of being refused, with its text."""

from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import Config, Partition, RemoveTopic, Topic
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.topic_commands import (
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    DeleteTopics,
    DeleteTopicsReply,
    NewPartitions,
    NewTopic,
)
from tests.quorum.controller.cluster import Cluster, Run


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def create(cluster: Cluster, *topics: NewTopic, validate_only: bool = False) -> tuple[Run, CreateTopicsReply]:
    run = cluster.run(CreateTopics(topics, validate_only))
    assert isinstance(run.reply, CreateTopicsReply)
    return run, run.reply


def test_a_topic_is_a_topic_its_configs_and_its_partitions(cluster: Cluster) -> None:
    """One batch, in that order; epochs 0, everybody in sync, the first replica leads."""
    run, reply = create(cluster, NewTopic("orders", 2, 3, configs=(("retention.ms", "1000"),)))
    topic_id = reply.results[0].topic_id

    assert run.records[:2] == [Topic("orders", topic_id), Config(2, "orders", "retention.ms", "1000")]
    for number, record in enumerate(run.records[2:]):
        assert isinstance(record, Partition)
        assert record == Partition(
            topic_id, number, record.replicas, record.replicas, (), (), record.replicas[0], 0, 0, 0
        )
    assert reply.offset == cluster.image.offset
    assert (reply.results[0].partitions, reply.results[0].replication_factor) == (2, 3)


def test_defaults_stand_for_minus_one(cluster: Cluster) -> None:
    """-1 partitions and replicas are what the controller's configuration says."""
    _, reply = create(cluster, NewTopic("t"))

    assert (reply.results[0].partitions, reply.results[0].replication_factor) == (1, 3)


def test_good_topics_commit_beside_bad_ones(cluster: Cluster) -> None:
    """Errors are per topic; what is good is one batch."""
    run, reply = create(cluster, NewTopic("a", 1, 1), NewTopic("b", 0, 1), NewTopic("c", 1, 1))

    assert [result.error for result in reply.results] == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS, ErrorCode.NONE]
    assert run.steps == 1
    assert [topic.name for topic in cluster.image.topics()] == ["a", "c"]


def test_validate_only_writes_nothing(cluster: Cluster) -> None:
    """The answer is as if, the log as before."""
    run, reply = create(cluster, NewTopic("a", 5, 2), NewTopic("..", 1, 1), validate_only=True)

    assert run.records == []
    assert [result.error for result in reply.results] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert (reply.results[0].partitions, reply.results[0].replication_factor) == (5, 2)


TOPIC = ErrorCode.INVALID_TOPIC_EXCEPTION
ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT

BAD_TOPICS = [
    (NewTopic(""), TOPIC, "topic name '' is empty: 1 to 249 characters are allowed"),
    (NewTopic("."), TOPIC, "topic name '.' is not allowed: a directory could not be called so"),
    (NewTopic(".."), TOPIC, "topic name '..' is not allowed: a directory could not be called so"),
    (NewTopic("x" * 250), TOPIC, f"topic name '{'x' * 40}'... has 250 characters: at most 249 are allowed"),
    (
        NewTopic("a b"),
        TOPIC,
        "topic name 'a b' has the character ' ': only A-Z, a-z, 0-9, '.', '_' and '-' are allowed",
    ),
    (
        NewTopic("naïve"),
        TOPIC,
        "topic name 'naïve' has the character 'ï': only A-Z, a-z, 0-9, '.', '_' and '-' are allowed",
    ),
    (
        NewTopic("a\n"),
        TOPIC,
        r"topic name 'a\n' has the character '\n': only A-Z, a-z, 0-9, '.', '_' and '-' are allowed",
    ),
    (NewTopic("@metadata"), TOPIC, "topic name '@metadata' is the name of the metadata log itself"),
    (NewTopic("__cluster_metadata"), TOPIC, "topic name '__cluster_metadata' is the name of the metadata log itself"),
    (NewTopic("there_is"), ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'there_is' exists already"),
    (NewTopic("there.is"), TOPIC, "topic name 'there.is' collides with 'there_is': metrics can't tell '.' from '_'"),
    (
        NewTopic("t", 0, 1),
        ErrorCode.INVALID_PARTITIONS,
        "topic 't': partitions is 0: it must be at least 1, or -1 for the default",
    ),
    (
        NewTopic("t", -2, 1),
        ErrorCode.INVALID_PARTITIONS,
        "topic 't': partitions is -2: it must be at least 1, or -1 for the default",
    ),
    (
        NewTopic("t", 1, 0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "topic 't': replication factor is 0: it must be at least 1, or -1 for the default",
    ),
    (
        NewTopic("t", 1, 4),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "topic 't': replication factor is 4, but only 3 brokers are registered",
    ),
    (
        NewTopic("t", 1, 101),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "topic 't': replication factor is 101: at most 100 is allowed",
    ),
    (
        NewTopic("t", assignment=((0, 1), ())),
        ASSIGNMENT,
        "topic 't': the assignment of partition 1 has 0 replicas: 1 to 100 are allowed",
    ),
    (
        NewTopic("t", assignment=((0, 0),)),
        ASSIGNMENT,
        "topic 't': the assignment of partition 0 names broker 0 more than once",
    ),
    (
        NewTopic("t", assignment=((0, 1), (0,))),
        ASSIGNMENT,
        "topic 't': the assignment of partition 1 has 1 replicas; the others have 2, and all must have the same number",
    ),
    (
        NewTopic("t", assignment=((0, 9),)),
        ASSIGNMENT,
        "topic 't': the assignment of partition 0 names broker 9, which is not registered",
    ),
    (
        NewTopic("t", 2, -1, assignment=((0, 1),)),
        ErrorCode.INVALID_REQUEST,
        "topic 't': partitions is 2, but the assignment has 1: leave it at -1 beside an assignment",
    ),
    (
        NewTopic("t", -1, 3, assignment=((0, 1),)),
        ErrorCode.INVALID_REQUEST,
        "topic 't': replication factor is 3, but the assignment has 2: leave it at -1 beside an assignment",
    ),
    (
        NewTopic("t", configs=(("retention.mss", "1"),)),
        ErrorCode.INVALID_CONFIG,
        "topic 't': unknown topic config 'retention.mss'; did you mean 'retention.ms'?",
    ),
    (
        NewTopic("t", configs=(("retention.ms", "a week"),)),
        ErrorCode.INVALID_CONFIG,
        "topic 't': config retention.ms is 'a week': it must be a whole number, at least -1 (and below 2**63)",
    ),
    (
        NewTopic("t", configs=(("retention.ms", "1"), ("retention.ms", "2"))),
        ErrorCode.INVALID_CONFIG,
        "topic 't': config retention.ms is given twice",
    ),
]


@pytest.mark.parametrize(("topic", "error", "message"), BAD_TOPICS, ids=lambda value: str(value)[:40])
def test_a_bad_topic_is_told_why(cluster: Cluster, topic: NewTopic, error: ErrorCode, message: str) -> None:
    """Field, value and limit; and nothing is written."""
    cluster.create("there_is", 1, 1)
    run, reply = create(cluster, topic)

    assert (reply.results[0].error, reply.results[0].message) == (error, message)
    assert run.records == []


def test_names_may_be_249_long_and_collide_with_none(cluster: Cluster) -> None:
    """The limit itself is allowed; a name full of separators is compared with all names."""
    cluster.create("x" * 249, 1, 1)
    cluster.create("a.b.c.d.e.f.g.h.i.j.k", 1, 1)
    result = cluster.create_one(NewTopic("a_b.c.d.e.f.g.h.i.j.k", 1, 1))

    assert result.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "collides with 'a.b.c.d.e.f.g.h.i.j.k'" in result.message


def test_a_name_twice_in_a_request(cluster: Cluster) -> None:
    """Neither is created: which of the two would it be?"""
    run, reply = create(cluster, NewTopic("t", 1, 1), NewTopic("t", 2, 1), NewTopic("u", 1, 1))

    assert [result.error for result in reply.results] == [ErrorCode.INVALID_REQUEST] * 2 + [ErrorCode.NONE]
    assert reply.results[0].message == "topic 't' is named 2 times in this request"
    assert len(run.records) == 2


def test_names_that_collide_within_a_request(cluster: Cluster) -> None:
    """The first one wins."""
    _, reply = create(cluster, NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1))

    assert [result.error for result in reply.results] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_too_many_partitions_for_one_request_at_the_first_level() -> None:
    """The limit is 10,000 over all topics, and the text says so; partitions, topics and configs share one batch."""
    cluster = Cluster(3, config=ControllerConfig(bootstrap_metadata_version=1))
    with pytest.raises(ControllerError) as refused:
        create(cluster, NewTopic("big", 20_000, 1))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert refused.value.message == (
        "the request asks for 20,000 partitions; at most 10,000 are allowed in one request; nothing was done"
    )

    with pytest.raises(ControllerError) as refused:
        create(cluster, *(NewTopic(f"t{number}", 1, 1, configs=(("retention.ms", "1"),)) for number in range(4_000)))
    assert refused.value.message == (
        "the request needs 12,000 records (4,000 partitions, 4,000 topics, 4,000 configs); it is one atomic batch, "
        "which holds at most 11,999; nothing was done: send several requests"
    )

    with pytest.raises(ControllerError) as refused:
        cluster.create("small", 1, 1)
        cluster.run(CreatePartitions((NewPartitions("small", 10_002),)))
    assert "10,001 partitions" in refused.value.message


def test_all_brokers_fenced() -> None:
    """Nobody could lead; the text says what stands in the way."""
    cluster = Cluster(0)
    assert cluster.create_one(NewTopic("t", 1, 1)).message == (
        "topic 't': replication factor is 1, but only 0 brokers are registered"
    )
    cluster.register(0)
    assert cluster.create_one(NewTopic("t", 1, 1)).message == (
        "topic 't': all registered brokers (1) are fenced or shutting down; at least one must be online to lead its partitions"
    )
    cluster.register(1)
    assert cluster.create_one(NewTopic("t", 1, 2)).message == (
        "topic 't': all registered brokers (2) are fenced or shutting down; at least one must be online to lead its partitions"
    )
    assert cluster.create_one(NewTopic("t", assignment=((0, 1),))).message == (
        "topic 't': the assignment of partition 0 names only brokers that are fenced, shutting down or in maintenance (0, 1): "
        "one must be online"
    )


def test_fenced_replicas_are_assigned_but_not_in_sync(cluster: Cluster) -> None:
    """A broker that is away for a moment gets its share, and joins the ISR when it has caught up."""
    cluster.contact(1, wants_fence=True)
    cluster.create("t", 3, 3)
    for partition in cluster.partitions("t"):
        assert 1 in partition.replicas
        assert set(partition.isr) == {0, 2}
        assert partition.leader == partition.isr[0]


def test_partitions_only_grow(cluster: Cluster) -> None:
    """New partitions have as many replicas as partition 0, and numbers that go on."""
    cluster.create("t", 2, 2)
    reply = cluster.ask(CreatePartitions((NewPartitions("t", 5),)), CreatePartitionsReply)

    assert (reply.results[0].error, reply.results[0].partitions) == (ErrorCode.NONE, 5)
    assert [len(partition.replicas) for partition in cluster.partitions("t")] == [2] * 5


@pytest.mark.parametrize(
    ("grow", "error", "message"),
    [
        (NewPartitions("x", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'x'"),
        (
            NewPartitions("t", 2),
            ErrorCode.INVALID_PARTITIONS,
            "topic 't' is to have 2 partitions, but it has 2 already",
        ),
        (
            NewPartitions("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            "topic 't' is to have 1 partitions, but it has 2, and partitions can't be taken away",
        ),
        (
            NewPartitions("t", 4, ((0, 1),)),
            ASSIGNMENT,
            "topic 't' gets 2 new partitions, but the assignment is for 1",
        ),
        (
            NewPartitions("t", 3, ((0,),)),
            ASSIGNMENT,
            "topic 't': the assignment of partition 2 has 1 replicas; the others have 2, and all must have the same number",
        ),
    ],
)
def test_a_bad_growth_is_told_why(cluster: Cluster, grow: NewPartitions, error: ErrorCode, message: str) -> None:
    """And nothing is written."""
    cluster.create("t", 2, 2)
    run = cluster.run(CreatePartitions((grow,)))
    assert isinstance(run.reply, CreatePartitionsReply)

    assert (run.reply.results[0].error, run.reply.results[0].message) == (error, message)
    assert run.records == []


def test_growth_validated_or_named_twice_writes_nothing(cluster: Cluster) -> None:
    """Like creation."""
    cluster.create("t", 2, 2)

    assert cluster.run(CreatePartitions((NewPartitions("t", 4),), validate_only=True)).records == []
    twice = cluster.ask(CreatePartitions((NewPartitions("t", 4), NewPartitions("t", 5))), CreatePartitionsReply)
    assert [result.error for result in twice.results] == [ErrorCode.INVALID_REQUEST] * 2
    by_hand = cluster.ask(CreatePartitions((NewPartitions("t", 3, ((2, 0),)),)), CreatePartitionsReply)
    assert by_hand.results[0].error is ErrorCode.NONE
    assert cluster.partitions("t")[2].replicas == (2, 0)


def test_deleting_is_one_record_and_the_name_is_free_again(cluster: Cluster) -> None:
    """Delete and create again: another id (M6), no configs left."""
    _, first = create(cluster, NewTopic("t", 4, 3, configs=(("retention.ms", "1"),)))
    topic_id = first.results[0].topic_id
    run = cluster.run(DeleteTopics(("t", "ghost", "t2", "t2")))
    assert isinstance(run.reply, DeleteTopicsReply)

    assert run.records == [RemoveTopic("t", topic_id)]
    assert [result.error for result in run.reply.results] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert run.reply.results[1].message == "there is no topic 'ghost'"
    _, again = create(cluster, NewTopic("t", 1, 1))
    assert again.results[0].topic_id != topic_id
    assert not cluster.image.config(2, "t")


def test_deletion_can_be_disabled() -> None:
    """The text names the setting."""
    cluster = Cluster(1, config=ControllerConfig(topic_deletion_enabled=False))
    cluster.create("t", 1, 1)
    with pytest.raises(ControllerError, match=r"delete\.topic\.enable is false") as refused:
        cluster.run(DeleteTopics(("t",)))

    assert refused.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_empty_requests_do_nothing(cluster: Cluster) -> None:
    """They are answered, and the log stays."""
    assert cluster.run(CreateTopics(())).records == []
    assert cluster.run(DeleteTopics(())).records == []
    assert cluster.run(CreatePartitions(())).records == []


def test_the_reply_is_a_value_of_the_offset(cluster: Cluster) -> None:
    """`answer` fills in the end of the batch and nothing else."""
    decision = cluster.controller.decide(cluster.image, CreateTopics((NewTopic("t", 1, 1),)), 0)

    assert decision.reply.offset == -1
    assert decision.answer(77) == replace(decision.reply, offset=77)
