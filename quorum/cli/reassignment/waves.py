"""Carries a plan out: wave after wave, because a controller adds only so many replicas to one broker at a time.

Example: the plan moves 250 replicas onto broker 104, and `reassignment.moves.per.broker.max` is 100.
    1  The first wave asks for all 250. The controller begins 100, and refuses 150 with THROTTLING_QUOTA_EXCEEDED.
    2  Half a second later 40 of the 100 are finished. The second wave asks for the 150, and the controller begins 40.
    3  The command ends when all 250 are finished, or when the time to wait is over. Another run goes on.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from metadata_log.format.errors import ErrorCode
from quorum.cli.errors import EXIT_OK, EXIT_REFUSED, EXIT_TIMEOUT, exit_code_of

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient
    from quorum.controller.partitions.reassignment.rebalancing import Place, Replicas

REQUEST_PARTITIONS_MAX: Final = 1_000
_PAUSE_S: Final = 0.5
"""How long to wait between two waves."""
_BAR_CHARS: Final = 30
_pause: Final = asyncio.sleep


@dataclass
class Outcome:
    """The result for each partition of a plan."""

    begun: dict[Place, admin_pb2.ReassignmentResult] = field(default_factory=dict)
    waiting: dict[Place, admin_pb2.ReassignmentResult] = field(default_factory=dict)
    """The partitions that the controller was not asked for in vain, but too early."""
    failed: dict[Place, admin_pb2.ReassignmentResult] = field(default_factory=dict)
    moving: set[Place] = field(default_factory=set)
    """The begun partitions that are not finished."""
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

    def rows(self) -> list[dict[str, Any]]:
        """All partitions that are not finished."""
        words = ((self.failed, "failed"), (self.waiting, "waiting"))
        rows = [_row(result, word) for results, word in words for result in results.values()]
        return rows + [_row(self.begun[place], "moving") for place in sorted(self.moving)]


def _row(result: admin_pb2.ReassignmentResult, word: str) -> dict[str, Any]:
    code = ErrorCode.of(result.error.code)
    return {
        "topic": result.topic,
        "partition": result.partition,
        "result": word,
        "adding_replicas": list(result.adding_replicas),
        "removing_replicas": list(result.removing_replicas),
        "error": None if code is ErrorCode.NONE else code.name,
        "message": result.error.message or None,
    }


async def carry_out(
    client: AdminClient,
    plan: Mapping[Place, Replicas | None],
    *,
    wait_s: float | None = None,
    dry_run: bool = False,
    allow_replication_factor_change: bool = True,
) -> Outcome:
    """Begins the reassignments of the plan; None as replicas cancels. With `wait_s` waits so long until all are finished."""
    outcome, asked = Outcome(), list(plan)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + (wait_s or 0)
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
        outcome.moving = await _moving(client, outcome, dry_run=dry_run)
        if dry_run or wait_s is None:
            return outcome
        _show_progress(outcome, len(plan))
        if not outcome.moving and not outcome.waiting:
            return outcome
        if loop.time() >= deadline_s:
            outcome.is_late = True
            return outcome
        asked = list(outcome.waiting)
        await _pause(_PAUSE_S)


def _batches(places: Iterable[Place]) -> Iterator[list[Place]]:
    rest = iter(places)
    while batch := list(itertools.islice(rest, REQUEST_PARTITIONS_MAX)):
        yield batch


def _group(outcome: Outcome, result: admin_pb2.ReassignmentResult) -> dict[Place, admin_pb2.ReassignmentResult]:
    code = ErrorCode.of(result.error.code)
    if code is ErrorCode.NONE:
        return outcome.begun
    return outcome.waiting if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED else outcome.failed


async def _moving(client: AdminClient, outcome: Outcome, *, dry_run: bool) -> set[Place]:
    """The begun partitions that are not finished; in a dry run, those that would not be finished at once."""
    if dry_run:
        begun = outcome.begun.items()
        return {place for place, result in begun if result.adding_replicas or result.removing_replicas}
    if not outcome.begun:
        return set()
    return {(each.topic, each.partition) async for each in client.reassignments()} & outcome.begun.keys()


def _show_progress(outcome: Outcome, total: int) -> None:
    """Draws one line on a terminal, again and again."""
    if not sys.stderr.isatty():
        return
    counts = outcome.counts()
    done = counts["finished"] + counts["failed"]
    bar = "#" * (_BAR_CHARS * done // max(1, total))
    is_last = not outcome.moving and not outcome.waiting
    text = (
        f"\r[{bar:<{_BAR_CHARS}}] {done} of {total} finished, {counts['moving']} moving, {counts['waiting']} waiting "
    )
    click.echo(text, err=True, nl=is_last)
