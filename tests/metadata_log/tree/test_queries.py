"""Queries of the tree: answers are bounded, made step by step, and refused in words that name the path."""

from itertools import islice

import pytest

import metadata_log.tree.queries
from metadata_log.format.records import TOPIC_RESOURCE, Config, Topic, UserScramCredential
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.queries import (
    Changed,
    Differences,
    Find,
    Named,
    Names,
    Outline,
    Place,
    Query,
    QueryRefused,
    Row,
    Seen,
    Value,
    Values,
    answer,
)
from tests.metadata_log.image.histories import uuid
from tests.metadata_log.tree.test_tree import LEVEL, image_of

SECRETS = UserScramCredential("alice", 2, b"pepper", b"hush-hush", b"server", 8_192)


@pytest.fixture
def image() -> MetadataImage:
    topics = [Topic(f"topic-{number}", uuid(1 + number)) for number in range(9)]
    configs = [Config(TOPIC_RESOURCE, topic.name, "retention.ms", "7") for topic in topics]
    return image_of(LEVEL, *topics, *configs, SECRETS)


def rows(image: MetadataImage, query: Query) -> list[Row]:
    return [*answer(query, Seen(image))]


def test_a_place_is_one_node(image: MetadataImage) -> None:
    assert rows(image, Place("/")) == [Named("/", "/", is_branch=True)]
    assert rows(image, Place("/topics/*3/id")) == [Named("/topics/topic-3/id", "id", is_branch=False)]


@pytest.mark.parametrize(
    ("query", "reason", "is_missing"),
    [
        (Place("/topics/*"), "fits more than one path", False),
        (Outline("/nothing"), "there is no /nothing at offset 20", True),
        (Find("x", "/topics/*"), "fits more than one path", False),
        (Names(("/topics", "/nothing")), "there is no /nothing at offset 20", True),
        (Values(("/topics/topic-1/nothing",)), "there is no /topics/topic-1/nothing", True),
        (Values(("/topics/topic-1/partitions/" + "9" * 5_000,)), "there is no /topics", True),
        (Values(("/brokers/" + "9" * 5_000,)), r"there is no /brokers/9{191}\.\.\. at offset", True),
    ],
)
def test_a_path_that_does_not_serve_is_refused_before_the_first_row(
    image: MetadataImage, query: Query, reason: str, is_missing: bool
) -> None:
    with pytest.raises(QueryRefused, match=reason.replace("*", r"\*")) as refused:
        next(answer(query, Seen(image)))
    assert refused.value.is_missing is is_missing


def test_names_are_whole_paths_where_several_branches_are_listed(image: MetadataImage) -> None:
    (one,) = rows(image, Names(("/topics/topic-1/configs",)))
    assert one == Named("/topics/topic-1/configs/retention.ms", "retention.ms", is_branch=False)
    many = rows(image, Names(("/topics/*/configs",)))
    assert all(isinstance(row, Named) and row.name == row.path for row in many) and len(many) == 9
    assert [row.path for row in rows(image, Names(("/topics",), "topic-7"))] == ["/topics/topic-7"]


def test_a_value_that_stands_alone_is_marked(image: MetadataImage) -> None:
    def only(*patterns: str) -> list[bool]:
        return [row.is_only for row in rows(image, Values(patterns)) if isinstance(row, Value)]

    assert only("/topics/topic-1/id") == [True]
    assert only("/topics/topic-1/configs") == [False], "a branch with one value was named, and not the value"
    assert only("/topics/topic-1/id", "/topics/topic-2/id") == [False, False]


def test_secrets_are_redacted(image: MetadataImage) -> None:
    other = image_of(SECRETS._replace(stored_key=b"other"), base=image)
    (value,) = rows(image, Values(("/users/alice",)))
    (changed,) = answer(Differences("/users"), Seen(other, image))
    assert isinstance(changed, Changed) and changed.change == "changed"
    assert isinstance(value, Value) and all(
        secret not in str((value, changed)) for secret in ("hush", b"hush-hush".hex())
    )


@pytest.mark.parametrize(
    ("query", "bound"),
    [(Values(("/topics",)), "VALUES_MAX"), (Names(("/topics",)), "ROWS_MAX"), (Find("id", "/"), "ROWS_MAX")],
)
def test_an_answer_ends_at_its_bound(
    image: MetadataImage, query: Query, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log.tree.queries, bound, 5)
    found = answer(query, Seen(image))
    assert len([*islice(found, 5)]) == 5
    with pytest.raises(QueryRefused, match=r"more than 5 \w+; name a deeper path"):
        next(found)


def test_each_step_may_rest_also_where_nothing_is_found(image: MetadataImage) -> None:
    """Otherwise a search through 2,000,000 partitions would hold the interpreter of a controller to its end."""
    steps = 0

    def pace() -> None:
        nonlocal steps
        steps += 1

    assert [*answer(Find("nothing", "/"), Seen(image), pace)] == []
    assert steps > 9 * 4


def test_a_step_may_end_the_work(image: MetadataImage) -> None:
    class Enough(Exception):
        pass

    def pace() -> None:
        raise Enough

    with pytest.raises(Enough):
        next(answer(Find("nothing", "/"), Seen(image), pace))
