"""`quorumctl health`: one verdict for the whole cluster, with the reasons (`verdict` judges).

The exit code is 0 for a healthy cluster, 10 for an unhealthy one, and 5 if no controller answered. `--exit-when-healthy` waits
for a healthy cluster, `--watch` shows each change of the verdict:

    $ quorumctl health --exit-when-healthy --timeout 30
    Healthy: yes
    Leader: controller 2 in epoch 4
    Controllers: 3 voters, 0 silent
    Brokers: 3, 3 online
    Partitions: 927, 0 without a leader, 0 with too few replicas in sync
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from quorum.cli.commands.health import verdict
from quorum.cli.errors import EXIT_UNHEALTHY
from quorum.cli.options import Options, ask, command
from quorum.cli.output import emit
from quorum.cli.reassignment.ongoing import not_in_sync
from quorum.cli.replicas import SILENT, Heard, hear_all, is_leaders
from quorum.wire.words import counted, endpoint_text, id_text, optional, problems_in, state_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

WAIT_POLL_S: Final = 0.2
WATCH_POLL_S: Final = 2.0
LOOK_S: Final = 5.0
"""Maximum time of one look, in seconds: looking again is better than waiting longer."""
LAST_LOOK_S: Final = 0.5
"""Minimum time that must be left for a further look."""
CONFIRM_S: Final = verdict.HEARD_MS_MAX / 1_000 + 0.2
"""How long a look waits for the leader's word about a controller that cannot be asked, in seconds."""
NAMED: Final = verdict.NAMED
_GROWING: Final = re.compile(r" for [\d.]+ s(, as controller .*)?|[\d,]+ records?")
"""The parts of a reason whose change is no news: durations, and the attempts of a controller without a leader."""


@click.command()
@click.option(
    "--watch",
    is_flag=True,
    help="Look again and again, and print each change of the verdict or its reasons. --timeout ends this only together with "
    "--exit-when-healthy.",
)
@click.option(
    "--exit-when-healthy", is_flag=True, help="Look until the cluster is healthy, or until --timeout has passed."
)
@command
def health(options: Options, watch: bool, exit_when_healthy: bool) -> None:
    """Judges the cluster, with the reasons. Exit code 10: the cluster is not healthy.

    A healthy cluster has a leader that hears every voter, no controller has a problem, every registered broker is online,
    and every partition has a leader and all of its replicas in sync.

    \b
    --timeout SECONDS limits
      without the options below   the one look
      --exit-when-healthy         all looks together; exit code 10 if the cluster is not healthy by then
      --watch                     nothing: the command looks until it is interrupted

    \b
    $ quorumctl health --exit-when-healthy --timeout 60
    """

    async def work(client: AdminClient) -> dict[str, Any]:
        if not watch and not exit_when_healthy:
            return await _look(client)
        return await _Looking(options, client, shows=watch, waits=exit_when_healthy).until_over()

    document = ask(options, work)
    if not watch:
        _show(options, document)
    if not document["healthy"]:
        raise SystemExit(EXIT_UNHEALTHY)


class _Looking:
    """One look after the other."""

    def __init__(self, options: Options, client: AdminClient, *, shows: bool, waits: bool) -> None:
        self._options = options
        self._client = client
        self._shows = shows
        self._waits = waits
        self._said: object = None

    async def until_over(self) -> dict[str, Any]:
        """Returns the last document: a healthy one, or the one at the deadline. Without `waits` this never returns.

        Raises:
            AdminError: time is up, and no controller has answered.
        """
        from metaquorum import AdminError

        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.request_timeout_s
        while True:
            left_s = deadline_s - loop.time() if self._waits else LOOK_S
            self._client.timeout_s = max(0.05, min(left_s, LOOK_S))
            document, error = None, None
            try:
                document = await _look(self._client)
                unwell = document["reasons"] + document["pending"]
            except AdminError as e:
                error, unwell = e, [" ".join(e.message.split())]
            self._say(unwell, document)
            if self._waits and document is not None and not unwell:
                return document
            if self._waits and loop.time() + WAIT_POLL_S + LAST_LOOK_S >= deadline_s:
                if document is None:
                    assert error is not None
                    raise error
                return {**document, "healthy": False}
            await asyncio.sleep(WAIT_POLL_S if self._waits else WATCH_POLL_S)

    def _say(self, reasons: list[str], document: dict[str, Any] | None = None) -> None:
        """Shows news: the whole document with `--watch`, the first reason with `--exit-when-healthy`."""
        news = [_GROWING.sub("", reason) for reason in reasons]
        if news == self._said:
            return
        self._said = news
        if self._shows and document is not None:
            _show(self._options, document)
        elif reasons:
            more = f" (and {counted(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 else ""
            click.echo(f"waiting: {reasons[0]}{more}", err=True)


# --- looking -----------------------------------------------------------------------------------------------------------


