"""`quorumctl partitions rebalance`"""

from __future__ import annotations

import click

from quorum.cli.commands.partitions.reassign import MOVES, run_plan
from quorum.cli.errors import EXIT_NOT_FOUND, EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, command
from quorum.cli.output import emit
from quorum.cli.reassignment.cluster_state import broker_lines, load, planned, replica_moves
from quorum.cli.reassignment.plan_file import plan_document
from quorum.cli.reassignment.plan_warnings import warn
from quorum.cli.shared_options import ID, WAIT


@click.command()
@click.option("--plan", "only_plan", is_flag=True, help="Print the plan; this is the default.")
@click.option("--execute", is_flag=True, help="Carry the plan out.")
@click.option("--off", type=ID, multiple=True, metavar="ID", help="A broker to empty; may be repeated.")
@click.option(
    "--onto", type=ID, multiple=True, metavar="ID", help="Move replicas onto this broker only; may be repeated."
)
@WAIT
@command
def rebalance(
    options: Options, only_plan: bool, execute: bool, off: tuple[int, ...], onto: tuple[int, ...], wait: bool
) -> None:
    """Spreads replicas evenly over the brokers, with as few moves as possible.

    All online brokers give and get replicas. With --onto only the named brokers get replicas, until they hold as many as the
    others. With --off the named brokers give all of theirs, and no others move. Racks keep their share of each partition.

    `-o json` prints the plan as a file for `partitions reassign execute`.

    \b
    $ quorumctl partitions rebalance --off 101 --execute --wait
    """
    if only_plan and execute:
        raise CliError("either --plan or --execute", EXIT_USAGE)
    if wait and not execute:
        raise CliError("--wait belongs to --execute", EXIT_USAGE)
    if set(off) & set(onto):
        raise CliError("a broker is named both after --off and after --onto", EXIT_USAGE)
    cluster = ask(options, load)
    known = {broker.broker_id for broker in cluster.brokers}
    for broker_id in sorted(set(off) - known):
        raise CliError(f"broker {broker_id} is not registered; nothing was changed", EXIT_NOT_FOUND)
    plan = planned(cluster, off=frozenset(off), onto=frozenset(onto))
    if not any(broker.is_usable and broker.broker_id not in off for broker in cluster.brokers):
        text = "no broker takes replicas: each is fenced, stopping, in a mode of an operator, or named after --off"
        click.echo(f"quorumctl: warning: {text}", err=True)
    warn(cluster, plan)
    if execute:
        run_plan(options, plan, earlier=cluster.moves_of(frozenset((*off, *onto))), wait=wait)
        return
    heading = [f"Replicas to move: {replica_moves(cluster, plan)}. Partitions to change: {len(plan)}."]
    document = plan_document(plan, cluster.partitions)
    emit(options.output, document, rows="partitions", columns=MOVES, heading=[*heading, *broker_lines(cluster, plan)])
