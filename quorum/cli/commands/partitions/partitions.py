"""`quorumctl partitions`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from quorum.cli.errors import EXIT_UNHEALTHY
from quorum.cli.lazy import LazyGroup
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import emit
from quorum.cli.partition_table import conditions_of_partitions, partition_columns, partition_row, wanted_conditions
from quorum.cli.shared_options import ID, INT32_MAX
from quorum.wire.words import id_text

if TYPE_CHECKING:
    from metaquorum import AdminClient

_COMMANDS: Final = {
    "reassign": "quorum.cli.commands.partitions.reassign:reassign",
    "rebalance": "quorum.cli.commands.partitions.rebalance:rebalance",
}


@click.group(cls=LazyGroup, lazily=_COMMANDS)
def partitions() -> None:
    """See partitions, find those that lack something, and move their replicas."""


@partitions.command("list")
@at_position
@conditions_of_partitions
@click.option("--not-preferred-leader", is_flag=True, help="The first assigned replica does not lead.")
@click.option("--offline-replicas", is_flag=True, help="A replica's broker is fenced, or its log directory offline.")
@click.option("--broker", "replica_on", type=ID, metavar="ID", help="This broker has a replica.")
@click.option("--led-by", type=ID, metavar="ID", help="This broker leads.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Of this topic; may be repeated.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Show at most so many partitions, and say if there are more."
)
@click.option("--expect-none", is_flag=True, help="Exit code 10 if a partition is listed.")
@command
def list_(
    options: Options,
    replica_on: int | None,
    led_by: int | None,
    topics: tuple[str, ...],
    limit: int | None,
    expect_none: bool,
    **conditions: bool,
) -> None:
    """Lists partitions by topic and number. The controllers filter.

    With several of the first six options, a partition is listed if it meets one of them. The other options narrow the list. A
    list of a large cluster takes long: --limit asks for its beginning.

    \b
    $ quorumctl partitions list --under-replicated --topic orders
    """
    from quorum_rpc.v1 import admin_pb2

    request = admin_pb2.ListPartitionsRequest(
        conditions=wanted_conditions(conditions),
        replica_on=replica_on,
        led_by=led_by,
        topics=topics,
        page_size=0 if limit is None else min(limit + 1, INT32_MAX),
    )

    async def work(client: AdminClient) -> tuple[int, list[dict[str, Any]]]:
        """The offset of the first page, and the rows of all pages; with a limit, at least one row more than the limit."""
        as_of_offset, rows = -1, []
        async for page in client.pages(request, admin_pb2.ListPartitionsResponse):
            as_of_offset = page.as_of_offset if as_of_offset < 0 else as_of_offset
            rows += [_row(each) for each in page.partitions]
            if limit is not None and len(rows) > limit:
                break
        return as_of_offset, rows

    as_of_offset, found = ask(options, work)
    rows = found[:limit]
    has_more = len(found) > len(rows)
    document = {"as_of_offset": as_of_offset, "has_more": has_more, "partitions": rows}
    emit(options.output, document, rows="partitions", columns=partition_columns(rows))
    if has_more:
        click.echo(f"quorumctl: more than {limit} partitions; the output has the first {limit}", err=True)
    if expect_none and rows:
        raise SystemExit(EXIT_UNHEALTHY)


def _row(listing: Any) -> dict[str, Any]:
    return {"topic": listing.topic, "topic_id": id_text(listing.topic_id), **partition_row(listing.partition)}
