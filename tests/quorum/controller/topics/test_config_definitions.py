"""Config keys that embedders define: typed and checked as the built-in keys are, and never taken away under a value."""

from dataclasses import replace
from typing import Any

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import (
    BROKER_RESOURCE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
    Config,
    ConfigDefinition,
    FeatureLevel,
    RemoveConfigDefinition,
)
from quorum.controller.protocol.config_commands import (
    AlterConfigKeys,
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
    ConfigResult,
)
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.controller.protocol.happenings import ConfigKeysChanged
from quorum.controller.protocol.topic_commands import NewTopic
from quorum.controller.topics import config_definitions
from quorum.controller.topics.config_definitions import REQUEST_MAX
from quorum.controller.topics.defined_keys import DEFINED_KEYS_MAX, DEFINITIONS_MAX
from quorum.controller.topics.described_configs import ConfigSource, describe_configs
from tests.quorum.controller.cluster import Cluster

COUNT = ConfigDefinition(TOPIC_RESOURCE, "acme.count", False, "int", "8", 1, 64, (), "How many shards a topic has.")
WEIGHT = ConfigDefinition(TOPIC_RESOURCE, "acme.weight.", True, "decimal", "1", 0)
COLOURS = ConfigDefinition(BROKER_RESOURCE, "acme.colours", False, "list", "red", 1, 2, ("red", "green", "blue"))


@pytest.fixture
def cluster() -> Cluster:
    """Topic orders on two brokers."""
    cluster = Cluster(2)
    cluster.assign("orders", (0, 1))
    return cluster


def define(cluster: Cluster, *definitions: ConfigDefinition, remove: tuple[tuple[int, str], ...] = ()) -> None:
    cluster.run(AlterConfigKeys(definitions, remove))


def alter(
    cluster: Cluster,
    key: str,
    value: str,
    resource: tuple[int, str] = (TOPIC_RESOURCE, "orders"),
    kind: ConfigOperationKind = ConfigOperationKind.SET,
) -> ConfigResult:
    command = AlterConfigs((ConfigAlteration(*resource, (ConfigOperation(kind, key, value),)),))
    return cluster.ask(command, AlterConfigsReply).results[0]


def refused(cluster: Cluster, *definitions: ConfigDefinition, remove: tuple[tuple[int, str], ...] = ()) -> str:
    """The code and the text of a refusal, after which the image is as before."""
    before = cluster.image
    with pytest.raises(ControllerError) as refusal:
        define(cluster, *definitions, remove=remove)
    assert cluster.image == before
    return f"{refusal.value.code.name}: {refusal.value.message}"


def test_a_defined_key_is_set_and_checked_as_a_built_in_one(cluster: Cluster) -> None:
    define(cluster, COUNT)
    assert alter(cluster, "acme.count", "16").error is ErrorCode.NONE
    assert cluster.image.config(TOPIC_RESOURCE, "orders") == {"acme.count": "16"}
    bad = alter(cluster, "acme.count", "65")
    assert bad.error is ErrorCode.INVALID_CONFIG
    assert bad.message == "config acme.count is '65': it must be a whole number between 1 and 64"
    of_broker = alter(cluster, "acme.count", "16", (BROKER_RESOURCE, ""))
    assert "it is a config of topics" in of_broker.message


def test_a_prefix_defines_every_key_below_it(cluster: Cluster) -> None:
    define(cluster, WEIGHT, replace_name(COUNT, "acme.weight.total"))
    assert alter(cluster, "acme.weight.eu-1", "2.5").error is ErrorCode.NONE
    assert "must be a number, at least 0" in alter(cluster, "acme.weight.us", "heavy").message
    assert "whole number" in alter(cluster, "acme.weight.total", "2.5").message
    for no_key in ("acme.weight", "acme.weight.", "acme.weight..x", "acme.weight.a b", "acme.weight." + "x" * 200):
        assert "unknown topic config" in alter(cluster, no_key, "1").message


def replace_name(definition: ConfigDefinition, name: str) -> ConfigDefinition:
    return definition._replace(name=name)


