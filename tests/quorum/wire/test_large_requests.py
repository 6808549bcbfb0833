"""Requests of legal size that would hold a node for a second: they are counted before anything is translated."""

import pytest
from quorum_rpc.v1 import admin_pb2, broker_pb2

from metadata_log.format.errors import ErrorCode
from quorum.controller.protocol.config_commands import AlterConfigsReply, ConfigResult
from quorum.controller.protocol.topic_commands import CreateTopicsReply, DeleteTopicsReply, TopicResult
from quorum.wire.convert import convert_admin as convert
from quorum.wire.convert.convert_broker import from_alter_partition
from quorum.wire.convert.errors import BadMessage

LISTS = [admin_pb2.ReplicaList()] * 10_001


@pytest.mark.parametrize(
    ("what", "refused"),
    [
        (admin_pb2.NewTopic(name="t", assignment=LISTS), "10001 partitions in assignments in one request"),
        (
            admin_pb2.NewTopic(name="t", assignment=[admin_pb2.ReplicaList(broker_ids=[1] * 300_001)]),
            "300001 replicas in one request",
        ),
        (
            admin_pb2.NewTopic(name="t", configs=[admin_pb2.ConfigEntry(key="k", value="v")] * 10_001),
            "10001 configs in one request",
        ),
    ],
)
def test_a_new_topic_is_counted_before_it_is_translated(what: admin_pb2.NewTopic, refused: str) -> None:
    """1,900,000 empty lists fit into 4 MB, and their translation would cost a leader its leadership."""
    with pytest.raises(BadMessage, match=refused):
        convert.from_create_topics(admin_pb2.CreateTopicsRequest(topics=[what]))


def test_new_partitions_are_counted_before_they_are_translated() -> None:
    """The same lists in the other request that has them."""
    request = admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name="t", assignment=LISTS)])
    with pytest.raises(BadMessage, match="10001 partitions in assignments"):
        convert.from_create_partitions(request)


def test_proposed_isrs_are_counted_before_they_are_translated() -> None:
    """An empty member takes two bytes, so the list of one partition can fill the message."""
    alteration = broker_pb2.PartitionAlteration(topic_id=bytes(16), new_isr=[broker_pb2.IsrMember()] * 300_001)
    with pytest.raises(BadMessage, match="300001 replicas in ISRs; at most 300000"):
        from_alter_partition(broker_pb2.AlterPartitionRequest(partitions=[alteration]))


def test_a_name_that_no_topic_can_have_is_refused_before_anything_is_done() -> None:
    """An answer repeats each name. 10,000 names of 380 characters, each twice, would not fit into a message of 4 MiB."""
    request = admin_pb2.DeleteTopicsRequest(names=["orders", "x" * 250])
    with pytest.raises(BadMessage, match=r"names\[1\] has 250 bytes; a topic name has at most 249"):
        convert.from_delete_topics(request)


def test_an_answer_about_10_000_unknown_topics_fits_into_a_message() -> None:
    """The name stands in a field of its own, and the text is cut. A client takes 4 MiB at most."""
    names = [f"{i:05}" + "x" * 244 for i in range(10_000)]
    results = tuple(
        TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}") for name in names
    )
    answer = convert.to_delete_topics_response(DeleteTopicsReply(offset=7, results=results))
    assert answer.ByteSize() < 4 << 20
    assert answer.results[9_999].name == names[-1]
    assert answer.results[0].error.message == "there is no topic '00000" + "x" * 77 + "..."


def test_an_answer_about_a_name_of_4_mb_fits_into_a_message() -> None:
    """`orders` was created, or altered, beside it: an answer that does not arrive would leave that open."""
    name = "\N{GRINNING FACE}" * 1_000_000
    problem = f"{name!r} is no topic name"
    created = convert.to_create_topics_response(
        CreateTopicsReply(7, (TopicResult(name, ErrorCode.INVALID_TOPIC_EXCEPTION, problem), TopicResult("orders")))
    )
    altered = convert.to_alter_configs_response(
        AlterConfigsReply(7, (ConfigResult(2, name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem),))
    )
    assert max(created.ByteSize(), altered.ByteSize()) < 2 << 20
    assert created.results[0].name == altered.results[0].resource.name == "\N{GRINNING FACE}" * 62
    assert created.results[1].name == "orders"


def test_the_text_of_a_few_results_is_whole() -> None:
    """Only answers with many results have their texts cut."""
    result = TopicResult("t", ErrorCode.INVALID_CONFIG, "y" * 5_000)
    assert (
        convert.to_delete_topics_response(DeleteTopicsReply(offset=7, results=(result,))).results[0].error.message
        == "y" * 5_000
    )
