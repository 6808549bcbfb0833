"""Loads the policy of a controller: the rule file (`policy.file`), and policies in Python (`policy.names`).

    schema_version: 1
    rules:
      - name: teams                         # named in every refusal
        reason: "ask #platform"             # the rest is optional
        topics: "team-.*"                   # the topics that the rule is for; a regular expression for the whole name
        name_pattern: "team-[a-z]+\\.[a-z]+"
        partitions_max: 100
        replication_factor_min: 2
        replication_factor_max: 5
        configs:
          retention.ms: {min: 3600000, max: 604800000}
          cleanup.policy: {one_of: [delete], required: true}
          unclean.leader.election.enable: {forbidden: true}
        broker_configs:
          unclean.leader.election.enable: {one_of: ["false"]}

A policy in Python is an entry point of the group `metaquorum.policies`: a class or function that is called once, without
arguments, and returns a `quorum.controller.protocol.policy.Policy`. The rule file is asked first, then the entry points in the
order of `policy.names`.

A controller with a mistake in its rules does not start: it would allow what the operator wants to refuse.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from quorum.controller.protocol.policy import ALLOW_ALL, Policies, Policy
from quorum.controller.topics.config_keys import BROKER_KEYS, TOPIC_KEYS, ConfigKey, WholeNumber
from quorum.controller.topics.policy_rules import ConfigRule, PolicyRule, PolicyRules
from service_kit.process.settings import ConfigErrors, ConfigProblem, read_yaml

GROUP: Final = "metaquorum.policies"
SCHEMA_VERSION: Final = 1
_RULE_FIELDS: Final = (
    "name",
    "reason",
    "topics",
    "name_pattern",
    "partitions_max",
    "replication_factor_min",
    "replication_factor_max",
    "configs",
    "broker_configs",
)
_CONFIG_FIELDS: Final = ("min", "max", "one_of", "required", "forbidden")

T = TypeVar("T")


def load_policy(file: Path | None, names: Sequence[str]) -> Policy:
    """Returns the policy of both sources; the policy that allows everything without any.

    Raises:
        ConfigErrors: the file cannot be read, or has mistakes, each with its field and line; or an entry point is not usable.
    """
    policies: list[Policy] = [] if file is None else [PolicyRules(_RuleFile(file).rules())]
    policies += [_entry_point(name) for name in names]
    return Policies(policies) if policies else ALLOW_ALL


def _entry_point(name: str) -> Policy:
    found = entry_points(group=GROUP, name=name)
    if len(found) != 1:
        installed = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
        text = f"{len(found)} entry points {name!r} of the group {GROUP} are installed (installed: {installed})"
        raise ConfigErrors([ConfigProblem("policy.names", text, "")])
    try:
        (entry,) = found
        policy = entry.load()()
    except Exception as e:  # code of others: whatever it raises, the controller must not start without its policy
        text = f"the entry point {name!r} cannot be loaded: {type(e).__name__}: {e}"
        raise ConfigErrors([ConfigProblem("policy.names", text, "")]) from e
    if not isinstance(policy, Policy):
        text = f"the entry point {name!r} returns {type(policy).__name__}, which is no Policy"
        raise ConfigErrors([ConfigProblem("policy.names", text, "")])
    return policy


class _RuleFile:
    """One rule file. Collects all mistakes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problems: list[ConfigProblem] = []
        self._loader = yaml.SafeLoader("")

    def rules(self) -> list[PolicyRule]:
        """Returns the rules. Raises ConfigErrors."""
        root = read_yaml(self._path)
        if root is None:
            text = "the file is empty: schema_version and rules expected"
            raise ConfigErrors([ConfigProblem("", text, str(self._path))])
        fields = self._fields(root, "", ("schema_version", "rules"))
        if self._problems:  # no mapping, or misspelt sections: all other mistakes would follow from these
            raise ConfigErrors(self._problems)
        version = self._value(fields, "", "schema_version", int, "a number")
        if version != SCHEMA_VERSION:
            self._fail(root, "schema_version", f"must be {SCHEMA_VERSION}, which is what this release knows")
        rules = [self._rule(node, f"rules.{index}") for index, node in enumerate(self._items(fields, "rules", root))]
        if self._problems:
            raise ConfigErrors(self._problems)
        return rules

    def _items(self, fields: Mapping[str, yaml.Node], name: str, root: yaml.Node) -> list[yaml.Node]:
        node = fields.get(name)
        if not isinstance(node, yaml.SequenceNode):
            self._fail(node or root, name, "a list of rules expected")
            return []
        return list(node.value)

    def _rule(self, node: yaml.Node, at: str) -> PolicyRule:
        fields = self._fields(node, at, _RULE_FIELDS)
        name = self._value(fields, at, "name", str, "a text")
        if not name:
            self._fail(node, f"{at}.name", "a rule needs a name, which refusals show")
        rule = PolicyRule(
            name or "",
            self._value(fields, at, "reason", str, "a text") or "",
            self._pattern(fields, at, "topics"),
            self._pattern(fields, at, "name_pattern"),
            self._count(fields, at, "partitions_max"),
            self._count(fields, at, "replication_factor_min"),
            self._count(fields, at, "replication_factor_max"),
            dict(self._configs(fields, at, "configs", TOPIC_KEYS)),
            dict(self._configs(fields, at, "broker_configs", BROKER_KEYS)),
        )
        least, most = rule.replication_factor_min, rule.replication_factor_max
        if least is not None and most is not None and least > most:
            text = f"{least} is above replication_factor_max {most}: no topic could be created"
            self._fail(fields["replication_factor_min"], f"{at}.replication_factor_min", text)
        return rule

    def _configs(
        self, fields: Mapping[str, yaml.Node], at: str, name: str, keys: Mapping[str, ConfigKey]
    ) -> Iterator[tuple[str, ConfigRule]]:
        node = fields.get(name)
        if node is None:
            return
        for key, value in self._fields(node, f"{at}.{name}", tuple(keys)).items():
            here = f"{at}.{name}.{key}"
            rule = self._fields(value, here, _CONFIG_FIELDS)
            for bound in ("min", "max"):
                if bound in rule and not _is_number(keys[key]):
                    self._fail(rule[bound], f"{here}.{bound}", f"the values of {key} are no numbers")
            required = self._value(rule, here, "required", bool, "true or false") or False
            if required and name == "broker_configs":
                self._fail(rule["required"], f"{here}.required", "only a config of topics can be required")
            limits = ConfigRule(
                self._number(rule, here, "min"),
                self._number(rule, here, "max"),
                self._texts(rule, here, "one_of"),
                required,
                self._value(rule, here, "forbidden", bool, "true or false") or False,
            )
            if (unmet := _unmet(limits, keys[key])) is not None:
                limit, text = unmet
                self._fail(rule[limit], f"{here}.{limit}", text)
            yield key, limits

    # --- values --------------------------------------------------------------------------------------------------------

    def _fail(self, node: yaml.Node, field: str, text: str) -> None:
        self._problems.append(ConfigProblem(field, text, f"{self._path}:{node.start_mark.line + 1}"))

    def _fields(self, node: yaml.Node, at: str, known: Sequence[str]) -> dict[str, yaml.Node]:
        """The fields of a mapping. An unknown one is a mistake: a misspelt limit limits nothing."""
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, at, "a mapping of fields to values expected")
            return {}
        found: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            field = f"{at}.{key_node.value}" if at else str(key_node.value)
            if key_node.value not in known:
                few = f"; known: {', '.join(known)}" if len(known) < 12 else ""
                self._fail(key_node, field, f"unknown{few}")
            elif key_node.value in found:
                self._fail(key_node, field, "given twice")
            else:
                found[key_node.value] = value_node
        return found

    def _value(self, fields: Mapping[str, yaml.Node], at: str, name: str, kind: type[T], what: str) -> T | None:
        node = fields.get(name)
        if node is None:
            return None
        value: Any = self._constructed(node)
        if type(value) is not kind:
            self._fail(node, f"{at}.{name}" if at else name, f"{what} expected")
            return None
        return value

    def _constructed(self, node: yaml.Node) -> Any:
        """The value of a node; the node itself, which is of no wanted type, if YAML gives it no plain value."""
        try:
            return self._loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError):
            return node

    def _count(self, fields: Mapping[str, yaml.Node], at: str, name: str) -> int | None:
        value = self._value(fields, at, name, int, "a whole number")
        if value is not None and value < 1:
            self._fail(fields[name], f"{at}.{name}", f"must be at least 1, not {value}")
        return value

    def _number(self, fields: Mapping[str, yaml.Node], at: str, name: str) -> float | None:
        node = fields.get(name)
        if node is None:
            return None
        value = self._constructed(node)
        if type(value) in (int, float):
            return value  # type: ignore[no-any-return]
        self._fail(node, f"{at}.{name}", "a number expected")
        return None

    def _texts(self, fields: Mapping[str, yaml.Node], at: str, name: str) -> frozenset[str] | None:
        node = fields.get(name)
        if node is None:
            return None
        value = self._constructed(node)
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            return frozenset(value)
        self._fail(node, f"{at}.{name}", "a list of texts expected (write true and numbers in quotes)")
        return None

    def _pattern(self, fields: Mapping[str, yaml.Node], at: str, name: str) -> re.Pattern[str] | None:
        text = self._value(fields, at, name, str, "a regular expression")
        if text is None:
            return None
        try:
            return re.compile(text)
        except re.error as e:
            self._fail(fields[name], f"{at}.{name}", f"not a regular expression: {e}")
            return None