async def _look(client: AdminClient) -> dict[str, Any]:
    """Collects the facts for the verdict, and adds the verdict.

    Raises:
        AdminError: no controller has answered.
    """
    from metaquorum import AdminError

    heard = await hear_all(client)
    followers = [each.node_id for each in heard.best.voters if each.status == "follower" and each.HasField("endpoint")]
    if not heard.missing.keys().isdisjoint(followers):
        # Either this machine cannot reach the controller, and the leader hears it; or its process has just ended.
        await asyncio.sleep(CONFIRM_S)
        heard = await hear_all(client)
    document = _of_quorum(heard)
    if document["leader_id"] is not None:
        try:
            document["brokers"] = [_broker(each) async for each in client.brokers()]
            document["partitions"] = _partitions(await client.partition_health(NAMED))
        except AdminError as e:
            document["error"] = " ".join(e.message.split())
        document["reassignments"] = await _reassignments(client, document["brokers"])
    reasons = verdict.reasons(document)
    said = {"healthy": not reasons, "reasons": reasons, "pending": verdict.pending(document)}
    return {**said, "notes": verdict.notes(document), **document}


def _of_quorum(heard: Heard) -> dict[str, Any]:
    best = heard.best
    return {
        "cluster_id": best.cluster_id,
        "generation": best.generation,
        "leader_id": optional(best.leader, "leader_id"),
        "leader_epoch": best.epoch,
        "no_leader_reason": best.no_leader_reason or None,
        "no_leader_for_ms": optional(best, "no_leader_for_ms"),
        "high_watermark": optional(best, "high_watermark"),
        "answered_by": best.node_id,
        "is_leaders": is_leaders(best),
        "controllers": [
            *(_controller(heard, each, is_voter=True) for each in best.voters),
            *(_controller(heard, each, is_voter=False) for each in best.observers),
        ],
        "brokers": None,
        "partitions": None,
        "reassignments": None,
        "error": None,
    }


def _controller(heard: Heard, replica: admin_pb2.ReplicaStatus, *, is_voter: bool) -> dict[str, Any]:
    answer, other_directory_id = heard.answers.get(replica.node_id), None
    if answer is not None and answer.directory_id != replica.directory_id:
        other_directory_id, answer = (
            id_text(answer.directory_id),
            None,
        )  # the voter with this node id has another directory: this one's disk was lost
    return {
        "node_id": replica.node_id,
        "endpoint": endpoint_text(replica.endpoint) if replica.HasField("endpoint") else None,
        "is_voter": is_voter,
        "status": replica.status,
        "lag": optional(replica, "lag"),
        "behind_for_ms": optional(replica, "behind_for_ms"),
        "last_fetch_age_ms": optional(replica, "last_fetch_age_ms"),
        "problems": problems_in(answer) if answer is not None else [],
        "no_leader_reason": (answer.no_leader_reason or None) if answer is not None else None,
        "missing": heard.missing.get(replica.node_id),
        "other_directory_id": other_directory_id,
    }


def _broker(broker: admin_pb2.BrokerListing) -> dict[str, Any]:
    return {
        "broker_id": broker.broker_id,
        "state": state_text(broker.state),
        "mode": broker.mode or None,
        "last_contact_age_ms": optional(broker, "last_contact_age_ms"),
        "data_plane": broker.data_plane or None,
    }


def _partitions(found: admin_pb2.DescribePartitionHealthResponse) -> dict[str, Any]:
    def names(topics: Iterable[admin_pb2.TopicPartitions]) -> list[str]:
        return [f"{each.topic}-{number}" for each in topics for number in each.partitions]

    return {
        "count": found.partitions,
        "leaderless": found.leaderless,
        "under_replicated": found.under_replicated,
        "first_leaderless": names(found.first_leaderless),
        "first_under_replicated": names(found.first_under_replicated),
    }


async def _reassignments(client: AdminClient, brokers: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """Counts what is in progress, and what waits for a broker that is not online; None: not known.

    An error is no reason here: a controller of release 0.1.0 does not know this question, and is healthy.
    """
    from metaquorum import AdminError

    if brokers is None:
        return None
    inactive = {each["broker_id"] for each in brokers if each["state"] != "online"}
    try:
        missing = [set(not_in_sync(each)) & inactive async for each in client.reassignments()]
    except AdminError:
        return None
    waits_for = sorted(set().union(*missing))
    return {"count": len(missing), "waiting": sum(map(bool, missing)), "waits_for": waits_for}


# --- words -----------------------------------------------------------------------------------------------------------


def _show(options: Options, document: dict[str, Any]) -> None:
    emit(options.output, document, heading=list(_lines(document)))


def _lines(document: dict[str, Any]) -> Iterable[str]:
    yield f"Healthy: {'yes' if document['healthy'] else 'no'}"
    yield from (f"  - {reason}" for reason in document["reasons"])
    yield from (f"  ({text})" for text in (*document["pending"], *document["notes"]))
    leader = document["leader_id"]
    yield f"Leader: {'-' if leader is None else f'controller {leader}'} in epoch {document['leader_epoch']}"
    voters = [each for each in document["controllers"] if each["is_voter"]]
    # without a leader no controller reports silent voters: the controllers that did not answer this command are silent
    silent = [
        each for each in voters if (each["status"] == SILENT if leader is not None else each["missing"] is not None)
    ]
    is_known = leader is None or document["is_leaders"]
    yield f"Controllers: {counted(len(voters), 'voter')}, {f'{len(silent)} silent' if is_known else 'silent ones not known'}"
    brokers, partitions = document["brokers"], document["partitions"]
    if brokers is not None:
        yield f"Brokers: {len(brokers)}, {sum(each['state'] == 'online' for each in brokers)} online"
    if partitions is not None:
        yield (
            f"Partitions: {partitions['count']:,}, {partitions['leaderless']:,} without a leader, "
            f"{partitions['under_replicated']:,} with too few replicas in sync"
        )
