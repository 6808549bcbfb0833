"""`quorumctl labels`: short texts that people and tools attach to topics, partitions and brokers.

    quorumctl labels set team=payments --topic orders --topic invoices
    quorumctl labels set hot=yes --topic orders --partition 3
    quorumctl topics list --label team=payments

The labels of one command are all set, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import Column, emit
from quorum.cli.pairs import pairs
from quorum.cli.shared_options import DRY_RUN, ID, LABEL

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_COLUMNS = (
    Column("RESOURCE", "resource"),
    Column("PARTITION", "partition"),
    Column("LABELS", "labels_text"),
)
_RESULTS = (Column("RESOURCE", "resource"), Column("PARTITION", "partition"), Column("RESULT", "result"))


def _of_things(function: Any) -> Any:
    """Adds the options that name the things."""
    for option in (
        click.option("--broker", "broker_ids", type=ID, multiple=True, metavar="ID", help="A broker; may be repeated."),
        click.option(
            "--partition",
            "partitions",
            type=ID,
            multiple=True,
            metavar="NUMBER",
            help="A partition of the topic, instead of the topic itself; may be repeated.",
        ),
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; may be repeated."),
    ):
        function = option(function)
    return function


@click.group()
def labels() -> None:
    """See and change the labels of topics, partitions and brokers."""


@labels.command("set")
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@_of_things
@DRY_RUN
@command
def set_(
    options: Options,
    values: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    broker_ids: tuple[int, ...],
    dry_run: bool,
) -> None:
    """Sets labels. A label that exists gets the new value.

    \b
    $ quorumctl labels set team=payments tier=gold --topic orders
    """
    from metaquorum import admin_pb2

    wanted = [admin_pb2.Label(key=key, value=value) for key, value in pairs(values)]
    things = _things(topics, partitions, broker_ids)
    for thing in things:
        thing.set.extend(wanted)
    _alter(options, things, "would be set" if dry_run else "set", dry_run)


@labels.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_of_things
@DRY_RUN
@command
def remove(
    options: Options,
    keys: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    broker_ids: tuple[int, ...],
    dry_run: bool,
) -> None:
    """Removes labels. A label that does not exist is no error.

    \b
    $ quorumctl labels remove tier --topic orders
    """
    things = _things(topics, partitions, broker_ids)
    for thing in things:
        thing.remove.extend(keys)
    _alter(options, things, "would be removed" if dry_run else "removed", dry_run)


@labels.command("list")
@at_position
@LABEL
@command
def list_(options: Options, label: str) -> None:
    """Lists the topics, partitions and brokers that have labels, each with all its labels.

    \b
    $ quorumctl labels list --label team=payments
    """

    async def work(client: AdminClient) -> list[admin_pb2.LabelledThing]:
        return [each async for each in client.labels(label)]

    rows = [
        {
            **_place(each),
            "labels": {label.key: label.value for label in each.labels},
            "labels_text": [f"{label.key}={label.value}" for label in each.labels],
        }
        for each in ask(options, work)
    ]
    if options.output != "table":
        for row in rows:
            del row["labels_text"]
    emit(options.output, {"things": rows}, rows="things", columns=_COLUMNS)


def _things(
    topics: Sequence[str], partitions: Sequence[int], broker_ids: Sequence[int]
) -> list[admin_pb2.LabelAlteration]:
    from metaquorum import BROKER_RESOURCE, TOPIC_RESOURCE, admin_pb2

    if partitions and (len(topics) != 1 or broker_ids):
        raise CliError("--partition goes with one --topic, and without --broker", EXIT_USAGE)
    if not topics and not broker_ids:
        raise CliError("name what has the labels: --topic NAME or --broker ID", EXIT_USAGE)
    named = [
        *[(TOPIC_RESOURCE, topic, number) for topic in topics for number in partitions or (None,)],
        *[(BROKER_RESOURCE, str(broker_id), None) for broker_id in broker_ids],
    ]
    if len(set(named)) < len(named):
        raise CliError("a topic, a partition or a broker is named twice", EXIT_USAGE)
    return [
        admin_pb2.LabelAlteration(
            resource=admin_pb2.ConfigResource(resource_type=resource_type, name=name), partition=partition
        )
        for resource_type, name, partition in named
    ]


def _alter(options: Options, things: Sequence[admin_pb2.LabelAlteration], result: str, dry_run: bool) -> None:
    answer = ask(options, lambda client: client.alter_labels(things, validate_only=dry_run))
    rows = [{**_place(each), "result": result, "error": None, "message": None} for each in things]
    emit(options.output, {"offset": answer.offset, "results": rows}, rows="results", columns=_RESULTS)


def _place(thing: admin_pb2.LabelAlteration | admin_pb2.LabelledThing) -> dict[str, Any]:
    from metaquorum import TOPIC_RESOURCE

    kind = "topic" if thing.resource.resource_type == TOPIC_RESOURCE else "broker"
    return {
        "resource": f"{kind} {thing.resource.name}",
        "resource_type": kind,
        "resource_name": thing.resource.name,
        "partition": thing.partition if thing.HasField("partition") else None,
    }
