"""The tree shows each thing of an image at one place, names come back from their paths, and two trees differ where images do."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    TOPIC_RESOURCE,
    ClientQuota,
    ClientSession,
    Config,
    Entity,
    EntityKind,
    FeatureLevel,
    MetadataRecord,
    Owner,
    PartitionChange,
    QuotaEntity,
    Topic,
    UserScramCredential,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from metadata_log.tree.differences import differences
from metadata_log.tree.layout import tree_of
from metadata_log.tree.nodes import Branch, Leaf
from metadata_log.tree.paths import Path, below, fits, matches, name_of, name_text, node_at, path_text, words_of
from tests.metadata_log.image.histories import History, broker, uuid

NAMES = st.text(min_size=0, max_size=12)


def image_of(*records: MetadataRecord, base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(base)
    for offset, record in enumerate(records, base.offset):
        delta.replay(record, offset)
    return delta.finish(Provenance(base.offset + len(records), 3, 5_000))


LEVEL = FeatureLevel(METADATA_VERSION, METADATA_VERSION_MAX)
SESSION = uuid(77)


@pytest.fixture
def image() -> MetadataImage:
    history = History(5)
    history.append(LEVEL)
    history.append(broker(101))
    topic = Topic("orders", uuid(1))
    return image_of(
        topic,
        history.partition(uuid(1), 0)._replace(replicas=(101,), isr=(101,), leader=101, directories=()),
        Config(TOPIC_RESOURCE, "orders", "retention.ms", "7"),
        Config(BROKER_RESOURCE, "", "x", "1"),
        ClientQuota((QuotaEntity("client-id", "a/b"), QuotaEntity("user", None)), "consumer_byte_rate", 5.0),
        UserScramCredential("alice", 2, b"salt", b"stored", b"server", 8_192),
        EntityKind("lock", "", 0, 0, 0),
        ClientSession(SESSION, "worker", "User:w", 5_000),
        Entity("lock", "a/b", b"held", Owner(SESSION, None, 9)),
        Entity("locks", "other kind", b"\xff", None),
        base=history.image,
    )


def at(image: MetadataImage, path: str) -> Any:
    node = node_at(tree_of(image), tuple(map(name_of, words_of(path))))
    if isinstance(node, Branch):
        return list(node.names())
    return node if node is None else node.show()


def test_each_thing_has_its_place(image: MetadataImage) -> None:
    assert at(image, "/topics") == ["orders"]
    assert at(image, "/topics/orders") == ["id", "configs", "partitions"]
    assert at(image, "/topics/orders/configs/retention.ms") == at(image, "/configs/topics/orders/retention.ms") == "7"
    assert at(image, "/topics/orders/partitions/0")["leader"] == 101
    assert at(image, "/brokers/101")["mode"] is None
    assert at(image, "/configs/brokers/<default>/x") == "1"
    assert at(image, "/quotas/client-id=a%2Fb,user=<default>/consumer_byte_rate") == 5.0
    assert at(image, "/features/metadata.version") == METADATA_VERSION_MAX
    assert at(image, "/entities") == ["lock", "locks"]
    assert at(image, "/entities/lock") == ["a/b"]
    assert at(image, "/entities/lock/a%2Fb")["value"] == "held"
    assert at(image, "/entities/locks/other kind")["value_hex"] == "ff"
    assert at(image, "/kinds") == ["lock"]
    assert at(image, f"/sessions/{at(image, '/sessions')[0]}")["name"] == "worker"
    assert at(image, "/log/offset") == image.offset


def test_secrets_are_redacted(image: MetadataImage) -> None:
    shown = at(image, "/users/alice/SCRAM-SHA-512")
    assert shown["iterations"] == 8_192
    assert {shown[each] for each in ("salt", "stored_key", "server_key")} == {"[redacted]"}


@pytest.mark.parametrize(
    "path",
    [
        "/topics/nothing",
        "/topics/orders/partitions/1",
        "/topics/orders/partitions/00",
        "/brokers/x",
        "/acls/!",
        "/entities/l",
    ],
)
def test_nothing_is_where_nothing_should_be(image: MetadataImage, path: str) -> None:
    assert at(image, path) is None


@given(NAMES)
def test_every_name_comes_back_from_its_path(name: str) -> None:
    """No name is taken for a pattern, for the directory above, or for two names."""
    path = ("entities", "lock", name)
    assert tuple(map(name_of, words_of(path_text(path)))) == path
    assert fits(name, name_text(name))


@pytest.mark.parametrize("seed", range(4))
def test_all_names_of_a_branch_have_a_child_and_all_records_a_leaf(seed: int) -> None:
    image = History(seed).run(60).image
    leaves = [path for path, node in below(tree_of(image)) if isinstance(node, Leaf)]
    assert len(leaves) == len(set(leaves)) > 20
    for path, node in below(tree_of(image)):
        if isinstance(node, Branch):
            assert all(node.child(name) is not None for name in node.names()), path
    assert sum(path[0] == "topics" and path[2] == "partitions" for path in leaves) == image.partition_count


def test_a_pattern_finds_what_it_names(image: MetadataImage) -> None:
    root = tree_of(image)
    found = [path_text(path) for path, _ in matches(root, words_of("../topics/ord*/partitions/[0-9]", ("brokers",)))]
    assert found == ["/topics/orders/partitions/0"]
    assert [path_text(path) for path, _ in matches(root, words_of("/entities/lock*/*"))] == [
        "/entities/lock/a%2Fb",
        "/entities/locks/other kind",
    ]


def leaves_of(image: MetadataImage) -> dict[Path, Any]:
    return {path: node.raw for path, node in below(tree_of(image)) if isinstance(node, Leaf) and path[0] != "log"}


@pytest.mark.parametrize("seed", range(6))
def test_differences_are_those_of_all_leaves(seed: int) -> None:
    """The dumb twin makes every leaf of both trees. Branches that share an anchor are skipped, and nothing is missed by that."""
    history = History(seed).run(25)
    before = history.image
    for _ in range(12):
        for record in history.next_records():
            history.append(record)
    after = history.image
    one, other = leaves_of(before), leaves_of(after)
    wanted = dict.fromkeys(other.keys() - one.keys(), "added") | dict.fromkeys(one.keys() - other.keys(), "removed")
    wanted |= {path: "changed" for path in one.keys() & other.keys() if one[path] != other[path]}
    assert {each.path: each.kind for each in differences(tree_of(before), tree_of(after))} == wanted
    assert not list(differences(tree_of(before), tree_of(before)))


def test_a_difference_shows_both_values(image: MetadataImage) -> None:
    after = image_of(PartitionChange(uuid(1), 0, leader=-1), base=image)
    (found,) = differences(tree_of(image), tree_of(after))
    assert path_text(found.path) == "/topics/orders/partitions/0"
    assert (found.before["leader"], found.after["leader"]) == (101, None)


def test_the_log_differs_only_where_it_is_asked_for(image: MetadataImage) -> None:
    later = replace(image, provenance=Provenance(image.offset + 1, 3, 6_000))
    assert not list(differences(tree_of(image), tree_of(later)))
    nodes = [node_at(tree_of(each), ("log",)) for each in (image, later)]
    assert {path_text(each.path) for each in differences(nodes[0], nodes[1], ("log",))} == {
        "/log/offset",
        "/log/time_ms",
    }
