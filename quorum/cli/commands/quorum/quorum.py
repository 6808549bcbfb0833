"""`quorumctl quorum status | replication`: shows leader, followers and lag. (`voters` has the commands for changes.)

The command asks every reachable controller, and shows the answer of the leader; without a leader, the answer of the controller
in the highest epoch. So one live controller is enough for an answer, and the output names the controller that answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from quorum.cli.commands.quorum.recover import recover
from quorum.cli.commands.quorum.voters import add_voter, can_restart, remove_voter, transfer_leader
from quorum.cli.errors import EXIT_UNHEALTHY
from quorum.cli.options import Options, ask, command
from quorum.cli.output import UNKNOWN, Column, emit
from quorum.cli.replicas import SILENT, answer_and_problems, best_answer, is_leaders, no_leader_text
from quorum.wire.words import endpoint_text, id_text, optional

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

_REPLICATION = (
    Column("NODE", "node_id"),
    Column("DIRECTORY", "directory_id"),
    Column("END_OFFSET", "log_end_offset"),
    Column("LAG", "lag"),
    Column("BEHIND_MS", "behind_for_ms"),
    Column("LAST_FETCH_MS", "last_fetch_age_ms"),
    Column("STATUS", "status"),
    Column("ENDPOINT", "endpoint"),
)


@click.group()
def quorum() -> None:
    """Show the controllers and their replication; change voters and leader."""


for _each in (add_voter, remove_voter, transfer_leader, can_restart, recover):
    quorum.add_command(_each)


@quorum.command()
@command
def status(options: Options) -> None:
    """Shows the leader, the offsets of all controllers, and their problems.

    Exit code 10 if there is no leader, if a voter is silent, or if that is not known, because the leader could not be asked.
    `quorumctl health` judges the whole cluster.

    \b
    $ quorumctl quorum status
    """
    answer, problems = ask(options, answer_and_problems)
    document = {**_status(answer), "problems": problems}
    heading = [f"{title}: {UNKNOWN if value is None else value}" for title, value in _lines(document)]
    emit(options.output, document, heading=heading)
    if document["leader_id"] is None or document["silent_voters"] != []:
        raise SystemExit(EXIT_UNHEALTHY)


@quorum.command()
@command
def replication(options: Options) -> None:
    """Shows every voter and observer, the leader first. The exit code is that of `quorum status`.

    \b
    $ quorumctl quorum replication
    """
    answer = ask(options, best_answer)
    rows = _replicas([*answer.voters, *answer.observers])
    rows.sort(key=lambda row: (row["status"] != "leader", row["status"] == "observer", row["node_id"]))
    status = _status(answer)
    names = ("answered_by", "leader_id", "leader_epoch", "high_watermark", "no_leader_reason", "no_leader_for_ms")
    document = {name: status[name] for name in names}
    emit(options.output, {**document, "replicas": rows}, rows="replicas", columns=_REPLICATION)
    if document["leader_id"] is None:
        click.echo(f"quorumctl: no leader {no_leader_text(document)}", err=True)
    elif status["silent_voters"] is None:
        click.echo(f"quorumctl: {_unknown_text(status)}", err=True)
    if document["leader_id"] is None or status["silent_voters"] != []:
        raise SystemExit(EXIT_UNHEALTHY)


def _status(answer: admin_pb2.DescribeQuorumResponse) -> dict[str, Any]:
    voters = _replicas(answer.voters)
    followers = [row for row in voters if row["status"] != "leader"]
    lags = [row["lag"] for row in followers if row["lag"] is not None]
    ages = [row["behind_for_ms"] for row in followers if row["behind_for_ms"] is not None]
    snapshot = answer.snapshot
    return {
        "cluster_id": answer.cluster_id,
        "generation": answer.generation,
        "leader_id": optional(answer.leader, "leader_id"),
        "leader_epoch": answer.epoch,
        "no_leader_reason": answer.no_leader_reason or None,
        "no_leader_for_ms": optional(answer, "no_leader_for_ms"),
        "high_watermark": optional(answer, "high_watermark"),
        "max_follower_lag": max(lags) if lags else None,
        "max_follower_lag_time_ms": max(ages) if ages else None,
        "voters": [_member(row) for row in voters],
        "silent_voters": [row["node_id"] for row in voters if row["status"] == SILENT] if is_leaders(answer) else None,
        "observers": [_member(row) for row in _replicas(answer.observers)],
        "answered_by": answer.node_id,
        "answered_by_role": answer.role,
        "log_start_offset": answer.log_start_offset,
        "log_end_offset": answer.log_end_offset,
        "flushed_end_offset": answer.flushed_end_offset,
        "applied_offset": answer.applied_offset,
        "snapshot": {"end_offset": snapshot.end_offset, "epoch": snapshot.epoch}
        if answer.HasField("snapshot")
        else None,
        "chain": answer.chain.hex(),
        "digest": answer.digest.hex(),
    }


def _member(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("node_id", "directory_id", "endpoint", "status")}


def _replicas(replicas: Iterable[admin_pb2.ReplicaStatus]) -> list[dict[str, Any]]:
    """Rows of the replication table; only a leader knows lags."""
    return [
        {
            "node_id": each.node_id,
            "directory_id": id_text(each.directory_id),
            "log_end_offset": optional(each, "log_end_offset"),
            "lag": optional(each, "lag"),
            "behind_for_ms": optional(each, "behind_for_ms"),
            "last_fetch_age_ms": optional(each, "last_fetch_age_ms"),
            "last_caught_up_age_ms": optional(each, "last_caught_up_age_ms"),
            "status": each.status,
            "endpoint": endpoint_text(each.endpoint) if each.HasField("endpoint") else None,
        }
        for each in replicas
    ]


def _lines(document: dict[str, Any]) -> list[tuple[str, Any]]:
    """The fields of `kafka-metadata-quorum describe --status`, and some that only this service has."""
    members = {
        name: "[" + ", ".join(f"{row['node_id']}@{row['endpoint'] or '?'}" for row in document[name]) + "]"
        for name in ("voters", "observers")
    }
    snapshot = document["snapshot"]
    none = [("NoLeader", no_leader_text(document))] if document["leader_id"] is None else []
    return [
        ("ClusterId", document["cluster_id"]),
        ("Generation", document["generation"]),
        ("LeaderId", document["leader_id"]),
        *none,
        ("LeaderEpoch", document["leader_epoch"]),
        ("HighWatermark", document["high_watermark"]),
        ("MaxFollowerLag", document["max_follower_lag"]),
        ("MaxFollowerLagTimeMs", document["max_follower_lag_time_ms"]),
        ("CurrentVoters", members["voters"]),
        ("SilentVoters", _silent_text(document)),
        ("CurrentObservers", members["observers"]),
        ("LogOffsets", f"[{document['log_start_offset']}, {document['log_end_offset']})"),
        ("Snapshot", None if snapshot is None else f"{snapshot['end_offset']}@{snapshot['epoch']}"),
        ("Chain", document["chain"][:16] or None),
        ("Digest", document["digest"][:16] or None),
        *(("Problem", f"{each['node_id']}: {each['code']}: {each['text']}") for each in document["problems"]),
        ("AnsweredBy", f"{document['answered_by']} ({document['answered_by_role']})"),
    ]


def _silent_text(document: dict[str, Any]) -> str | None:
    silent = document["silent_voters"]
    return _unknown_text(document) if silent is None else ", ".join(map(str, silent)) or None


def _unknown_text(document: dict[str, Any]) -> str:
    """The reason why the lags, and the silent voters, are not known."""
    if document["leader_id"] is None:
        return "not known, because no controller leads"
    leader, answered_by = document["leader_id"], document["answered_by"]
    return f"not known, because leader {leader} could not be asked, neither from here nor by controller {answered_by}"