@pytest.mark.parametrize(
    ("value_type", "bounds", "choices", "good", "bad"),
    [
        ("int", (None, None), (), ("-9223372036854775807", "+5"), ("", "1.0", "1_0", "x")),
        ("int", (None, 3), (), ("-7", "3"), ("4",)),
        ("decimal", (0, 1), (), ("0.5", "1", "1e-3"), ("1.1", "-0.1", "nan", "inf", "")),
        ("decimal", (None, None), (), ("-1e300",), ("1e999",)),
        ("boolean", (None, None), (), ("true", "false"), ("True", "")),
        ("text", (1, 3), (), ("abc", "é"), ("", "abcd")),
        ("text", (None, None), ("a", "b"), ("a",), ("", "c")),
        ("list", (None, 2), (), ("", "a", "a,b"), ("a,b,c", "a,a")),
        ("list", (1, None), ("a", "b"), ("a", "b,a"), ("", "c")),
    ],
)
def test_each_type_has_its_bounds(
    cluster: Cluster,
    value_type: str,
    bounds: tuple[int | None, int | None],
    choices: tuple[str, ...],
    good: tuple[str, ...],
    bad: tuple[str, ...],
) -> None:
    define(cluster, ConfigDefinition(TOPIC_RESOURCE, "acme.x", False, value_type, good[0], *bounds, choices))
    for value in good:
        assert alter(cluster, "acme.x", value).message == ""
    for value in (*bad, "x" * 4_097):
        result = alter(cluster, "acme.x", value)
        assert result.error is ErrorCode.INVALID_CONFIG and "it must" in result.message


def test_items_are_added_to_a_defined_list_and_removed(cluster: Cluster) -> None:
    """The operations begin at the default of the definition, as with the built-in lists."""
    define(cluster, COLOURS)
    everybody = (BROKER_RESOURCE, "")
    assert alter(cluster, "acme.colours", "blue", everybody, ConfigOperationKind.APPEND).error is ErrorCode.NONE
    assert cluster.image.config(*everybody) == {"acme.colours": "red,blue"}
    assert "at most 2 items" in alter(cluster, "acme.colours", "green", everybody, ConfigOperationKind.APPEND).message
    assert alter(cluster, "acme.colours", "red", everybody, ConfigOperationKind.SUBTRACT).error is ErrorCode.NONE
    assert cluster.image.config(*everybody) == {"acme.colours": "blue"}


def test_a_topic_uses_the_default_of_all_brokers_if_the_definitions_agree(cluster: Cluster) -> None:
    """Its own value, then that of all brokers, then the default of the definition."""
    of_brokers = COUNT._replace(resource_type=BROKER_RESOURCE, default="9", documentation="")
    define(cluster, COUNT, of_brokers)
    alter(cluster, "acme.count", "32", (BROKER_RESOURCE, ""))
    alter(cluster, "acme.count", "33", (BROKER_RESOURCE, "1"))

    def levels(resource_type: int, name: str) -> list[tuple[str, ConfigSource]]:
        described = describe_configs(cluster.image, resource_type, name, with_defaults=True)
        (found,) = [each for each in described.configs if each.key == "acme.count"]
        return [(level.value, level.source) for level in found.levels]

    assert levels(TOPIC_RESOURCE, "orders") == [("32", ConfigSource.CLUSTER), ("8", ConfigSource.DEFAULT)]
    assert levels(BROKER_RESOURCE, "1") == [
        ("33", ConfigSource.BROKER), ("32", ConfigSource.CLUSTER), ("9", ConfigSource.DEFAULT)
    ]  # fmt: skip
    define(cluster, of_brokers._replace(maximum=100))
    assert levels(TOPIC_RESOURCE, "orders") == [("8", ConfigSource.DEFAULT)]


def test_a_description_has_the_documentation_and_every_key_that_is_defined_whole(cluster: Cluster) -> None:
    define(cluster, COUNT, WEIGHT)
    alter(cluster, "acme.weight.eu", "2")
    described = describe_configs(cluster.image, TOPIC_RESOURCE, "orders", with_defaults=True)
    found = {each.key: each for each in described.configs if each.key.startswith("acme.")}
    assert found.keys() == {"acme.count", "acme.weight.eu"}
    assert found["acme.count"].meaning == COUNT.documentation
    assert [level.value for level in found["acme.weight.eu"].levels] == ["2", "1"]


