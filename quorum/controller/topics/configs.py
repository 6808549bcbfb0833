"""Configs of topics and brokers: the check of values, and incremental alterations (KIP-339).

The operations on one resource take effect together or not at all. The resources of one request are independent of each other. An
operation that changes nothing writes nothing.

Example. A request sets `retention.ms` of topic orders to 5, and `no.such.key` of topic sales to 1. The first is written. The
second gets INVALID_CONFIG in its own result.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NO_LEADER, NodeId
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, Config, MetadataRecord
from metadata_log.image.metadata_image import ConfigResource, MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.partitions.election_rules import MIN_ISR_KEY, keeps_elr
from quorum.controller.partitions.elr_clearing import cleared
from quorum.controller.protocol.commands import FollowUpReply
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    AlterConfigsReply,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
    ConfigResult,
    ContinueConfigs,
)
from quorum.controller.protocol.decision import ControllerError, Decision, allows_transactions
from quorum.controller.protocol.happenings import ConfigsChanged, first_few
from quorum.controller.protocol.pieces import next_slice
from quorum.controller.protocol.policy import ConfigChange
from quorum.controller.protocol.topic_rules import Rejected, check_policy
from quorum.controller.topics.config_keys import KEYS, RESOURCE_WORDS, VALUE_MAX, ConfigKey, list_items
from quorum.controller.topics.defined_keys import (
    DEFINED_KEYS_MAX,
    NO_DEFINITIONS,
    Definitions,
    count_defined,
    known_key,
)

OPERATIONS_MAX: Final = 10_000
"""Maximum number of operations in one request, over all resources."""
_SHOWN_MAX: Final = 60
_TRANSACTION: Final = "AlterConfigs"


def _shortened(key: str) -> set[str]:
    """Returns the key, and the key without each one of its characters."""
    return {key, *(key[:i] + key[i + 1 :] for i in range(len(key)))}


_BY_SHORTENED: Final = {
    resource_type: {form: key for key in sorted(keys) for form in _shortened(key)}
    for resource_type, keys in KEYS.items()
}


def _likeliest(resource_type: int, key: str) -> str | None:
    """Returns a known key that differs from `key` by one typing mistake: both are equal after each has lost a character.

    A lookup, because a request may have ten thousand such mistakes. A search for similar keys would take seconds, and the
    controller would lose its leadership.
    """
    forms = _shortened(key) if len(key) <= _SHOWN_MAX else ()
    return min((known for form in forms if (known := _BY_SHORTENED[resource_type].get(form))), default=None)


def config_key(resource_type: int, key: str, definitions: Definitions = NO_DEFINITIONS) -> ConfigKey:
    """Returns the row of the key. Raises Rejected(INVALID_CONFIG), with the key or resource that the client probably meant."""
    found = known_key(resource_type, key, definitions)
    if found is not None:
        return found
    word, hint = RESOURCE_WORDS[resource_type], ""
    elsewhere = [RESOURCE_WORDS[other] for other in KEYS if known_key(other, key, definitions) is not None]
    if elsewhere:
        hint = f": it is a config of {elsewhere[0]}s; nothing was changed; name a {elsewhere[0]} instead"
    elif near := _likeliest(resource_type, key):
        hint = f"; did you mean {near!r}?"
    raise Rejected(ErrorCode.INVALID_CONFIG, f"unknown {word} config {key[:_SHOWN_MAX]!r}{hint}")


def check_value(resource_type: int, key: str, value: str, definitions: Definitions = NO_DEFINITIONS) -> None:
    """Raises Rejected(INVALID_CONFIG) if the key is unknown, or the value is wrong for the key."""
    known = config_key(resource_type, key, definitions)
    if len(value) > VALUE_MAX:
        problem: str | None = f"must have at most {VALUE_MAX:,} characters, not {len(value):,}"
    else:
        problem = known.check(value)
    if problem is not None:
        shown = value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + "..."
        raise Rejected(ErrorCode.INVALID_CONFIG, f"config {key} is {shown!r}: it {problem}")


def check_topic_configs(name: str, configs: Iterable[tuple[str, str]], definitions: Definitions) -> None:
    """Checks the configs of a new topic. Raises Rejected(INVALID_CONFIG)."""
    seen: dict[str, str] = {}
    for key, value in configs:
        if key in seen:
            raise Rejected(ErrorCode.INVALID_CONFIG, f"topic {name!r}: config {key} is given twice")
        seen[key] = value
        try:
            check_value(TOPIC_RESOURCE, key, value, definitions)
        except Rejected as e:
            raise Rejected(e.code, f"topic {name!r}: {e.message}") from None
    _check_count(TOPIC_RESOURCE, name, seen)


def _check_count(resource_type: int, name: str, configs: Mapping[str, str]) -> None:
    """Raises Rejected(POLICY_VIOLATION) if a resource would have too many values of keys that embedders have defined."""
    if len(configs) <= DEFINED_KEYS_MAX:
        return
    count = count_defined(resource_type, configs)
    if count > DEFINED_KEYS_MAX:
        raise Rejected(
            ErrorCode.POLICY_VIOLATION,
            f"{resource_text(resource_type, name)} would have {count:,} values of defined keys; at most {DEFINED_KEYS_MAX} are "
            "allowed; nothing was done for it",
        )


def alter_configs(image: MetadataImage, command: AlterConfigs | ContinueConfigs, config: ControllerConfig) -> Decision:
    """Decides incremental alterations; each resource has its own result. A large request is decided slice by slice, as one
    transaction.

    Raises:
        ControllerError: POLICY_VIOLATION if the request as a whole is too large.
    """
    if isinstance(command, ContinueConfigs):
        return _next_slice(image, command, config)
    operation_count = sum(len(alteration.operations) for alteration in command.alterations)
    if operation_count > OPERATIONS_MAX or len(command.alterations) > OPERATIONS_MAX:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the request has {operation_count:,} config operations on {len(command.alterations):,} resources; "
            f"at most {OPERATIONS_MAX:,} are allowed; nothing was done",
        )
    resources = [(alteration.resource_type, alteration.resource_name) for alteration in command.alterations]
    rest = ContinueConfigs(command, _repeated(resources))
    if allows_transactions(image) and operation_count + len(resources) > config.one_batch_records_max:
        return _next_slice(image, rest, config)
    decided = _next(image, rest, config, len(resources))
    return decided if decided.then is None else replace(decided, transaction=_TRANSACTION)


def _next_slice(image: MetadataImage, rest: ContinueConfigs, config: ControllerConfig) -> Decision:
    count = cost = 0
    for alteration in rest.command.alterations[len(rest.results) :]:
        if count and cost >= config.transaction_slice_records:
            break
        count += 1
        cost += 1 + len(alteration.operations)
    decided = _next(image, rest, config, count)
    return decided if rest.command.validate_only else replace(decided, transaction=_TRANSACTION)


def _next(image: MetadataImage, rest: ContinueConfigs, config: ControllerConfig, count: int) -> Decision:
    """Decides the next `count` resources, and after the last of them the next clearing of eligible leader replicas."""
    command, done = rest.command, rest.results
    records: list[MetadataRecord] = []
    results: list[ConfigResult] = []
    changed = [*rest.changed]
    for alteration in command.alterations[len(done) : len(done) + count]:
        resource = alteration.resource_type, alteration.resource_name
        try:
            if resource in rest.repeated:
                raise Rejected(
                    ErrorCode.INVALID_REQUEST, f"{resource_text(*resource)} is named more than once in this request"
                )
            altered = _alter(image, alteration, config)
        except Rejected as e:
            results.append(ConfigResult(*resource, e.code, e.message))
        else:
            changed += altered
            records += altered
            results.append(ConfigResult(*resource))
    if len(records) > config.records_max:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the request changes {len(records):,} configs; one batch holds at most {config.records_max:,} records; "
            f"nothing was done",
        )
    results = [*done, *results]
    if command.validate_only:
        records = []
    if len(results) < len(command.alterations):
        return Decision(tuple(records), FollowUpReply(), replace(rest, results=tuple(results), changed=tuple(changed)))
    if not command.validate_only:
        clearing = rest.clearing or cleared(_losing_elr(image, changed), config.transaction_records_max - len(changed))
        clears, has_more = next_slice(clearing, config.transaction_slice_records)
        records += clears
        if has_more:
            rest = replace(rest, results=tuple(results), changed=tuple(changed), clearing=clearing)
            return Decision(tuple(records), FollowUpReply(), rest)
    reply = AlterConfigsReply(results=tuple(results))
    story = () if command.validate_only or not changed else (ConfigsChanged(len(changed), _named(changed)),)
    return Decision(tuple(records), reply, happenings=story)


def _losing_elr(image: MetadataImage, changed: Sequence[Config]) -> Iterable[TopicImage]:
    """Returns the topics whose eligible leader replicas end, because their `min.insync.replicas` may change (KIP-966).

    For example `min.insync.replicas` falls from 2 to 1, and orders-0 has the ISR 101 and the ELR 102. From now on the high
    watermark moves with 101 alone, so 102 may lack records: 102 must not stay in the ELR.
    """
    if not keeps_elr(image):
        return ()
    resources = [(record.resource_type, record.resource_name) for record in changed if record.key == MIN_ISR_KEY]
    if (BROKER_RESOURCE, "") in resources:
        return image.topics_by_id.unordered_values()
    names = [name for resource_type, name in resources if resource_type == TOPIC_RESOURCE]
    return (topic for name in names if (topic := image.topic(name)) is not None)


def _named(records: Sequence[Config]) -> tuple[str, ...]:
    """Names the first few keys, without their values: a value may be a secret."""
    return first_few(
        f"{RESOURCE_WORDS[record.resource_type]} {record.resource_name or '(default)'}: {record.key}"
        for record in records
    )


def _repeated(resources: Sequence[ConfigResource]) -> frozenset[ConfigResource]:
    if len(resources) == 1:
        return frozenset()
    return frozenset(resource for resource, times in Counter(resources).items() if times > 1)


def resource_text(resource_type: int, name: str) -> str:
    """Names a resource in words: topic 'orders', broker '7', the default of all brokers."""
    if (resource_type, name) == (BROKER_RESOURCE, ""):
        return "the default of all brokers"
    return f"{RESOURCE_WORDS.get(resource_type, f'resource type {resource_type}')} {name!r}"


def check_resource(image: MetadataImage, resource_type: int, name: str, own_id: NodeId = NO_LEADER) -> None:
    """Raises Rejected if the image has no such resource, or the resource type has no configs.

    A broker resource may also have the id of a controller: of this one (`own_id`), or of one that has registered. A node that is
    gone and left configs is still there, so that they can be seen and deleted.
    """
    if resource_type not in KEYS:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource_type} has no configs: {TOPIC_RESOURCE} (topic) and {BROKER_RESOURCE} (broker) have",
        )
    if resource_type == TOPIC_RESOURCE and name not in image.topic_ids:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if (
        resource_type == BROKER_RESOURCE
        and name != ""
        and not (name.isascii() and name.isdecimal() and len(name) <= 10 and name == str(int(name)))
    ):
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"broker {name[:_SHOWN_MAX]!r} is neither a broker id nor '' (the default of all)",
        )
    if resource_type != BROKER_RESOURCE or name == "":
        return
    node_id = int(name)
    is_known = node_id == own_id or node_id in image.brokers or node_id in image.controllers
    if not is_known and not image.config(resource_type, name):
        raise Rejected(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {name} is not registered")


def _alter(image: MetadataImage, alteration: ConfigAlteration, config: ControllerConfig) -> list[Config]:
    resource_type, name = alteration.resource_type, alteration.resource_name
    check_resource(image, resource_type, name, config.node_id)
    before = image.config(resource_type, name)
    after: dict[str, str | None] = {}
    for operation in alteration.operations:
        if operation.key in after:
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"{resource_text(resource_type, name)}: config {operation.key} is altered twice",
            )
        after[operation.key] = _result_of(resource_type, operation, before, image.config_definitions)
        if resource_type == BROKER_RESOURCE and name != "" and after[operation.key] is not None:
            _check_may_be_of_one_node(operation.key)
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    if changed:
        if len(before) + len(changed) > DEFINED_KEYS_MAX:
            whole = {**before, **changed}
            _check_count(resource_type, name, {key: value for key, value in whole.items() if value is not None})
        change = ConfigChange(resource_type == TOPIC_RESOURCE, name, before, changed)
        check_policy(config.policy.check_configs(change), resource_text(resource_type, name))
    return [Config(resource_type, name, key, value) for key, value in changed.items()]


def _check_may_be_of_one_node(key: str) -> None:
    """Raises Rejected(INVALID_CONFIG) for a key whose value all nodes must know alike (KIP-966)."""
    if key == MIN_ISR_KEY:
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"config {key} can't be set for one node: leaders and controllers must agree about it; nothing was changed; "
            "set it for a topic, or for all brokers (a broker resource with an empty name)",
        )


def _result_of(
    resource_type: int, operation: ConfigOperation, before: Mapping[str, str], definitions: Definitions
) -> str | None:
    """Returns the key's value after the operation; None if the key is not set."""
    key = operation.key
    kind = operation.kind
    if kind is ConfigOperationKind.DELETE:
        # A key that is set may always be removed, even a key that only a newer controller knows.
        if key not in before:
            config_key(resource_type, key, definitions)
        return None
    value = operation.value
    if kind is not ConfigOperationKind.SET:
        known = config_key(resource_type, key, definitions)
        if not known.is_list:
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"config {key} is not a list: {kind.value} can't be done to it, only set and delete",
            )
        items = list_items(before.get(key, known.default))
        named = list_items(value)
        if kind is ConfigOperationKind.APPEND:
            items += [item for item in named if item not in items]
        else:
            items = [item for item in items if item not in named]
        value = ",".join(items)
        if value == before.get(key, known.default):
            return before.get(key)
    check_value(resource_type, key, value, definitions)
    return value
