"""Policies: an organisation's own rules about new topics, new partitions and configs (Kafka's CreateTopicPolicy and
AlterConfigPolicy).

    1. The platform team wants at most 100 partitions in a topic, and installs a policy on every controller.
    2. A client creates `orders` with 200 partitions. The request is sound, so the active controller asks the policy.
    3. The policy returns a reason, and `orders` gets POLICY_VIOLATION with this reason. Other topics of the request are created.

A policy is asked inside a decision, after the controllers' own checks, also for a dry run. So a policy is a quick and pure
function of its argument: no clock, no files, no network, no state. A request is decided by the active controller alone: if
controllers have different policies, the policy of the active controller holds, and changes with it. Each record in
the log was decided once: no replay and no restart asks a policy again.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class NewTopicRequest(NamedTuple):
    """A topic that a client wants to create. Numbers that the client left out are filled in."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    """The configs that will be set on the topic itself."""


class NewPartitionsRequest(NamedTuple):
    """A topic that a client wants to give more partitions."""

    name: str
    partitions_now: int
    partitions_wanted: int
    """How many partitions the topic will have in all."""


class ConfigChange(NamedTuple):
    """Configs of one resource that a client wants to change."""

    is_topic: bool
    """True for a topic, False for a broker."""
    name: str
    """The topic's name, or the broker's id as text; the empty text is the default of all brokers."""
    before: Mapping[str, str]
    """The configs that are set on the resource itself now."""
    changed: Mapping[str, str | None]
    """The keys that change, with their new values; None: the key is deleted."""


class Policy:
    """The interface of a policy, and the policy that allows everything. Each method returns None to allow the request, or the
    reason for the refusal, a sentence for the client. An exception is a bug in the policy: the request is refused with
    UNKNOWN_SERVER_ERROR, and nothing is done.
    """

    def check_new_topic(self, topic: NewTopicRequest) -> str | None:
        """Judges a new topic."""
        return None

    def check_new_partitions(self, growth: NewPartitionsRequest) -> str | None:
        """Judges new partitions of a topic."""
        return None

    def check_configs(self, change: ConfigChange) -> str | None:
        """Judges a change of configs."""
        return None


ALLOW_ALL: Final = Policy()
"""The policy of a controller without policies."""


class Policies(Policy):
    """Several policies: the first refusal counts."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self._policies = tuple(policies)

    def check_new_topic(self, topic: NewTopicRequest) -> str | None:
        return next((reason for each in self._policies if (reason := each.check_new_topic(topic)) is not None), None)

    def check_new_partitions(self, growth: NewPartitionsRequest) -> str | None:
        reasons = (each.check_new_partitions(growth) for each in self._policies)
        return next((reason for reason in reasons if reason is not None), None)

    def check_configs(self, change: ConfigChange) -> str | None:
        return next((reason for each in self._policies if (reason := each.check_configs(change)) is not None), None)