def test_a_new_topic_has_defined_keys_from_the_start(cluster: Cluster) -> None:
    define(cluster, COUNT)
    assert "must be a whole number" in cluster.create_one(NewTopic("bad", 1, 2, configs=(("acme.count", "x"),))).message
    assert cluster.create_one(NewTopic("good", 1, 2, configs=(("acme.count", "3"),))).message == ""
    assert cluster.image.config(TOPIC_RESOURCE, "good") == {"acme.count": "3"}


def test_a_resource_has_a_bounded_number_of_defined_keys(cluster: Cluster) -> None:
    define(cluster, WEIGHT)
    operations = [ConfigOperation(ConfigOperationKind.SET, f"acme.weight.{n}", "1") for n in range(DEFINED_KEYS_MAX)]
    command = AlterConfigs((ConfigAlteration(TOPIC_RESOURCE, "orders", tuple(operations)),))
    assert cluster.ask(command, AlterConfigsReply).results[0].error is ErrorCode.NONE
    assert alter(cluster, "retention.ms", "5").error is ErrorCode.NONE
    assert alter(cluster, "acme.weight.0", "2").error is ErrorCode.NONE
    assert alter(cluster, "acme.weight.more", "2").error is ErrorCode.POLICY_VIOLATION
    many = tuple((f"acme.weight.{n}", "1") for n in range(DEFINED_KEYS_MAX + 1))
    assert "defined keys" in cluster.create_one(NewTopic("many", 1, 2, configs=many)).message


# --- definitions that are refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "retention.ms"}, "topic config retention.ms is built in"),
        ({"name": "num.io.threads"}, "broker config num.io.threads is built in"),
        ({"name": "log.", "is_prefix": True}, "is built in"),
        ({"name": "acme."}, "only a prefix ends with a dot"),
        ({"is_prefix": True}, "a prefix ends with a dot"),
        ({"name": ""}, "must have 1 to 128 characters"),
        ({"name": "."}, "must have 1 to 128 characters"),
        ({"name": "ac me"}, "must have 1 to 128 characters"),
        ({"name": "x" * 129}, "must have 1 to 128 characters"),
        ({"resource_type": 3}, "resource type is 3"),
        ({"value_type": "float"}, "the types are int, decimal"),
        ({"default": "65"}, "the default is '65': it must be a whole number"),
        ({"default": "8" * 501}, "default has 501 bytes"),
        ({"documentation": "é" * 251}, "documentation has 502 bytes"),
        ({"minimum": 65}, "above the maximum"),
        ({"minimum": -(1 << 63)}, "must be between"),
        ({"choices": ("1",)}, "choices have no meaning"),
        ({"value_type": "boolean"}, "no meaning for a boolean"),
        ({"value_type": "text", "minimum": -1}, "cannot be negative"),
        ({"value_type": "text", "choices": ("a", "a")}, "each once"),
        ({"value_type": "list", "choices": ("a,b",)}, "has no comma"),
        ({"value_type": "text", "choices": ("x" * 101,)}, "1 to 100 bytes"),
    ],
)
def test_a_bad_definition_is_refused_whole(cluster: Cluster, change: dict[str, Any], why: str) -> None:
    text = refused(cluster, WEIGHT, COUNT._replace(**change))
    assert text.startswith("INVALID_CONFIG") and why in text and "nothing was done" in text


def test_a_request_names_each_definition_once_and_only_what_exists(cluster: Cluster) -> None:
    assert refused(cluster).startswith("INVALID_REQUEST")
    assert "named twice" in refused(cluster, COUNT, COUNT)
    assert "there is no definition" in refused(cluster, remove=((TOPIC_RESOURCE, "acme.count"),))
    many = [COUNT._replace(name=f"acme.{n}") for n in range(REQUEST_MAX + 1)]
    assert refused(cluster, *many).startswith("POLICY_VIOLATION")


def test_the_cluster_has_a_bounded_number_of_definitions(cluster: Cluster) -> None:
    cluster.append(*[COUNT._replace(name=f"acme.k{n}") for n in range(DEFINITIONS_MAX)])
    assert "may have 1,000" in refused(cluster, COUNT)
    define(cluster, COUNT, remove=((TOPIC_RESOURCE, "acme.k0"),))


