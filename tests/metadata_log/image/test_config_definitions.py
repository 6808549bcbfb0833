"""Definitions of config keys in the image: their limits, and which of them holds for a key."""

import pytest

from metadata_log.format.config_definitions import definition_of
from metadata_log.format.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigDefinition,
    MetadataRecord,
    RemoveConfigDefinition,
)
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.metadata_image import MetadataImage, Provenance
from tests.metadata_log.image.histories import newest_level

SHARE = ConfigDefinition(TOPIC_RESOURCE, "acme.share", False, "decimal", "1", 0, 1)


def after(image: MetadataImage, *records: MetadataRecord) -> tuple[MetadataImage, MetadataDelta]:
    delta = MetadataDelta(image)
    for place, record in enumerate(records):
        delta.replay(record, image.offset + place)
    return delta.finish(Provenance(image.offset + len(records), 1, 0)), delta


def test_a_definition_replaces_the_one_of_its_name_and_is_removed() -> None:
    """Topics and brokers have their definitions apart."""
    wider = SHARE._replace(maximum=2)
    of_brokers = SHARE._replace(resource_type=BROKER_RESOURCE)
    image, delta = after(newest_level(), SHARE, of_brokers, wider)
    assert delta.changed.config_definitions == {(TOPIC_RESOURCE, "acme.share"), (BROKER_RESOURCE, "acme.share")}
    assert not delta.changed.others and delta.changed
    assert [*image.config_definitions.values()] == [wider, of_brokers]
    image.check_invariants()
    image, _ = after(image, RemoveConfigDefinition(TOPIC_RESOURCE, "acme.share"))
    assert [*image.canonical_records()][1:] == [of_brokers]
    image.check_invariants()
    with pytest.raises(InvalidRecord, match="there is no definition"):
        after(image, RemoveConfigDefinition(TOPIC_RESOURCE, "acme.share"))


@pytest.mark.parametrize(
    "bad",
    [
        SHARE._replace(name="acme."),
        SHARE._replace(name="x" * 129),
        SHARE._replace(resource_type=0),
        SHARE._replace(value_type="x" * 1_000_000),
        SHARE._replace(documentation="x" * 501),
        SHARE._replace(choices=("x",)),
        SHARE._replace(minimum=2),
    ],
)
def test_replay_refuses_a_definition_beyond_the_limits(bad: ConfigDefinition) -> None:
    with pytest.raises(InvalidRecord, match="a definition of config") as refusal:
        after(newest_level(), bad)
    assert len(str(refusal.value)) < 500


def test_the_whole_name_comes_before_prefixes_and_a_longer_prefix_before_a_shorter_one() -> None:
    names = ("acme.", "acme.weight.", "acme.weight.eu")
    definitions = {(TOPIC_RESOURCE, name): SHARE._replace(name=name, is_prefix=name.endswith(".")) for name in names}

    def found(key: str, resource_type: int = TOPIC_RESOURCE) -> str | None:
        definition = definition_of(definitions, resource_type, key)
        return None if definition is None else definition.name

    assert found("acme.weight.eu") == "acme.weight.eu"
    assert found("acme.weight.us") == found("acme.weight.eu.west") == "acme.weight."
    assert found("acme.weight") == found("acme.colour") == "acme."
    for no_key in ("acme", "acme.", "acme.weight.", "acmex.y", "", ".", "acme..x", "acme.\u00e9", "acme." + "x" * 124):
        assert found(no_key) is None
    assert found("acme.colour", BROKER_RESOURCE) is None
