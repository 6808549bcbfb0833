"""The rule file and the entry points: what they give, and the line of each mistake. With a mistake no controller starts."""

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from quorum import policy_file
from quorum.config import QuorumConfig
from quorum.controller.protocol.policy import ALLOW_ALL, ConfigChange, NewPartitionsRequest, NewTopicRequest, Policy
from quorum.policy_file import load_policy
from service_kit.process.config import ConfigErrors, load_config

WHOLE = r"""
schema_version: 1
rules:
  - name: teams
    reason: "ask #platform"
    topics: "team-.*"
    name_pattern: "team-[a-z]+\\.[a-z]+"
    partitions_max: 100
    replication_factor_min: 2
    replication_factor_max: 5
    configs:
      retention.ms: {min: 3600000, max: 604800000}
      min.cleanable.dirty.ratio: {max: 0.5}
      cleanup.policy: {one_of: [delete], required: true}
      unclean.leader.election.enable: {forbidden: true}
    broker_configs:
      unclean.leader.election.enable: {one_of: ["false"]}
"""


def load(tmp_path: Path, text: str) -> Policy:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    return load_policy(file, ())


def test_every_field_of_a_rule_counts(tmp_path: Path) -> None:
    policy = load(tmp_path, WHOLE)
    good = NewTopicRequest("team-a.x", 100, 2, {"cleanup.policy": "delete", "retention.ms": "3600000"})
    assert policy.check_new_topic(good) is None
    assert policy.check_new_topic(good._replace(name="payments", configs={})) is None
    for bad in (
        good._replace(name="team-a"),
        good._replace(partitions=101),
        good._replace(replication_factor=1),
        good._replace(replication_factor=6),
        good._replace(configs={}),
        *(
            good._replace(configs={**good.configs, key: value})
            for key, value in (
                ("retention.ms", "1"), ("retention.ms", "604800001"), ("min.cleanable.dirty.ratio", "0.6"),
                ("cleanup.policy", "compact"), ("unclean.leader.election.enable", "false"),
            )
        ),
    ):  # fmt: skip
        assert str(policy.check_new_topic(bad)).startswith("policy rule 'teams': "), bad
    assert policy.check_new_partitions(NewPartitionsRequest("team-a.x", 1, 101)) is not None
    change = ConfigChange(False, "", {}, {"unclean.leader.election.enable": "true"})
    assert policy.check_configs(change) is not None


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["rules.yaml: the file is empty"]),
        ("rules: [", ["rules.yaml:1: not YAML"]),
        ("- a", ["rules.yaml:1: a mapping of fields to values expected"]),
        ("schema_version: 2\nrules: []", ["rules.yaml:1: schema_version: must be 1"]),
        ("schema_version: 1\nrules: 7", ["rules.yaml:2: rules: a list of rules expected"]),
        ("schema_version: 1\nrules:\n- {}", ["rules.yaml:3: rules.0.name: a rule needs a name"]),
        ("schema_version: 1\nrules:\n- name: a\n  partition_max: 1", ["rules.yaml:4: rules.0.partition_max: unknown"]),
        ("schema_version: 1\nrules:\n- name: a\n  name: b", ["rules.yaml:4: rules.0.name: given twice"]),
        ("schema_version: 1\nrules:\n- name: a\n  partitions_max: many", ["rules.yaml:4: rules.0.partitions_max: a whole"]),
        ("schema_version: 1\nrules:\n- name: a\n  partitions_max: 0", [":4: rules.0.partitions_max: must be at least 1"]),
        ("schema_version: 1\nrules:\n- name: a\n  topics: '('", [":4: rules.0.topics: not a regular expression"]),
        (
            "schema_version: 1\nrules:\n- name: a\n  configs:\n    retention.mss: {min: 1}\n    retention.ms: {min: x}\n",
            [":5: rules.0.configs.retention.mss: unknown", ":6: rules.0.configs.retention.ms.min: a number expected"],
        ),
        (
            "schema_version: 1\nrules:\n- name: a\n  configs:\n    cleanup.policy: {min: 1}\n    preallocate: {one_of: [true]}\n",
            [":5: rules.0.configs.cleanup.policy.min: the values", ":6: rules.0.configs.preallocate.one_of: a list of texts"],
        ),
        (
            "schema_version: 1\nrules:\n- name: a\n  broker_configs:\n    num.io.threads: {required: true}",
            [":5: rules.0.broker_configs.num.io.threads.required: only a config of topics"],
        ),
        (
            "schema_version: 1\nrules:\n- name: a\n  configs:\n    cleanup.policy: {min: 1, one_of: [delete]}",
            [":5: rules.0.configs.cleanup.policy.min: the values"],
        ),
        (
            "schema_version: 1\nrules:\n- name: a\n  replication_factor_max: 2\n  replication_factor_min: 4",
            [":5: rules.0.replication_factor_min: 4 is above replication_factor_max 2"],
        ),
        *(
            (
                f"schema_version: 1\nrules:\n- name: a\n  configs:\n    {key}: {limits}",
                [f":5: rules.0.configs.{key}.{limit}"],
            )
            for key, limits, limit in (
                ("retention.ms", "{min: 9, max: 1}", "min: 9 is above max 1"),
                ("retention.ms", "{max: -7}", "max: -7 is below -1, the lowest"),
                ("max.message.bytes", "{min: 3000000000}", "min: 3000000000 is above 2147483647, the highest"),
                ("cleanup.policy", "{one_of: [delte]}", "one_of: cleanup.policy can have none of these"),
                ("retention.ms", "{one_of: ['5', '6'], min: 7}", "one_of: retention.ms can have none of these"),
                ("cleanup.policy", "{required: true, forbidden: true}", "required: the rule also forbids"),
            )
        ),
    ],
)  # fmt: skip
def test_each_mistake_has_its_field_and_line(text: str, problems: list[str], tmp_path: Path) -> None:
    """All of them at once. A misspelt limit would limit nothing."""
    with pytest.raises(ConfigErrors) as refused:
        load(tmp_path, text)
    assert len(refused.value.problems) == len(problems), refused.value
    for problem, line in zip(problems, str(refused.value).splitlines(), strict=True):
        assert problem in line