def test_a_definition_is_not_taken_from_under_a_value(cluster: Cluster) -> None:
    """A narrower definition, a removal, and a longer prefix or whole name that comes before the old definition."""
    define(cluster, COUNT, WEIGHT)
    alter(cluster, "acme.count", "32")
    alter(cluster, "acme.weight.eu", "2.5")
    text = refused(cluster, COUNT._replace(maximum=16))
    assert text.startswith("POLICY_VIOLATION: topic 'orders' has config acme.count = '32': it must be a whole number")
    assert "must have a definition" in refused(cluster, remove=((TOPIC_RESOURCE, "acme.count"),))
    assert "acme.weight.eu = '2.5'" in refused(cluster, COUNT._replace(name="acme.weight.eu"))

    define(cluster, COUNT._replace(maximum=32))
    everything = ConfigDefinition(TOPIC_RESOURCE, "acme.", True, "text", "")
    define(cluster, everything, remove=((TOPIC_RESOURCE, "acme.count"), (TOPIC_RESOURCE, "acme.weight.")))
    assert alter(cluster, "acme.count", "many").error is ErrorCode.NONE
    alter(cluster, "acme.count", "", kind=ConfigOperationKind.DELETE)
    alter(cluster, "acme.weight.eu", "", kind=ConfigOperationKind.DELETE)
    define(cluster, remove=((TOPIC_RESOURCE, "acme."),))
    assert not cluster.image.config_definitions


def test_a_key_of_another_release_is_left_alone(cluster: Cluster) -> None:
    cluster.append(Config(TOPIC_RESOURCE, "orders", "from.the.future", "x"))
    define(cluster, COUNT)
    assert "from.the.future" in refused(cluster, ConfigDefinition(TOPIC_RESOURCE, "from.", True, "int", "1"))


def test_the_search_for_values_takes_slices_and_sees_what_changes_between_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three resources are seen. Then a bad value is set in the first of them, before the last slice."""
    monkeypatch.setattr(config_definitions, "SLICE_VALUES", 1)
    define(cluster, COUNT)
    for name in ("a", "b", "c"):
        cluster.assign(name, (0,))
        alter(cluster, "acme.count", "5", (TOPIC_RESOURCE, name))
    narrower = AlterConfigKeys((COUNT._replace(maximum=16),))
    first = cluster.controller.decide(cluster.image, narrower, cluster.now_ms)
    assert first.then is not None and not first.records
    assert isinstance(first.then, AlterConfigKeys)
    alter(cluster, "acme.count", "50", (TOPIC_RESOURCE, "a"))
    with pytest.raises(ControllerError, match=r"topic 'a' has config acme\.count = '50'"):
        cluster.decisions(first.then)
    alter(cluster, "acme.count", "7", (TOPIC_RESOURCE, "a"))
    run = cluster.run(replace(narrower))
    assert run.steps == 3 and run.records == [COUNT._replace(maximum=16)]


# --- the rest ------------------------------------------------------------------------------------------------------------


def test_definitions_are_told_and_written_once(cluster: Cluster) -> None:
    run = cluster.run(AlterConfigKeys((COUNT,)))
    assert run.records == [COUNT]
    assert run.happenings == [ConfigKeysChanged(1, 0, ("topic config 'acme.count'",))]
    assert cluster.run(AlterConfigKeys((COUNT,))).records == []
    assert cluster.run(AlterConfigKeys((COUNT._replace(default="9"),), validate_only=True)).records == []
    removed = cluster.run(AlterConfigKeys(removals=((TOPIC_RESOURCE, "acme.count"),)))
    assert removed.records == [RemoveConfigDefinition(TOPIC_RESOURCE, "acme.count")]


def test_definitions_need_a_level_and_hold_it(cluster: Cluster) -> None:
    """Below level 3 there are none, and no downgrade loses one."""
    define(cluster, COUNT)
    down = UpdateFeatures((FeatureUpdate(METADATA_VERSION, 2, UpgradeType.SAFE_DOWNGRADE),))
    with pytest.raises(ControllerError, match=r"the definition of topic config acme\.count"):
        cluster.run(down)
    define(cluster, remove=((TOPIC_RESOURCE, "acme.count"),))
    cluster.append(FeatureLevel(METADATA_VERSION, 2))
    assert refused(cluster, COUNT).startswith("UNSUPPORTED_VERSION")
