"""Requests about topics that are too large for one batch: decided slice by slice, as one transaction."""

from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import TOPIC_RESOURCE, Partition, Topic
from quorum.controller.controller import ControllerConfig, ControllerError
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
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
from tests.quorum.controller.cluster import Cluster, records_of

SLICE = 40


def of_slices(config: ControllerConfig | None = None) -> Cluster:
    return Cluster(
        5,
        racks=2,
        config=(config or ControllerConfig())._replace(transaction_slice_records=SLICE, one_batch_records_max=SLICE),
    )


LARGE = CreateTopics(
    (
        NewTopic("a", 600, 3, configs=(("retention.ms", "1"),)),
        NewTopic("bad", 0, 3),
        NewTopic("b", 7, 2),
        NewTopic("twice", 1, 1),
        NewTopic("twice", 1, 1),
        NewTopic("a.b", 1, 1),
        NewTopic("a_b", 1, 1),
        NewTopic("c", assignment=tuple((number % 5, (number + 1) % 5) for number in range(301))),
        NewTopic("wrong", assignment=(*((0, 1) for _ in range(260)), (0, 9))),
    )
)


def test_a_large_request_leads_to_the_records_of_a_small_one() -> None:
    """The division into slices changes neither the placement, nor an id, nor a result."""
    whole, sliced = of_slices(ControllerConfig(bootstrap_metadata_version=1)), of_slices()
    (one,), many = whole.decisions(LARGE), sliced.decisions(LARGE)

    assert len(many) > 3
    assert one.transaction == "" and {each.transaction for each in many} == {"CreateTopics"}
    assert records_of(many) == list(one.records)
    assert many[-1].reply == one.reply
    assert isinstance(one.reply, CreateTopicsReply)
    assert [result.name for result in one.reply.results if not result.error] == ["a", "b", "a.b", "c"]
    assert "partition 260" in one.reply.results[-1].message
    assert [topic.digest for topic in sliced.image.topics()] == [topic.digest for topic in whole.image.topics()]


def test_a_slice_is_little_work() -> None:
    """No slice has more records than its size and those of one piece; only the last one tells the story and has the results."""
    many = of_slices().decisions(LARGE)

    assert max(len(each.records) for each in many) < 2 * SLICE + 5
    assert [bool(each.happenings) for each in many] == [False] * (len(many) - 1) + [True]
    assert many[-1].happenings[0].partitions == 909  # type: ignore[union-attr]


