"""Bugs of policies: what is judged, and what becomes of the judgement."""

from quorum.controller.protocol.policy import ConfigChange, NewPartitionsRequest
from quorum.controller.topics import topic_pieces
from quorum.controller.topics.policy_rules import PolicyRules
from tests.sim.mutants.patching import Mutant, patched

_check_growth = PolicyRules.check_new_partitions


def _judge_the_step(self: PolicyRules, growth: NewPartitionsRequest) -> str | None:
    return _check_growth(self, growth._replace(partitions_wanted=growth.partitions_wanted - growth.partitions_now))


def _allow_changes(self: PolicyRules, change: ConfigChange) -> str | None:
    return None


def _do_it_anyway(reason: str | None, what: str) -> None:
    return None


POLICIES: dict[str, Mutant] = {
    "growth-judged-by-its-step": Mutant(
        "a policy judges how many partitions a topic gets, not how many it will have",
        lambda: patched(PolicyRules, "check_new_partitions", _judge_the_step),
    ),
    "policy-for-new-topics-alone": Mutant(
        "a policy judges the configs of new topics, and no later change of a config",
        lambda: patched(PolicyRules, "check_configs", _allow_changes),
    ),
    "policy-asked-in-vain": Mutant(
        "a topic is created or grown although a policy has refused it",
        lambda: patched(topic_pieces, "check_policy", _do_it_anyway),
    ),
}
