"""`quorumctl configs`: sees and changes the configs of topics, of one broker, and of all brokers.

A key may be set on several levels. For example `retention.ms` of topic orders: set on the topic, or as the default of all brokers
(`log.retention.ms`), or built in. `configs describe --all` shows for each key the value that holds, and the level that it is of;
`configs delete` takes the value of the named resource away, so that the next level holds again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from quorum.cli.commands.config_keys import define, keys, undefine
from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import Column, emit
from quorum.cli.pairs import pairs
from quorum.cli.results import emit_results, outcome
from quorum.cli.shared_options import DRY_RUN, ID

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_COLUMNS = (
    Column("RESOURCE", "resource"),
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("SOURCE", "source"),
    Column("DEFAULT", "default"),
    Column("MEANING", "meaning"),
)
_SYNONYMS = Column("SYNONYMS", "synonyms")
_RESULTS = (Column("RESOURCE", "resource"), Column("RESULT", "result"))
"""The message column, shown only if a row has a message."""
_OWN_SOURCES: Final = {"topic": "topic", "broker": "broker", "all brokers": "cluster"}
"""The level of a value that was set on the resource itself."""


def _of_resources(function: Any) -> Any:
    """Adds the options that name the resources."""
    for option in (
        click.option("--all-brokers", is_flag=True, help="The defaults of all brokers."),
        click.option(
            "--broker",
            "broker_ids",
            type=ID,
            multiple=True,
            metavar="ID",
            help="A broker; may be repeated.",
        ),
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; may be repeated."),
    ):
        function = option(function)
    return function


def _resources(topics: Sequence[str], broker_ids: Sequence[int], all_brokers: bool) -> list[admin_pb2.ConfigResource]:
    from metaquorum import BROKER_RESOURCE, TOPIC_RESOURCE, admin_pb2

    named = [
        *[(TOPIC_RESOURCE, topic) for topic in topics],
        *[(BROKER_RESOURCE, str(broker_id)) for broker_id in broker_ids],
        *([(BROKER_RESOURCE, "")] if all_brokers else []),
    ]
    if not named:
        raise CliError("name the resource: --topic NAME, --broker ID or --all-brokers", EXIT_USAGE)
    if len(set(named)) < len(named):
        raise CliError("a resource is named twice", EXIT_USAGE)
    return [admin_pb2.ConfigResource(resource_type=resource_type, name=name) for resource_type, name in named]


@click.group()
def configs() -> None:
    """See and change the configs of topics and brokers."""


for _each in (define, undefine, keys):
    configs.add_command(_each)


@configs.command()
@at_position
@_of_resources
@click.option("--all", "with_defaults", is_flag=True, help="Also the keys that were not set on the resource.")
@click.option(
    "--synonyms", is_flag=True, help="Show the value on every level that has one, the value that holds first."
)
@command
def describe(
    options: Options,
    topics: tuple[str, ...],
    broker_ids: tuple[int, ...],
    all_brokers: bool,
    with_defaults: bool,
    synonyms: bool,
) -> None:
    """Shows the configs that were set on topics or brokers.

    SOURCE is the level of the value: topic, broker, cluster (the default of all brokers), static (the active controller's
    configuration file) or default (built in). The value of an earlier level holds.

    \b
    $ quorumctl configs describe --topic orders --all
    """
    resources = _resources(topics, broker_ids, all_brokers)

    async def work(client: AdminClient) -> list[admin_pb2.DescribedResource]:
        from metaquorum import AdminError

        described = [each async for each in client.described_configs(resources, with_defaults=True)]
        for each in described:
            if each.error.code:
                raise AdminError.of(each.error)
            if not each.effective_configs:
                text = "the controllers are of an older release, which does not tell the defaults; upgrade them first"
                raise CliError(text)
        return described

    rows = [row for each in ask(options, work) for row in _rows(each)]
    emit(
        options.output,
        {"configs": [row for row in rows if with_defaults or row["is_set_here"]]},
        rows="configs",
        columns=(*_COLUMNS[:-2], _SYNONYMS) if synonyms else _COLUMNS,
    )


def _rows(described: admin_pb2.DescribedResource) -> Iterator[dict[str, Any]]:
    kind = _kind(described.resource)
    for config in described.effective_configs:
        levels = [
            {"key": level.key, "value": level.value, "source": type(level).Source.Name(level.source).lower()}
            for level in config.levels
        ]
        defaults = [level["value"] for level in levels if level["source"] == "default"]
        yield {
            "resource": _shown(described.resource),
            "resource_type": kind,
            "resource_name": described.resource.name or None,
            "key": config.key,
            "value": levels[0]["value"],
            "source": levels[0]["source"],
            "is_set_here": levels[0]["source"] == _OWN_SOURCES[kind],
            "default": defaults[0] if defaults else None,
            "meaning": config.meaning or None,
            "levels": levels,
            "synonyms": [f"{level['source']}:{level['key']}={level['value']}" for level in levels],
        }


def _kind(resource: admin_pb2.ConfigResource) -> str:
    from metaquorum import TOPIC_RESOURCE

    if resource.resource_type == TOPIC_RESOURCE:
        return "topic"
    return "broker" if resource.name else "all brokers"


def _shown(resource: admin_pb2.ConfigResource) -> str:
    return f"{_kind(resource)} {resource.name}".rstrip()


@configs.command("set")
@_of_resources
@click.argument("values", nargs=-1, metavar="KEY=VALUE...")
@click.option(
    "--append", "appended", multiple=True, metavar="KEY=ITEM", help="Adds an item to a list; may be repeated."
)
@click.option(
    "--subtract", "subtracted", multiple=True, metavar="KEY=ITEM", help="Removes an item from a list; may be repeated."
)
@DRY_RUN
@command
def set_(
    options: Options,
    topics: tuple[str, ...],
    broker_ids: tuple[int, ...],
    all_brokers: bool,
    values: tuple[str, ...],
    appended: tuple[str, ...],
    subtracted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Sets configs, all keys of a resource together or none of them.

    \b
    $ quorumctl configs set retention.ms=86400000 --topic orders --topic payments
    """
    from metaquorum import admin_pb2

    kinds = admin_pb2.ConfigOperation
    operations = [
        kinds(kind=kind, key=key, value=value)
        for kind, given in ((kinds.SET, values), (kinds.APPEND, appended), (kinds.SUBTRACT, subtracted))
        for key, value in pairs(given)
    ]
    if not operations:
        raise CliError("name what to set: KEY=VALUE, --append KEY=ITEM or --subtract KEY=ITEM", EXIT_USAGE)
    _alter(options, _resources(topics, broker_ids, all_brokers), operations, dry_run)