def test_topics_grow_in_slices_too() -> None:
    """The new partitions follow the old ones, and the other topics have their own results."""
    cluster = of_slices()
    cluster.create("a", 3)
    many = cluster.decisions(CreatePartitions((NewPartitions("a", 1_000), NewPartitions("none", 5))))

    assert {each.transaction for each in many} == {"CreatePartitions"}
    assert [record.partition for record in records_of(many) if isinstance(record, Partition)] == [*range(3, 1_000)]
    reply = many[-1].reply
    assert isinstance(reply, CreatePartitionsReply)
    assert [result.error for result in reply.results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert many[-1].happenings[0].partitions == 997  # type: ignore[union-attr]


def test_topics_are_deleted_in_slices_too() -> None:
    """A topic goes with all of its partitions; what cannot be deleted has its own result."""
    cluster = of_slices()
    cluster.run(CreateTopics(tuple(NewTopic(f"t{number}", 1, 1) for number in range(60))))
    many = cluster.decisions(DeleteTopics((*(f"t{number}" for number in range(60)), "none", "t7")))

    assert len(many) > 5 and {each.transaction for each in many} == {"DeleteTopics"}
    assert [topic.name for topic in cluster.image.topics()] == ["t7"]
    reply = many[-1].reply
    assert isinstance(reply, DeleteTopicsReply)
    assert len(reply.results) == 62 and sum(not result.error for result in reply.results) == 59
    assert many[-1].happenings[0].partitions == 59  # type: ignore[union-attr]


def test_configs_are_altered_in_slices_too() -> None:
    """Each resource has its own result, in the order of the request; a resource that is named twice far apart is refused."""
    cluster = of_slices()
    cluster.run(CreateTopics(tuple(NewTopic(f"t{number}", 1, 1) for number in range(60))))
    named = [f"t{number}" for number in range(60)] + ["none", "t7"]
    many = cluster.decisions(AlterConfigs(tuple(altered(name) for name in named)))

    assert len(many) > 2 and {each.transaction for each in many} == {"AlterConfigs"}
    reply = many[-1].reply
    assert isinstance(reply, AlterConfigsReply)
    assert [result.resource_name for result in reply.results] == named
    assert [result.resource_name for result in reply.results if result.error] == ["t7", "none", "t7"]
    assert many[-1].happenings[0].keys == 59  # type: ignore[union-attr]
    assert (
        sum(cluster.image.config(TOPIC_RESOURCE, f"t{number}") == {"retention.ms": "5"} for number in range(60)) == 59
    )
    again = cluster.decisions(AlterConfigs(tuple(altered(name) for name in named), validate_only=True))
    assert records_of(again) == [] and {each.transaction for each in again} == {""}


def altered(name: str) -> ConfigAlteration:
    return ConfigAlteration(TOPIC_RESOURCE, name, (ConfigOperation(ConfigOperationKind.SET, "retention.ms", "5"),))


def test_a_large_validation_writes_nothing() -> None:
    """It is no transaction, so other requests are decided between its slices."""
    many = of_slices().decisions(replace(LARGE, validate_only=True))

    assert records_of(many) == []
    assert {each.transaction for each in many} == {""}
    assert many[-1].happenings == ()


def test_the_size_of_a_transaction_is_bounded() -> None:
    """Partitions have their own bound, which the text names; records of topics and configs count besides."""
    cluster = of_slices(ControllerConfig(partitions_per_transaction_max=1_000, transaction_records_max=1_010))
    with pytest.raises(ControllerError) as refused:
        cluster.run(CreateTopics((NewTopic("a", 1_001, 1),)))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert refused.value.message == (
        "the request asks for 1,001 partitions; at most 1,000 are allowed in one request; nothing was done"
    )
    with pytest.raises(ControllerError) as refused:
        cluster.run(CreateTopics(tuple(NewTopic(f"t{number}", 20, 1) for number in range(49))))
    assert "it is one atomic transaction, which holds at most 1,010" in refused.value.message
    cluster.run(CreateTopics((NewTopic("a", 1_000, 1),)))
    assert cluster.image.partition_count == 1_000


def test_the_first_level_has_no_transactions() -> None:
    """A node of that level could read them, but an older controller could not continue: a request is one batch."""
    cluster = of_slices(ControllerConfig(bootstrap_metadata_version=1))
    (one,) = cluster.decisions(LARGE)
    assert one.transaction == ""
    assert sum(isinstance(record, Topic) for record in one.records) == 4


def test_many_small_topics_are_a_transaction_before_their_records_are_too_many() -> None:
    """A look at a topic costs as much as five records: 20 topics of one partition, with a slice of 40."""
    cluster = of_slices()
    few = CreateTopics(tuple(NewTopic(f"few-{number}", 1, 1) for number in range(8)))
    assert {each.transaction for each in cluster.decisions(few)} == {""}
    many = CreateTopics(tuple(NewTopic(f"many-{number}", 1, 1) for number in range(19)))
    assert {each.transaction for each in cluster.decisions(many)} == {"CreateTopics"}
    gone = DeleteTopics(tuple(topic.name for topic in many.topics))
    assert {each.transaction for each in cluster.decisions(gone)} == {"DeleteTopics"}


def test_names_with_many_separators_are_searched_once_for_a_request() -> None:
    """The search looks at all names of the image, in pieces, and finds what collides; so does a look into the request itself."""
    cluster = of_slices()
    names = [f"{number}" + ".a" * 10 for number in range(1_100)]
    cluster.run(CreateTopics(tuple(NewTopic(name, 1, 1) for name in names)))
    new = [*(name.replace(".", "_", 3) for name in names[:50]), "b" + "_a" * 10, "b" + ".a" * 10]
    many = cluster.decisions(CreateTopics(tuple(NewTopic(name, 1, 1) for name in new)))
    reply = many[-1].reply
    assert isinstance(reply, CreateTopicsReply)
    assert [result.error for result in reply.results] == [
        *[ErrorCode.INVALID_TOPIC_EXCEPTION] * 50, ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]  # fmt: skip
    assert "collides with '7.a.a" in reply.results[7].message
    assert len(many) > 50 * 5 // SLICE
