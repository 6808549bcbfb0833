"""Carries a plan out: wave after wave, because a controller adds only so many replicas to one broker at a time.

Example: the plan moves 250 replicas onto broker 104, and `reassignment.moves.per.broker.max` is 100.
    1  The first wave asks for all 250. The controller begins 100, and refuses 150 with THROTTLING_QUOTA_EXCEEDED.
    2  Half a second later 40 of the 100 are finished. The second wave asks for the 150, and the controller begins 40.
    3  The command ends when all 250 are finished, or when the time to wait is over. Another run goes on.
    4  The other run finds 90 replicas on the way to 104. Its plan has none of them, because a plan is made from the targets.
       So the command names their partitions as `earlier`, and waits for them, too.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from metadata_log.format.errors import ErrorCode
from quorum.cli.errors import EXIT_OK, EXIT_REFUSED, EXIT_TIMEOUT, exit_code_of
from quorum.cli.reassignment import progress
from quorum.cli.reassignment.ongoing import held_up, inactive_brokers, not_in_sync, waits_text
from quorum.wire.words import counted

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient
    from quorum.controller.partitions.reassignment.rebalancing import Place, Replicas

REQUEST_PARTITIONS_MAX: Final = 1_000
_PAUSE_S: Final = 0.5
"""How long to wait between two waves."""
_pause: Final = asyncio.sleep
_GIVEN_UP: Final = (
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    "another request has cancelled the reassignment, or has given it another target",
)
_ABSENT: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition was deleted meanwhile")


@dataclass
class Outcome:
    """The result for each partition of a plan."""

    begun: dict[Place, admin_pb2.ReassignmentResult] = field(default_factory=dict)
    waiting: dict[Place, admin_pb2.ReassignmentResult] = field(default_factory=dict)
    """The partitions that the controller was not asked for in vain, but too early."""
    failed: dict[Place, admin_pb2.ReassignmentResult] = field(default_factory=dict)
    moving: set[Place] = field(default_factory=set)
    """The begun partitions that are not finished."""
    targets: dict[Place, Set[int]] = field(default_factory=dict)
    """The replicas that each partition shall have."""
    ongoing: dict[Place, admin_pb2.OngoingReassignment] = field(default_factory=dict)
    """The progress of each moving partition; empty after a dry run."""
    inactive: dict[int, str] = field(default_factory=dict)
    """The state of each broker that is not online, if partitions are moving."""
    is_late: bool = False
    """The time to wait ended first."""

    @property
    def exit_code(self) -> int:
        for result in self.failed.values():
            return exit_code_of(ErrorCode.of(result.error.code))
        if self.is_late:
            return EXIT_TIMEOUT
        return EXIT_REFUSED if self.waiting else EXIT_OK

    def counts(self) -> dict[str, int]:
        return {
            "finished": len(self.begun) - len(self.moving),
            "moving": len(self.moving),
            "waiting": len(self.waiting),
            "failed": len(self.failed),
        }

    def text(self) -> str:
        """How many partitions are finished, moving and so on, and the brokers for which they wait."""
        counts = [f"{counted(count, 'partition')} {word}" for word, count in self.counts().items() if count]
        return ", ".join(counts) + "".join(f"; {line}" for line in self.held_up())

    def held_up(self) -> list[str]:
        return held_up(self.ongoing.values(), self.inactive)

    def rows(self) -> list[dict[str, Any]]:
        """All partitions that are not finished."""
        words = ((self.failed, "failed"), (self.waiting, "waiting"))
        rows = [_row(result, word) for results, word in words for result in results.values()]
        return rows + [self._moving_row(place) for place in sorted(self.moving)]

    def _moving_row(self, place: Place) -> dict[str, Any]:
        ongoing = self.ongoing.get(place)
        if ongoing is None:
            return _row(self.begun[place], "moving")
        missing = not_in_sync(ongoing)
        return _row(ongoing, "moving") | {"not_in_sync": missing, "message": waits_text(missing, self.inactive)}


def _row(partition: admin_pb2.ReassignmentResult | admin_pb2.OngoingReassignment, word: str) -> dict[str, Any]:
    from quorum_rpc.v1 import admin_pb2

    error = partition.error if isinstance(partition, admin_pb2.ReassignmentResult) else None
    code = ErrorCode.NONE if error is None else ErrorCode.of(error.code)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "result": word,
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
        "not_in_sync": [],
        "error": None if code is ErrorCode.NONE else code.name,
        "message": (error.message or None) if error is not None else None,
    }


async def carry_out(
    client: AdminClient,
    plan: Mapping[Place, Replicas | None],
    *,
    earlier: Set[Place] = frozenset(),
    wait_s: float | None = None,
    dry_run: bool = False,
    allow_replication_factor_change: bool = True,
) -> Outcome:
    """Begins the reassignments of the plan; None as replicas cancels. With `wait_s` waits so long until all are finished.

    `earlier`: partitions in reassignment that the plan leaves as they are. They count, and the command waits for them, too.
    """
    targets: dict[Place, Set[int]] = {place: frozenset(replicas) for place, replicas in plan.items() if replicas}
    outcome, asked = Outcome(begun=_results(earlier - plan.keys()), targets=targets), list(plan)
    total = len(plan.keys() | earlier)
    loop = asyncio.get_running_loop()
    deadline_s, line_s = loop.time() + (wait_s or 0), loop.time() + progress.LINE_S
    while True:
        outcome.waiting = {}
        for places in _batches(asked):
            response = await client.alter_partition_reassignments(
                {place: plan[place] for place in places},
                allow_replication_factor_change=allow_replication_factor_change,
                validate_only=dry_run,
            )
            for place, result in zip(places, response.results, strict=True):
                _group(outcome, result)[place] = result
        await _look(client, outcome, dry_run=dry_run)
        is_over = dry_run or wait_s is None or not (outcome.moving or outcome.waiting)
        if wait_s is not None and not dry_run:
            progress.draw(outcome.counts(), total)
            outcome.is_late = not is_over and loop.time() >= deadline_s
        if is_over or outcome.is_late:
            if wait_s is not None and not dry_run:
                await _find_given_up(client, outcome)
            outcome.inactive = await inactive_brokers(client) if outcome.ongoing else {}
            return outcome
        if loop.time() >= line_s:
            line_s = loop.time() + progress.LINE_S
            outcome.inactive = await inactive_brokers(client)
            progress.tell(outcome.counts(), total, outcome.held_up())
        asked = list(outcome.waiting)
        await _pause(_PAUSE_S)


def _results(places: Iterable[Place]) -> dict[Place, admin_pb2.ReassignmentResult]:
    from quorum_rpc.v1 import admin_pb2

    return {(topic, number): admin_pb2.ReassignmentResult(topic=topic, partition=number) for topic, number in places}


def _batches(places: Iterable[Place]) -> Iterator[list[Place]]:
    rest = iter(places)
    while batch := list(itertools.islice(rest, REQUEST_PARTITIONS_MAX)):
        yield batch


def _group(outcome: Outcome, result: admin_pb2.ReassignmentResult) -> dict[Place, admin_pb2.ReassignmentResult]:
    code = ErrorCode.of(result.error.code)
    if code is ErrorCode.NONE:
        return outcome.begun
    return outcome.waiting if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED else outcome.failed


async def _look(client: AdminClient, outcome: Outcome, *, dry_run: bool) -> None:
    """Finds the begun partitions that are not finished; in a dry run, those that would not be finished at once."""
    if dry_run:
        begun = outcome.begun.items()
        outcome.moving = {place for place, result in begun if result.adding_replicas or result.removing_replicas}
        return
    found = [each async for each in client.reassignments()] if outcome.begun else []
    outcome.ongoing = {
        (each.topic, each.partition): each for each in found if (each.topic, each.partition) in outcome.begun
    }
    outcome.moving = set(outcome.ongoing)
    for place, each in outcome.ongoing.items():
        outcome.targets.setdefault(place, frozenset(each.replicas) - frozenset(each.removing_replicas))


async def _find_given_up(client: AdminClient, outcome: Outcome) -> None:
    """Counts a partition as failed that is in reassignment no more, and does not have the wanted replicas."""
    from quorum_rpc.v1 import admin_pb2

    from quorum.wire.convert.errors import error

    ended = [place for place in outcome.begun if place not in outcome.moving and place in outcome.targets]
    if not ended:
        return
    found: dict[Place, Set[int]] = {}
    async for topic in client.described_topics(list(dict.fromkeys(name for name, _ in ended))):
        for each in topic.partitions:
            found[topic.name, each.partition] = frozenset(each.replicas) - frozenset(each.removing_replicas)
    for place in sorted(ended):
        if found.get(place) == outcome.targets[place]:
            continue
        why = error(*(_GIVEN_UP if place in found else _ABSENT))
        del outcome.begun[place]
        outcome.failed[place] = admin_pb2.ReassignmentResult(topic=place[0], partition=place[1], error=why)