def test_a_controller_without_its_rule_file_does_not_start(tmp_path: Path) -> None:
    """It would allow what the operator wants to refuse."""
    file = tmp_path / "c.yaml"
    file.write_text(
        f"node.id: 1\nlisteners: CONTROLLER://127.0.0.1:0\nmetadata.log.dir: {tmp_path}\npolicy.file: {tmp_path}/gone.yaml\n"
    )
    with pytest.raises(ConfigErrors, match=r"gone\.yaml: No such file"):
        load_config(QuorumConfig, file, {}, ()).node_config()
    (tmp_path / "gone.yaml").write_text(WHOLE)
    assert load_config(QuorumConfig, file, {}, ()).node_config().controller.policy is not ALLOW_ALL
    assert load_policy(None, ()) is ALLOW_ALL


class NoShortNames(Policy):
    def check_new_topic(self, topic: NewTopicRequest) -> str | None:
        return "too short" if len(topic.name) < 3 else None


def broken() -> Policy:
    raise RuntimeError("no luck")


def test_entry_points_are_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class or a function that returns one; anything else stops the start, with the name."""
    installed = EntryPoints(
        EntryPoint(name, value, policy_file.GROUP)
        for name, value in (
            ("short", f"{__name__}:NoShortNames"),
            ("broken", f"{__name__}:broken"),
            ("text", "builtins:str"),
            ("gone", f"{__name__}:nothing"),
        )
    )
    monkeypatch.setattr(policy_file, "entry_points", installed.select)
    policy = load_policy(None, ["short"])
    assert policy.check_new_topic(NewTopicRequest("ab", 1, 1, {})) == "too short"
    assert policy.check_new_topic(NewTopicRequest("abc", 1, 1, {})) is None
    for name, problem in (
        ("broken", "cannot be loaded: RuntimeError: no luck"),
        ("text", "returns str, which is no Policy"),
        ("gone", "cannot be loaded: AttributeError"),
        ("other", r"0 entry points 'other' .* \(installed: broken, gone, short, text\)"),
    ):
        with pytest.raises(ConfigErrors, match=problem):
            load_policy(None, [name])
