"""Configs: sound values, incremental operations, and refusals with their text."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, Config
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.topic_rules import Rejected
from quorum.controller.topics.config_keys import BROKER_KEYS, KEYS, TOPIC_KEYS, ConfigKey, WholeNumber
from quorum.controller.topics.configs import check_value, config_key
from tests.quorum.controller.cluster import Cluster, Run

SET, DELETE = ConfigOperationKind.SET, ConfigOperationKind.DELETE
APPEND, SUBTRACT = ConfigOperationKind.APPEND, ConfigOperationKind.SUBTRACT


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1)
    cluster.create("t", 1, 1)
    return cluster


def alter(
    cluster: Cluster, *operations: tuple[ConfigOperationKind, str, str], topic: str = "t", validate_only: bool = False
) -> Run:
    listed = tuple(ConfigOperation(*operation) for operation in operations)
    return cluster.run(AlterConfigs((ConfigAlteration(TOPIC_RESOURCE, topic, listed),), validate_only))


def outcome(run: Run) -> tuple[ErrorCode, str]:
    assert isinstance(run.reply, AlterConfigsReply)
    return run.reply.results[0].error, run.reply.results[0].message


def test_set_and_delete(cluster: Cluster) -> None:
    """One record per key that changes; deleting what is not set is done already."""
    run = alter(cluster, (SET, "retention.ms", "5"), (SET, "preallocate", "true"), (DELETE, "segment.ms", ""))

    assert run.records == [Config(2, "t", "retention.ms", "5"), Config(2, "t", "preallocate", "true")]
    assert alter(cluster, (DELETE, "retention.ms", "")).records == [Config(2, "t", "retention.ms", None)]
    assert dict(cluster.image.config(2, "t")) == {"preallocate": "true"}


def test_what_changes_nothing_writes_nothing(cluster: Cluster) -> None:
    """Applying the same file again leaves the log as it is."""
    alter(cluster, (SET, "retention.ms", "5"), (SET, "cleanup.policy", "delete,compact"))

    assert alter(cluster, (SET, "retention.ms", "5")).records == []
    assert alter(cluster, (APPEND, "cleanup.policy", "compact")).records == []
    assert alter(cluster, (DELETE, "segment.ms", "")).records == []


def test_lists_grow_and_shrink_from_their_default(cluster: Cluster) -> None:
    """cleanup.policy is "delete" where nothing is set."""
    alter(cluster, (APPEND, "cleanup.policy", "compact"))
    assert dict(cluster.image.config(2, "t")) == {"cleanup.policy": "delete,compact"}
    alter(cluster, (SUBTRACT, "cleanup.policy", "delete"))
    assert dict(cluster.image.config(2, "t")) == {"cleanup.policy": "compact"}
    assert outcome(alter(cluster, (SUBTRACT, "cleanup.policy", "compact"))) == (
        ErrorCode.INVALID_CONFIG,
        "config cleanup.policy is '': it must be a list of delete and compact, and not empty",
    )


def test_validate_only(cluster: Cluster) -> None:
    """The verdict without the deed."""
    run = alter(cluster, (SET, "retention.ms", "5"), validate_only=True)

    assert (run.records, outcome(run)[0]) == ([], ErrorCode.NONE)


@pytest.mark.parametrize(
    ("operation", "error", "message"),
    [
        (
            (SET, "retenton.ms", "1"),
            ErrorCode.INVALID_CONFIG,
            "unknown topic config 'retenton.ms'; did you mean 'retention.ms'?",
        ),
        (
            (SET, "num.io.threads", "1"),
            ErrorCode.INVALID_CONFIG,
            "unknown topic config 'num.io.threads': it is a config of brokers; nothing was changed; name a broker instead",
        ),
        ((SET, "zzzz", "1"), ErrorCode.INVALID_CONFIG, "unknown topic config 'zzzz'"),
        ((DELETE, "zzzz", ""), ErrorCode.INVALID_CONFIG, "unknown topic config 'zzzz'"),
        (
            (APPEND, "retention.ms", "1"),
            ErrorCode.INVALID_CONFIG,
            "config retention.ms is not a list: append can't be done to it, only set and delete",
        ),
        (
            (SET, "compression.type", "rar"),
            ErrorCode.INVALID_CONFIG,
            "config compression.type is 'rar': it must be one of uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            (SET, "min.cleanable.dirty.ratio", "1.5"),
            ErrorCode.INVALID_CONFIG,
            "config min.cleanable.dirty.ratio is '1.5': it must be a number between 0 and 1",
        ),
        (
            (SET, "min.cleanable.dirty.ratio", "nan"),
            ErrorCode.INVALID_CONFIG,
            "config min.cleanable.dirty.ratio is 'nan': it must be a number between 0 and 1",
        ),
        (
            (SET, "min.cleanable.dirty.ratio", "0_1"),
            ErrorCode.INVALID_CONFIG,
            "config min.cleanable.dirty.ratio is '0_1': it must be a number between 0 and 1",
        ),
        (
            (SET, "min.cleanable.dirty.ratio", "\u0661"),
            ErrorCode.INVALID_CONFIG,
            "config min.cleanable.dirty.ratio is '\u0661': it must be a number between 0 and 1",
        ),
        (
            (SET, "compression.gzip.level", "0"),
            ErrorCode.INVALID_CONFIG,
            "config compression.gzip.level is '0': it must be -1 (the default level) or a whole number from 1 to 9",
        ),
        (
            (SET, "segment.bytes", "13"),
            ErrorCode.INVALID_CONFIG,
            "config segment.bytes is '13': it must be a whole number between 14 and 2147483647",
        ),
        (
            (SET, "retention.ms", "9223372036854775808"),
            ErrorCode.INVALID_CONFIG,
            "config retention.ms is '9223372036854775808': it must be a whole number, at least -1 (and below 2**63)",
        ),
        (
            (SET, "preallocate", "yes"),
            ErrorCode.INVALID_CONFIG,
            "config preallocate is 'yes': it must be one of true, false",
        ),
        (
            (SET, "leader.replication.throttled.replicas", "0:1,x"),
            ErrorCode.INVALID_CONFIG,
            "config leader.replication.throttled.replicas is '0:1,x': it must be a list of PARTITION:BROKER pairs, or *",
        ),
        (
            (SET, "retention.ms", "1" * 40_000),
            ErrorCode.INVALID_CONFIG,
            f"config retention.ms is '{'1' * 60}...': it must have at most 32,767 characters, not 40,000",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_alteration_is_told_why(
    cluster: Cluster, operation: tuple[ConfigOperationKind, str, str], error: ErrorCode, message: str
) -> None:
    """Key, value, and what it must be; all operations on the resource stand or fall together."""
    run = alter(cluster, (SET, "flush.ms", "1"), operation)

    assert outcome(run) == (error, message)
    assert run.records == []


def test_resources_stand_for_themselves(cluster: Cluster) -> None:
    """A bad resource doesn't hold up a good one; nobody alters a resource or a key twice in one request."""
    one = (ConfigOperation(SET, "retention.ms", "1"),)
    max_connections = (ConfigOperation(SET, "max.connections", "9"),)
    reply = cluster.ask(
        AlterConfigs(
            (
                ConfigAlteration(TOPIC_RESOURCE, "ghost", one),
                ConfigAlteration(TOPIC_RESOURCE, "t", one),
                ConfigAlteration(BROKER_RESOURCE, "", max_connections),
                ConfigAlteration(BROKER_RESOURCE, "0", max_connections),
                ConfigAlteration(BROKER_RESOURCE, "7", max_connections),
                ConfigAlteration(BROKER_RESOURCE, "seven", max_connections),
                ConfigAlteration(9, "x", one),
                ConfigAlteration(TOPIC_RESOURCE, "u", one),
                ConfigAlteration(TOPIC_RESOURCE, "u", one),
            )
        ),
        AlterConfigsReply,
    )

    assert [result.error for result in reply.results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    twice = alter(cluster, (SET, "flush.ms", "1"), (SET, "flush.ms", "2"))
    assert outcome(twice)[1] == "topic 't': config flush.ms is altered twice"


def test_too_many_operations(cluster: Cluster) -> None:
    """The request as a whole is refused, with the limit."""
    operations = tuple(ConfigOperation(SET, "flush.ms", "1") for _ in range(10_001))
    with pytest.raises(ControllerError, match="10,001 config operations on 1 resources; at most 10,000") as refused:
        cluster.run(AlterConfigs((ConfigAlteration(TOPIC_RESOURCE, "t", operations),)))

    assert refused.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("resource_type", sorted(KEYS))
def test_every_default_is_sound(resource_type: int) -> None:
    """What holds where nothing is set could also be set; and nonsense could not."""
    for key, known in KEYS[resource_type].items():
        check_value(resource_type, key, known.default)
        with pytest.raises(Rejected, match=key.replace(".", r"\.")):
            check_value(resource_type, key, "\x00nonsense")


@pytest.mark.parametrize("resource_type", sorted(KEYS))
def test_the_rows_of_the_table_are_in_alphabetical_order(resource_type: int) -> None:
    """A reader finds a key, and the place of a new key, without a search."""
    assert list(KEYS[resource_type]) == sorted(KEYS[resource_type])


@pytest.mark.parametrize("resource_type", sorted(KEYS))
def test_a_whole_number_has_the_bounds_of_its_row(resource_type: int) -> None:
    """The bounds themselves are allowed; the next number below and above is refused."""
    checks = {key: known.check for key, known in KEYS[resource_type].items() if isinstance(known.check, WholeNumber)}
    assert len(checks) > 10
    for key, check in checks.items():
        for good in (check.low, check.high):
            check_value(resource_type, key, str(good))
        for bad in (check.low - 1, check.high + 1):
            with pytest.raises(Rejected, match=f"config {key} is '{bad}': it must be a whole number"):
                check_value(resource_type, key, str(bad))


@pytest.mark.parametrize(
    ("word", "resource_type", "others"),
    [("topic", TOPIC_RESOURCE, BROKER_KEYS), ("broker", BROKER_RESOURCE, TOPIC_KEYS)],
)
def test_a_key_of_the_other_table_is_refused_and_says_where_it_belongs(
    word: str, resource_type: int, others: dict[str, ConfigKey]
) -> None:
    """A broker's key is no topic's key, and a topic's key no broker's, unless both tables have the key."""
    other = {"topic": "broker", "broker": "topic"}[word]
    foreign = others.keys() - KEYS[resource_type].keys()
    assert len(foreign) > 10
    for key in foreign:
        with pytest.raises(Rejected) as refused:
            check_value(resource_type, key, others[key].default)
        assert refused.value.message == (
            f"unknown {word} config {key!r}: it is a config of {other}s; nothing was changed; name a {other} instead"
        )


@pytest.mark.parametrize("resource_type", [TOPIC_RESOURCE, BROKER_RESOURCE])
def test_one_slip_of_a_finger_is_recognised(resource_type: int) -> None:
    """A character too many, too few, wrong, or two of them swapped: the refusal names a key that was one slip away."""
    for key in KEYS[resource_type]:
        for i in range(len(key)):
            swapped = key[:i] + key[i + 1 : i + 2] + key[i] + key[i + 2 :]
            for slip in (key[:i] + key[i + 1 :], key[:i] + "~" + key[i + 1 :], key[:i] + "~" + key[i:], swapped):
                if slip in KEYS[resource_type]:
                    continue
                with pytest.raises(Rejected, match="did you mean") as refused:
                    config_key(resource_type, slip)
                assert refused.value.message.endswith(f"{key!r}?"), refused.value.message


@pytest.mark.parametrize("name", ["007", "00", "+7", "7 ", "٧"])
def test_a_broker_has_one_name(name: str) -> None:
    """Broker 7's configs stand under "7": under another way to write the number they would be set, and never apply."""
    cluster = Cluster(1)
    cluster.register(7)
    operation = ConfigOperation(ConfigOperationKind.SET, "max.connections", "5")
    reply = cluster.ask(AlterConfigs((ConfigAlteration(BROKER_RESOURCE, name, (operation,)),)), AlterConfigsReply)
    assert reply.results[0].error is ErrorCode.INVALID_REQUEST
