"""The policy of a rule file: limits for topics and configs, each rule with a name and a reason.

Example. The rule `teams` is for topics that begin with `team-`: at most 100 partitions, 3 replicas at least, and `retention.ms`
between an hour and a week.

    team-a.orders with 200 partitions              refused: policy rule 'teams': 200 partitions; at most 100 are allowed
    team-a.orders with retention.ms=1              refused: policy rule 'teams': config retention.ms is 1; at least 3600000 ...
    team-a.orders without retention.ms             allowed: the cluster's default holds, and the rule does not require the key
    payments with 200 partitions                   allowed: the rule is not for this topic

A change is judged, not a state: a topic from before the rule stays as it is, and a change of another key of it is allowed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from quorum.controller.protocol.policy import ConfigChange, NewPartitionsRequest, NewTopicRequest, Policy
from quorum.controller.topics.config_keys import list_items

_SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class ConfigRule:
    """The values that a config key may have where it is set."""

    minimum: float | None = None
    maximum: float | None = None
    one_of: frozenset[str] | None = None
    """The allowed values; of a list, the allowed items."""
    is_required: bool = False
    """The key must be set on the resource itself. Only for topics."""
    is_forbidden: bool = False
    """The key must not be set on the resource."""

    def problem(self, key: str, value: str | None) -> str | None:
        """Returns the reason why the key may not have the value; None if it may. `value`: None if the key is not set."""
        if value is None:
            return f"config {key} must be set" if self.is_required else None
        shown = value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + "..."
        if self.is_forbidden:
            return f"config {key} must not be set"
        if self.minimum is not None and _number(value) < self.minimum:
            return f"config {key} is {shown}; at least {self.minimum} is allowed"
        if self.maximum is not None and _number(value) > self.maximum:
            return f"config {key} is {shown}; at most {self.maximum} is allowed"
        if self.one_of is not None and not self.one_of.issuperset({value}) and not self._has_only_allowed_items(value):
            return f"config {key} is {shown}; allowed: {', '.join(sorted(self.one_of))}"
        return None

    def _has_only_allowed_items(self, value: str) -> bool:
        items = list_items(value)
        return self.one_of is not None and bool(items) and self.one_of.issuperset(items)


def _number(value: str) -> float:
    """Returns the number exactly: a long does not fit into a float. The value has passed the key's own check."""
    try:
        return int(value)
    except ValueError:
        return float(value)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule. A part that is None or empty allows everything."""

    name: str
    reason: str = ""
    """A text for the client, for example whom to ask."""
    topics: re.Pattern[str] | None = None
    """The topics that the rule is for: the whole name matches. None: all topics."""
    name_pattern: re.Pattern[str] | None = None
    """The names that new topics may have: the whole name matches."""
    partitions_max: int | None = None
    replication_factor_min: int | None = None
    replication_factor_max: int | None = None
    configs: Mapping[str, ConfigRule] = field(default_factory=dict)
    """By key of topics."""
    broker_configs: Mapping[str, ConfigRule] = field(default_factory=dict)
    """By key of brokers: for each broker, and for the default of all brokers."""

    def is_for(self, topic: str) -> bool:
        return self.topics is None or self.topics.fullmatch(topic) is not None

    def told(self, problem: str) -> str:
        """Returns the text for the client."""
        return f"policy rule {self.name!r}: {problem}" + (f" ({self.reason})" if self.reason else "")

    def count_problem(self, partitions: int) -> str | None:
        if self.partitions_max is not None and partitions > self.partitions_max:
            return f"{partitions:,} partitions; at most {self.partitions_max:,} are allowed"
        return None

    def problems_of_new(self, topic: NewTopicRequest) -> Iterator[str]:
        if self.name_pattern is not None and self.name_pattern.fullmatch(topic.name) is None:
            yield f"the name {topic.name!r} does not match {self.name_pattern.pattern!r}"
        if (problem := self.count_problem(topic.partitions)) is not None:
            yield problem
        replicas, least, most = topic.replication_factor, self.replication_factor_min, self.replication_factor_max
        if least is not None and replicas < least:
            yield f"replication factor {replicas}; at least {least} is allowed"
        if most is not None and replicas > most:
            yield f"replication factor {replicas}; at most {most} is allowed"
        for key, rule in self.configs.items():
            if (problem := rule.problem(key, topic.configs.get(key))) is not None:
                yield problem


class PolicyRules(Policy):
    """The rules of a file, in its order. The first problem is the reason."""

    def __init__(self, rules: Sequence[PolicyRule]) -> None:
        self.rules = tuple(rules)

    def check_new_topic(self, topic: NewTopicRequest) -> str | None:
        for rule in self.rules:
            if rule.is_for(topic.name):
                for problem in rule.problems_of_new(topic):
                    return rule.told(problem)
        return None

    def check_new_partitions(self, growth: NewPartitionsRequest) -> str | None:
        for rule in self.rules:
            if rule.is_for(growth.name) and (problem := rule.count_problem(growth.partitions_wanted)) is not None:
                return rule.told(problem)
        return None

    def check_configs(self, change: ConfigChange) -> str | None:
        for rule in self.rules:
            if change.is_topic and not rule.is_for(change.name):
                continue
            known = rule.configs if change.is_topic else rule.broker_configs
            for key, value in change.changed.items():
                config = known.get(key)
                if config is not None and (problem := config.problem(key, value)) is not None:
                    return rule.told(problem)
        return None