def _unmet(rule: ConfigRule, key: ConfigKey) -> tuple[str, str] | None:
    """The limit that together with the other limits, or with the key's own bounds, leaves no value; and the reason."""
    if rule.is_required and rule.is_forbidden:
        return "required", "the rule also forbids the key: no topic could be created"
    if rule.minimum is not None and rule.maximum is not None and rule.minimum > rule.maximum:
        return "min", f"{rule.minimum} is above max {rule.maximum}: no value is left"
    if isinstance(key.check, WholeNumber):
        if rule.minimum is not None and rule.minimum > key.check.high:
            return "min", f"{rule.minimum} is above {key.check.high}, the highest value of {key.name}"
        if rule.maximum is not None and rule.maximum < key.check.low:
            return "max", f"{rule.maximum} is below {key.check.low}, the lowest value of {key.name}"
    if not _is_number(key) and (rule.minimum is not None or rule.maximum is not None):
        return None  # a mistake of its own
    allowed = [each for each in rule.one_of or () if key.check(each) is None and rule.problem(key.name, each) is None]
    if rule.one_of is not None and not allowed and not rule.is_forbidden:
        return "one_of", f"{key.name} can have none of these values"
    return None


def _is_number(key: ConfigKey) -> bool:
    try:
        float(key.default)
    except ValueError:
        return False
    return True
