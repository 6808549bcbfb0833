"""Seeded bugs, to prove that the simulator finds bugs: overrides on the test's side, never switches in the code.

Each is a mistake that real systems have made, or that was once made here. The simulator must find every one; a mutant that
survives shows a law that is not checked, or a fault that never happens at the right time.

    elections   votes, pre-votes, epochs, leadership, check-quorum
    commits     what a leader counts, what a follower believes, reads, answers
    requests    requests with ids: done once, remembered, forgotten
    disks       fsync, truncation, recovery, snapshots
    voters      changing who votes
    links       how much is asked for at once over a slow link
    leaderships what moves leaderships from broker to broker
    eligible    eligible leader replicas
    directories log directories, and the replicas in them
    features    levels of features, registrations of controllers
    transactions metadata transactions: what is between their markers
    skips       batches that nobody can apply, and what becomes of them
    reassignments   what moves replicas from broker to broker
    modes       brokers that operators fence or drain
    placement   on how many brokers, and in which racks, a partition is placed
    policies    what policies are asked, and whether they are obeyed
    brokers     registrations, fencing, sessions, leases, partitions, what brokers are given
    replicas    replicated partitions: leaders, followers, logs

    broker_processes    what a broker makes of that
"""

from contextlib import AbstractContextManager, nullcontext

from tests.sim.mutants.broker_processes import BROKER_PROCESSES
from tests.sim.mutants.brokers import BROKERS
from tests.sim.mutants.commits import COMMITS
from tests.sim.mutants.directories import DIRECTORIES
from tests.sim.mutants.disks import DISKS
from tests.sim.mutants.elections import ELECTIONS
from tests.sim.mutants.eligible import ELIGIBLE
from tests.sim.mutants.entities.sessions import SESSIONS
from tests.sim.mutants.entities.watches import WATCHES
from tests.sim.mutants.entities.writes import WRITES
from tests.sim.mutants.features import FEATURES
from tests.sim.mutants.leaderships import LEADERSHIPS
from tests.sim.mutants.links import LINKS
from tests.sim.mutants.modes import MODES
from tests.sim.mutants.partitions.replicas import REPLICAS
from tests.sim.mutants.patching import Mutant
from tests.sim.mutants.placement import PLACEMENT
from tests.sim.mutants.policies import POLICIES
from tests.sim.mutants.reassignments import REASSIGNMENTS
from tests.sim.mutants.requests import REQUESTS
from tests.sim.mutants.skips import SKIPS
from tests.sim.mutants.stories import STORIES
from tests.sim.mutants.transactions import TRANSACTIONS
from tests.sim.mutants.voters import VOTERS

MUTANTS: dict[str, Mutant] = {
    **ELECTIONS,
    **COMMITS,
    **REQUESTS,
    **DISKS,
    **VOTERS,
    **LINKS,
    **BROKERS,
    **BROKER_PROCESSES,
    **LEADERSHIPS,
    **REASSIGNMENTS,
    **MODES,
    **ELIGIBLE,
    **DIRECTORIES,
    **POLICIES,
    **PLACEMENT,
    **STORIES,
    **FEATURES,
    **TRANSACTIONS,
    **SKIPS,
    **REPLICAS,
    **WRITES,
    **SESSIONS,
    **WATCHES,
}


def put_in(name: str | None) -> AbstractContextManager[None]:
    """The bug `name`, for as long as the context lasts; None: no bug."""
    return nullcontext() if name is None else MUTANTS[name].put_in()