@configs.command()
@_of_resources
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@DRY_RUN
@command
def delete(
    options: Options,
    topics: tuple[str, ...],
    broker_ids: tuple[int, ...],
    all_brokers: bool,
    keys: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Deletes configs: the values of the next level hold again. A key that is not set is no error.

    \b
    $ quorumctl configs delete retention.ms --topic orders
    """
    from metaquorum import admin_pb2

    operations = [admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.DELETE, key=key) for key in keys]
    _alter(options, _resources(topics, broker_ids, all_brokers), operations, dry_run)


def _alter(
    options: Options,
    resources: Iterable[admin_pb2.ConfigResource],
    operations: Sequence[admin_pb2.ConfigOperation],
    dry_run: bool,
) -> None:
    """Alters every resource in the same way, and prints a result for each."""
    from metaquorum import admin_pb2

    alterations = [admin_pb2.ConfigAlteration(resource=each, operations=operations) for each in resources]
    response = ask(options, lambda client: client.alter_configs(alterations, validate_only=dry_run))
    done = "would be altered" if dry_run else "altered"
    rows = [
        {
            "resource": _shown(each.resource),
            "resource_type": _kind(each.resource),
            "resource_name": each.resource.name or None,
            **outcome(each.error, done),
        }
        for each in response.results
    ]
    emit_results(options, response.offset, rows, _RESULTS)
