"""Checks the changes of a plan on the cluster, and then makes them, in batches.

The command makes nothing before the controllers have accepted every change with `validate_only`:

    1. The file gives orders 9 partitions, and payments the config `retention.ms: abc`.
    2. The check asks for both. The controller accepts the first and refuses the second, so orders keeps its 3 partitions.
    3. The operator corrects the file. The next run makes both changes.

A change can still be refused after the check, for example because another client has created the topic meanwhile. Then the
changes before it stay, and those after its batch are not tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE
from quorum.cli.apply.plan import BATCH_PARTITIONS, BATCH_TOPICS, Alterations, Plan, batched
from quorum.cli.apply.wanted_file import WantedTopic
from quorum.cli.errors import EXIT_OK, EXIT_REFUSED, exit_code_of, of_admin_error

if TYPE_CHECKING:
    from metaquorum import AdminClient, AdminError

DONE: Final = "done"
WOULD_BE_DONE: Final = "would be done"
REFUSED: Final = "refused"
NOT_TRIED: Final = "not tried"
UNKNOWN: Final = "unknown"
"""The answer is missing: the change may have been made."""
_OF_ITS_CHANGES: Final = frozenset((ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST))
"""The refusals of a whole request for which one of its changes is the reason."""


class Answer(NamedTuple):
    """The cluster's answer to one change."""

    result: str
    error: str | None = None
    message: str | None = None


@dataclass(slots=True)
class Outcome:
    """The answers to all changes of a plan."""

    plan: Plan
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    """By kind of change, and name of the topic or broker."""
    stopped_by: AdminError | None = None
    """The error of the last request, if it was refused as a whole, or not answered."""

    def changes(self) -> list[dict[str, Any]]:
        """Every change of the plan as a document, with its answer."""
        return [{**change, **self._answer(change)._asdict()} for change in self.plan.changes()]

    def _answer(self, change: Mapping[str, Any]) -> Answer:
        return self.answers[change["kind"], change["topic"] if "topic" in change else change["broker"]]

    def count(self, result: str) -> int:
        return sum(answer.result == result for answer in self.answers.values())

    def document(self) -> dict[str, Any]:
        results = Counter(answer.result for answer in self.answers.values())
        return {**self.plan.document(), "changes": self.changes(), "results": dict(results)}

    def good_counts(self) -> Counter[str]:
        """How many changes of each kind were made, or would be made."""
        return Counter(change["kind"] for change in self.changes() if change["result"] in (DONE, WOULD_BE_DONE))

    def lines(self) -> Iterator[str]:
        """Every change for people."""
        for change in self.changes():
            is_plain = change["result"] in (DONE, WOULD_BE_DONE)
            yield str(change["text"]) if is_plain else f"{change['text']}: {_told(change)}"
        yield from self.problem_lines()

    def failure_lines(self) -> Iterator[str]:
        """The changes that were not made, or are not possible."""
        for change in self.changes():
            if change["error"] is not None:
                yield f"{change['text']}: {_told(change)}"
        yield from self.problem_lines()

    def problem_lines(self) -> Iterator[str]:
        yield from (f"not possible: {problem.text}" for problem in self.plan.problems)

    @property
    def is_good(self) -> bool:
        return self.stopped_by is None and not self.plan.problems and not self.count(REFUSED)

    @property
    def exit_code(self) -> int:
        if self.stopped_by is not None:
            return of_admin_error(self.stopped_by).exit_code
        for answer in self.answers.values():
            if answer.error is not None:
                return exit_code_of(ErrorCode[answer.error])
        return EXIT_REFUSED if self.plan.problems else EXIT_OK

    def note(self, kind: str, batch: Sequence[Any], answer: Answer) -> None:
        self.answers |= {(kind, _name(item)): answer for item in batch}

    def take(self, kind: str, batch: Sequence[Any], errors: Sequence[Any], good: str) -> None:
        """Notes the answers to a request, which are in the order of the batch."""
        for item, error in zip(batch, errors, strict=True):
            is_refused = error is not None and error.code
            refusal = Answer(REFUSED, ErrorCode.of(error.code).name, error.message) if is_refused else None
            self.note(kind, [item], refusal or Answer(good))


def _told(change: Mapping[str, Any]) -> str:
    """The answer for people."""
    told = ": ".join(part for part in (change["error"], change["message"]) if part is not None)
    return f"{change['result']}, {told}" if told else str(change["result"])


