"""`quorumctl partitions reassign`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from metadata_log.format.errors import ErrorCode
from quorum.cli.errors import EXIT_OK, EXIT_UNHEALTHY, EXIT_USAGE, CliError, exit_code_of
from quorum.cli.options import Options, ask, command
from quorum.cli.output import Column, emit
from quorum.cli.reassignment.ongoing import inactive_brokers, not_in_sync, waits_text
from quorum.cli.reassignment.plan_file import plan_document, read_plan
from quorum.cli.reassignment.waves import Outcome, carry_out
from quorum.cli.shared_options import DRY_RUN, ID, WAIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient
    from quorum.controller.partitions.reassignment.rebalancing import Place, Replicas

_PLACE: Final = (Column("TOPIC", "topic"), Column("PARTITION", "partition"))
_OUTCOME: Final = (
    *_PLACE,
    Column("RESULT", "result"),
    Column("ADDING", "adding_replicas"),
    Column("REMOVING", "removing_replicas"),
    Column("NOT_IN_SYNC", "not_in_sync"),
    Column("MESSAGE", "message"),
)
_ONGOING: Final = (
    *_PLACE,
    Column("REPLICAS", "replicas"),
    Column("ADDING", "adding_replicas"),
    Column("REMOVING", "removing_replicas"),
    Column("ISR", "isr"),
    Column("NOT_IN_SYNC", "not_in_sync"),
    Column("MESSAGE", "message"),
)
_VERIFIED: Final = (*_PLACE, Column("STATE", "state"), Column("WANTED", "wanted"), Column("REPLICAS", "replicas"))
MOVES: Final = (*_PLACE, Column("CURRENT", "current"), Column("REPLICAS", "replicas"))
FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def reassign() -> None:
    """Move replicas to other brokers.

    A plan is a JSON file as Kafka's tools have it: {"version": 1, "partitions": [{"topic", "partition", "replicas"}, ...]}.
    `partitions rebalance` makes one.
    """


@reassign.command()
@click.option("--topic", "topics", multiple=True, required=True, metavar="NAME", help="A topic; may be repeated.")
@click.option(
    "--onto", type=ID, multiple=True, required=True, metavar="ID", help="A broker for the replicas; may be repeated."
)
@command
def generate(options: Options, topics: tuple[str, ...], onto: tuple[int, ...]) -> None:
    """Plans to put all replicas of topics on the named brokers, evenly. `-o json` prints the plan as a file for `execute`.

    \b
    $ quorumctl partitions reassign generate --topic orders --onto 104 --onto 105
    """
    from quorum.cli.reassignment.cluster_state import load, planned
    from quorum.cli.reassignment.plan_warnings import warn

    cluster = ask(options, lambda client: load(client, topics))
    most = max(map(len, cluster.partitions.values()), default=0)
    if most > len(set(onto)):
        text = (
            f"a partition has {most} replicas, and {most} replicas need {most} brokers; --onto names {len(set(onto))}"
        )
        raise CliError(f"{text}; nothing was changed: name more brokers")
    present = {each for ids in cluster.partitions.values() for each in ids}
    plan = planned(cluster, off=present.difference(onto), onto=frozenset(onto))
    warn(cluster, plan)
    document = plan_document(plan, cluster.partitions)
    emit(options.output, document, rows="partitions", columns=MOVES, heading=[f"Partitions to change: {len(plan)}."])


@reassign.command()
@click.argument("file", type=FILE)
@DRY_RUN
@click.option("--disallow-replication-factor-change", "keep", is_flag=True, help="Refuse another number of replicas.")
@WAIT
@command
def execute(options: Options, file: Path, dry_run: bool, keep: bool, wait: bool) -> None:
    """Carries out the plan in FILE.

    The controllers add only so many replicas to one broker at a time (`reassignment.moves.per.broker.max`). Without --wait the
    other partitions are left for another run: exit code 1. With --wait the command begins them too, and waits until all are
    finished: exit code 5 if they are not in time. A move that another request has ended counts as failed: exit code 1.

    \b
    $ quorumctl partitions reassign execute plan.json --wait
    """
    from quorum.cli.reassignment.cluster_state import load
    from quorum.cli.reassignment.plan_warnings import warn

    plan = _read(file)
    names = list(dict.fromkeys(name for name, _ in plan))
    warn(ask(options, lambda client: load(client, names, may_be_absent=True), waits=wait), plan)
    run_plan(options, plan, dry_run=dry_run, keep=keep, wait=wait)


def run_plan(
    options: Options,
    plan: Mapping[Place, Replicas],
    *,
    earlier: Set[Place] = frozenset(),
    dry_run: bool = False,
    keep: bool = False,
    wait: bool = False,
) -> None:
    """Carries out a plan, and prints the result for each partition. `earlier`: moves in progress to wait for, too."""
    wait_s = options.wait_s if wait else None

    async def work(client: AdminClient) -> Outcome:
        return await carry_out(
            client, plan, earlier=earlier, wait_s=wait_s, dry_run=dry_run, allow_replication_factor_change=not keep
        )

    outcome = ask(options, work, waits=wait)
    counts, rows = outcome.counts(), outcome.rows()
    text = ". ".join(f"{word.capitalize()}: {count}" for word, count in counts.items())
    heading = f"{'Nothing was changed. This would follow. ' if dry_run else ''}{text}."
    document = {"dry_run": dry_run, **counts, "partitions": rows}
    emit(options.output, document, rows="partitions", columns=_OUTCOME, heading=[heading])
    if outcome.is_late:
        text = f"not finished in time: {outcome.text()}; what has begun goes on. Run the command again to go on waiting"
        raise CliError(text, outcome.exit_code)
    if outcome.exit_code != EXIT_OK:
        raise SystemExit(outcome.exit_code)


@reassign.command()
@click.argument("file", type=FILE)
@command
def verify(options: Options, file: Path) -> None:
    """Compares the cluster with the plan in FILE. Exit code 10 if a partition does not have just the wanted replicas.

    \b
    $ quorumctl partitions reassign verify plan.json
    """
    plan = _read(file)
    rows = ask(options, lambda client: _verified(client, plan))
    counts = {
        state: sum(row["state"] == state for row in rows) for state in ("finished", "moving", "differs", "absent")
    }
    heading = ". ".join(f"{state.capitalize()}: {count}" for state, count in counts.items()) + "."
    emit(options.output, {**counts, "partitions": rows}, rows="partitions", columns=_VERIFIED, heading=[heading])
    if counts["finished"] != len(rows):
        raise SystemExit(EXIT_UNHEALTHY)


async def _verified(client: AdminClient, plan: Mapping[Place, Replicas]) -> list[dict[str, Any]]:
    found: dict[Place, tuple[list[int], list[int], bool]] = {}
    async for topic in client.described_topics(list(dict.fromkeys(name for name, _ in plan))):
        for each in topic.partitions:
            target = [broker for broker in each.replicas if broker not in each.removing_replicas]
            is_moving = bool(each.adding_replicas or each.removing_replicas)
            found[topic.name, each.partition] = list(each.replicas), target, is_moving
    rows: list[dict[str, Any]] = []
    for (topic_name, partition), wanted in plan.items():
        known = found.get((topic_name, partition))
        state, replicas = "absent", None
        if known is not None:
            replicas, target, is_moving = known
            state = "differs" if target != list(wanted) else "moving" if is_moving else "finished"
        rows.append(
            {"topic": topic_name, "partition": partition, "state": state, "wanted": list(wanted), "replicas": replicas}
        )
    return rows


@reassign.command()
@click.argument("file", type=FILE, required=False)
@click.option("--all", "everything", is_flag=True, help="All reassignments in progress.")
@DRY_RUN
@command
def cancel(options: Options, file: Path | None, everything: bool, dry_run: bool) -> None:
    """Cancels the reassignments of the partitions in FILE that are in progress: they keep the replicas that they had before.

    A partition that is not in reassignment is no error.

    \b
    $ quorumctl partitions reassign cancel plan.json
    """
    if (file is None) != everything:
        raise CliError("either FILE or --all", EXIT_USAGE)
    named = None if file is None else _read(file)

    async def work(client: AdminClient) -> Outcome:
        ongoing = [(each.topic, each.partition) async for each in client.reassignments()]
        places = [place for place in ongoing if named is None or place in named]
        return await carry_out(client, dict.fromkeys(places), dry_run=dry_run)

    outcome = ask(options, work)
    gone = {place for place, result in outcome.failed.items() if _has_ended(result)}
    rows = [row for row in outcome.rows() if row["error"] and (row["topic"], row["partition"]) not in gone]
    idle = gone if named is None else named.keys() - outcome.begun.keys() - (outcome.failed.keys() - gone)
    counts = {"cancelled": len(outcome.begun), "not_in_progress": len(idle), "failed": len(rows)}
    text = (
        f"Cancelled: {counts['cancelled']}. Not in progress: {counts['not_in_progress']}. Failed: {counts['failed']}."
    )
    heading = [f"{'Nothing was changed. This would follow. ' if dry_run else ''}{text}"]
    if not outcome.begun and not rows:
        what = "no reassignment is in progress" if named is None else "no partition of the plan is in reassignment"
        heading.append(f"There is nothing to cancel: {what}.")
    document = {"dry_run": dry_run, **counts, "partitions": rows}
    emit(options.output, document, rows="partitions", columns=_OUTCOME, heading=heading)
    if rows:
        raise SystemExit(exit_code_of(ErrorCode[rows[0]["error"]]))


def _has_ended(result: Any) -> bool:
    return ErrorCode.of(result.error.code) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@reassign.command("list")
@command
def list_(options: Options) -> None:
    """Lists the partitions in reassignment, and the brokers for which each of them waits.

    A reassignment is finished when its target is in sync: the brokers in NOT_IN_SYNC are missing. MESSAGE names those of them
    that are not online.

    \b
    $ quorumctl partitions reassign list
    """

    async def work(client: AdminClient) -> list[dict[str, Any]]:
        moves = [each async for each in client.reassignments()]
        inactive = await inactive_brokers(client) if moves else {}
        return [_ongoing_row(each, inactive) for each in moves]

    emit(options.output, {"partitions": ask(options, work)}, rows="partitions", columns=_ONGOING)


def _ongoing_row(move: admin_pb2.OngoingReassignment, inactive: Mapping[int, str]) -> dict[str, Any]:
    missing = not_in_sync(move)
    return {
        "topic": move.topic,
        "partition": move.partition,
        "replicas": list(move.replicas),
        "adding_replicas": list(move.adding_replicas),
        "removing_replicas": list(move.removing_replicas),
        "isr": list(move.isr),
        "not_in_sync": missing,
        "message": waits_text(missing, inactive),
    }


def _read(file: Path) -> dict[Place, Replicas]:
    try:
        return read_plan(file)
    except (ValueError, json.JSONDecodeError) as e:
        raise CliError(f"{file}: {e}", EXIT_USAGE) from e
