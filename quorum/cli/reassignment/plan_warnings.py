"""Warnings about a plan that the controllers accept, and that may surprise its operator.

Example: orders-0 has the replicas 101,102,103, and broker 102 is fenced. The plan is 104,102,103.
    1  Broker 104 copies all records, and comes into sync.
    2  The reassignment waits for 102, too, because the whole target must be in sync. The warning names 102.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import click

from quorum.cli.reassignment.cluster_state import ClusterState
from quorum.controller.partitions.reassignment.rebalancing import Assignments, Place
from quorum.wire.words import counted


def warn(cluster: ClusterState, plan: Assignments) -> None:
    """Prints the warnings on stderr."""
    for line in warnings_of(cluster, plan):
        click.echo(f"quorumctl: warning: {line}", err=True)


def warnings_of(cluster: ClusterState, plan: Assignments) -> Iterator[str]:
    """Yields one line for each kind of surprise. Partitions that the cluster does not have are left out."""
    known = {place: replicas for place, replicas in plan.items() if place in cluster.partitions}
    yield from _inactive(cluster, known)
    now = cluster.partitions
    fewer = [place for place, replicas in known.items() if len(replicas) < len(now[place])]
    if fewer:
        change = f"{_name(fewer[0])} from {len(now[fewer[0]])} to {len(known[fewer[0]])}"
        yield f"the plan lowers the replication factor of {counted(len(fewer), 'partition')}, for example of {change}"
    replaced = [place for place, replicas in known.items() if place in cluster.moves and replicas != now[place]]
    if replaced:
        yield (
            f"the plan replaces the target of {_partitions(replaced)} in reassignment: a replica that only the former target has "
            "is dropped"
        )


def _inactive(cluster: ClusterState, plan: Assignments) -> Iterator[str]:
    """Without a new replica in the target, one replica in sync is enough, so an inactive broker holds nothing up."""
    adding = (
        place for place in plan if place in cluster.moves or not set(plan[place]) <= set(cluster.partitions[place])
    )
    waiting = Counter(each for place in adding for each in plan[place] if each in cluster.inactive)
    for broker_id, count in sorted(waiting.items()):
        yield (
            f"broker {broker_id} ({cluster.inactive[broker_id]}) is in the target of {counted(count, 'partition')}: these "
            "reassignments are finished only when the broker is in sync. Start the broker, or move its replicas, too"
        )


def _partitions(places: Iterable[Place]) -> str:
    first, *rest = places
    return f"{counted(len(rest) + 1, 'partition')} (for example {_name(first)})" if rest else _name(first)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