async def check_plan(client: AdminClient, plan: Plan) -> Outcome:
    """Asks the controllers about every change of the plan, and changes nothing. Deletions are not asked for."""
    outcome = Outcome(plan)
    for kind, batch in _batches(plan):
        await _check(client, kind, batch, outcome)
    return outcome


async def _check(client: AdminClient, kind: str, batch: Sequence[Any], outcome: Outcome) -> None:
    from metaquorum import AdminError

    try:
        outcome.take(kind, batch, await _ask(client, kind, batch, validate_only=True), WOULD_BE_DONE)
    except AdminError as e:
        if e.code not in _OF_ITS_CHANGES:
            raise
        if len(batch) == 1:
            outcome.note(kind, batch, Answer(REFUSED, e.code.name, e.message))
            return
        for item in batch:
            await _check(client, kind, [item], outcome)


async def apply_plan(client: AdminClient, plan: Plan) -> Outcome:
    """Makes the changes of the plan, until a change is refused.

    The defaults of brokers come first, so that new topics begin with them. A topic's configs come before its partitions: a topic
    whose configs are refused gets no partitions. Deletions come last.
    """
    from metaquorum import AdminError, Unanswered

    outcome = Outcome(plan)
    for kind, batch in _batches(plan):
        if not outcome.is_good:
            outcome.note(kind, batch, Answer(NOT_TRIED))
            continue
        try:
            errors = await _ask(client, kind, batch, validate_only=False)
        except AdminError as e:
            outcome.stopped_by = e
            result = UNKNOWN if isinstance(e, Unanswered) else REFUSED
            outcome.note(kind, batch, Answer(result, e.code.name, e.message))
        else:
            outcome.take(kind, batch, errors, DONE)
    return outcome


def _batches(plan: Plan) -> Iterator[tuple[str, list[Any]]]:
    """The requests, in their order: the kind of change, and the changes."""
    for altering in batched(plan.alter_brokers, lambda each: len(each[1]), BATCH_PARTITIONS, BATCH_TOPICS):
        yield "alter_broker", altering
    for creating in batched(plan.create, lambda topic: topic.partitions or 1, BATCH_PARTITIONS, BATCH_TOPICS):
        yield "create", creating
    for altering in batched(plan.alter, lambda each: len(each[1]), BATCH_PARTITIONS, BATCH_TOPICS):
        yield "alter", altering
    for growing in batched(plan.grow, lambda each: each[2] - each[1], BATCH_PARTITIONS, BATCH_TOPICS):
        yield "grow", growing
    for deleting in batched(plan.delete, lambda _: 1, BATCH_TOPICS, BATCH_TOPICS):
        yield "delete", deleting


def _name(item: Any) -> str:
    """The name of a change's topic or broker."""
    if isinstance(item, str):
        return item
    name: str = item[0]
    return name


async def _ask(client: AdminClient, kind: str, batch: Sequence[Any], *, validate_only: bool) -> Sequence[Any]:
    """Sends one request, and returns the error of each change of the batch."""
    response: Any
    match kind:
        case "create":
            response = await client.create_topics(map(_new_topic, batch), validate_only=validate_only)
        case "grow":
            growing = [admin_pb2.NewPartitions(name=name, total_count=wanted) for name, _, wanted in batch]
            response = await client.create_partitions(growing, validate_only=validate_only)
        case "delete":
            if validate_only:
                return [None] * len(batch)
            response = await client.delete_topics(batch)
        case _:
            resource_type = TOPIC_RESOURCE if kind == "alter" else BROKER_RESOURCE
            altering = [_alteration(resource_type, name, keys) for name, keys in batch]
            response = await client.alter_configs(altering, validate_only=validate_only)
    return [result.error for result in response.results]


def _new_topic(topic: WantedTopic) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(
        name=topic.name,
        partitions=-1 if topic.partitions is None else topic.partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        configs=[admin_pb2.ConfigEntry(key=key, value=value) for key, value in topic.configs.items()],
    )


def _alteration(resource_type: int, name: str, keys: Alterations) -> admin_pb2.ConfigAlteration:
    return admin_pb2.ConfigAlteration(
        resource=admin_pb2.ConfigResource(resource_type=resource_type, name=name),
        operations=[
            admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.SET, key=key, value=wanted)
            for key, (_, wanted) in keys.items()
        ],
    )
