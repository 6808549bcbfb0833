"""`quorumctl leaders`: elects the leaders of partitions.

For example: broker 101 restarts, and its leaderships move to brokers 102 and 103. When broker 101 is in sync again,
`leaders elect --all-topic-partitions` makes broker 101 the leader of the partitions that list it first. One request
names 1,000 partitions at most: the command sends a thousand requests for a million partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from metadata_log.format.errors import ErrorCode
from quorum.cli.errors import EXIT_OK, EXIT_USAGE, CliError, exit_code_of
from quorum.cli.options import Options, ask, command
from quorum.cli.output import Column, emit
from quorum.cli.shared_options import ID, INT32_MAX
from quorum.wire.words import optional

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

REQUEST_PARTITIONS_MAX: Final = 1_000
_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("LEADER", "leader_id"),
    Column("RESULT", "result"),
)
_MESSAGE = Column("MESSAGE", "message")
"""The message column, shown only if a row has a message."""


@click.group()
def leaders() -> None:
    """Elect the leaders of partitions."""


@leaders.command()
@click.option(
    "--election-type",
    type=click.Choice(("preferred", "designated", "unclean")),
    default="preferred",
    show_default=True,
    help="preferred: the first assigned replica leads, if it is in sync and active. designated: the replica on --leader leads, "
    "if it is in sync and active. unclean: a partition without a leader gets one that is active, even if it is out of sync; "
    "records may be lost.",
)
@click.option(
    "--leader",
    "leader_id",
    type=ID,
    metavar="ID",
    help="The broker that shall lead. Needed by designated, possible with unclean.",
)
@click.option("--topic", metavar="NAME", help="The topic: all of its partitions, or the partitions of --partition.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0, INT32_MAX),
    multiple=True,
    metavar="N",
    help="A partition of the topic; may be repeated.",
)
@click.option("--all-topic-partitions", "everywhere", is_flag=True, help="All partitions of all topics.")
@command
def elect(
    options: Options,
    election_type: str,
    leader_id: int | None,
    topic: str | None,
    partitions: tuple[int, ...],
    everywhere: bool,
) -> None:
    """Elects the leaders of partitions.

    A partition that needs no election stays as it is, and is no error: its replica leads already, or, for an unclean
    election, it has a leader. With --all-topic-partitions, and for a whole topic, the output lists only the other
    partitions. Exit code 1 if a replica that shall lead is not in sync, or not active.

    \b
    $ quorumctl leaders elect --topic orders --partition 0 --election-type designated --leader 103
    """
    if everywhere == (topic is not None) or (everywhere and partitions):
        raise CliError("either --topic, with --partition as often as needed, or --all-topic-partitions", EXIT_USAGE)
    if partitions and topic is None:
        raise CliError("--partition belongs to a --topic", EXIT_USAGE)
    if election_type == "designated" and leader_id is None:
        raise CliError("--election-type designated needs --leader, the broker that shall lead", EXIT_USAGE)
    if election_type == "preferred" and leader_id is not None:
        raise CliError("--leader belongs to --election-type designated or unclean", EXIT_USAGE)

    async def work(client: AdminClient) -> list[admin_pb2.ElectionResult]:
        from quorum_rpc.v1 import admin_pb2

        if topic is not None and partitions:
            wanted: Mapping[str, int | tuple[int, ...]] = {topic: tuple(dict.fromkeys(partitions))}
        elif topic is not None:
            wanted = {topic: (await client.describe_topic(topic)).partition_count}
        else:
            wanted = {each.name: each.partitions async for each in client.topics()}
        kinds = admin_pb2.ElectLeadersRequest
        wanted_type = {"designated": kinds.DESIGNATED, "unclean": kinds.UNCLEAN}.get(election_type, kinds.PREFERRED)
        results: list[admin_pb2.ElectionResult] = []
        for request in requests_for(wanted):
            results += (await client.elect_leaders(request, wanted_type, leader_id)).results
        return results

    _show(options, ask(options, work), is_terse=not partitions)


def requests_for(wanted: Mapping[str, int | tuple[int, ...]]) -> Iterator[dict[str, list[int]]]:
    """Cuts partitions by topic into requests. A topic's partitions are given as a list, or as their number."""
    request: dict[str, list[int]] = {}
    count = 0
    for topic, partitions in wanted.items():
        for number in range(partitions) if isinstance(partitions, int) else partitions:
            if count == REQUEST_PARTITIONS_MAX:
                yield request
                request, count = {}, 0
            request.setdefault(topic, []).append(number)
            count += 1
    if request:
        yield request


def _show(options: Options, results: list[admin_pb2.ElectionResult], *, is_terse: bool) -> None:
    """Prints the result of each partition; the exit code is the exit code of the first failed partition."""
    rows: list[dict[str, Any]] = []
    counts = {"elected": 0, "not_needed": 0, "failed": 0}
    exit_code = EXIT_OK
    for each in results:
        code = ErrorCode.of(each.error.code)
        kind = {ErrorCode.NONE: "elected", ErrorCode.ELECTION_NOT_NEEDED: "not_needed"}.get(code, "failed")
        counts[kind] += 1
        if kind == "failed":
            exit_code = exit_code or exit_code_of(code)
        if kind != "not_needed" or not is_terse:
            rows.append(_row(each, code, kind))
    heading = f"Elected: {counts['elected']}. Not needed: {counts['not_needed']}. Failed: {counts['failed']}."
    columns = (*_COLUMNS, _MESSAGE) if any(row["message"] for row in rows) else _COLUMNS
    emit(options.output, {**counts, "partitions": rows}, rows="partitions", columns=columns, heading=[heading])
    if exit_code != EXIT_OK:
        raise SystemExit(exit_code)


def _row(result: admin_pb2.ElectionResult, code: ErrorCode, kind: str) -> dict[str, Any]:
    return {
        "topic": result.topic,
        "partition": result.partition,
        "leader_id": optional(result, "leader_id"),
        "result": kind.replace("_", " "),
        "error": None if code is ErrorCode.NONE else code.name,
        "message": result.error.message or None,
    }
