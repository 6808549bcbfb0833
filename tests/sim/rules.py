"""The policy of the controllers of a run: rules about topics and configs that the clients do not know."""

from quorum.controller.protocol.policy import ALLOW_ALL, Policy
from quorum.controller.topics.policy_rules import ConfigRule, PolicyRule, PolicyRules

FORBIDDEN = "3"
"""The value that clients also set, and that the rules forbid."""
KEYS = ("retention.ms", "log.retention.ms")


def rules(partitions_max: int) -> Policy:
    """The controllers' policy; 0: none."""
    if not partitions_max:
        return ALLOW_ALL
    allowed = ConfigRule(one_of=frozenset({"1", "2", "60000"}))
    topic_key, broker_key = KEYS
    rule = PolicyRule(
        "sim", partitions_max=partitions_max, configs={topic_key: allowed}, broker_configs={broker_key: allowed}
    )
    return PolicyRules((rule,))
