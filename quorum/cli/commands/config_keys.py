"""`quorumctl configs define`, `undefine` and `keys`: the config keys that embedders define beside the built-in ones.

For example a system with shards defines `acme.shard.count` for topics. From then on `configs set --topic orders
acme.shard.count=16` is good, `acme.shard.count=many` is refused, and `configs describe --topic orders --all` shows the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from metadata_log.format.config_definitions import TEXT, VALUE_TYPES
from metadata_log.format.ids import OFFSET_MAX
from quorum.cli.options import Options, ask, command
from quorum.cli.output import Column, emit
from quorum.cli.shared_options import DRY_RUN

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_COLUMNS = (
    Column("OF", "of"),
    Column("KEY", "key"),
    Column("TYPE", "type"),
    Column("DEFAULT", "default"),
    Column("MINIMUM", "minimum"),
    Column("MAXIMUM", "maximum"),
    Column("CHOICES", "choices"),
    Column("DOCUMENTATION", "documentation"),
)
_RESULTS = (Column("OF", "of"), Column("KEY", "key"), Column("RESULT", "result"))
_WORDS = ("topic", "broker")
_NUMBER = click.IntRange(-OFFSET_MAX, OFFSET_MAX)
_OF = click.option("--of", type=click.Choice(_WORDS), required=True, help="The kind of the resource that has the key.")


def _numbers() -> dict[str, int]:
    from metaquorum import BROKER_RESOURCE, TOPIC_RESOURCE

    return {"topic": TOPIC_RESOURCE, "broker": BROKER_RESOURCE}


@click.command()
@click.argument("name", metavar="KEY")
@_OF
@click.option(
    "--type", "value_type", type=click.Choice(VALUE_TYPES), default=TEXT, show_default=True, help="Its values."
)
@click.option("--default", default="", help="The value where none is set. Without it: the empty text.")
@click.option(
    "--minimum", metavar="NUMBER", type=_NUMBER, help="The least number, length of a text, or number of items."
)
@click.option(
    "--maximum", metavar="NUMBER", type=_NUMBER, help="The greatest number, length of a text, or number of items."
)
@click.option("--choice", "choices", multiple=True, metavar="TEXT", help="A good text or item; may be repeated.")
@click.option("--documentation", default="", metavar="TEXT", help="The meaning of the key, for people.")
@DRY_RUN
@command
def define(
    options: Options,
    name: str,
    of: str,
    value_type: str,
    default: str,
    minimum: int | None,
    maximum: int | None,
    choices: tuple[str, ...],
    documentation: str,
    dry_run: bool,
) -> None:
    """Defines a config key, or defines it anew. A KEY with a dot at its end is a prefix: every key that begins so is defined.

    Refused for the name of a built-in key, and while a value is set that the definition would forbid.

    \b
    $ quorumctl configs define acme.shard.count --of topic --type int --default 8 --minimum 1 --maximum 64
    """
    from metaquorum import admin_pb2

    definition = admin_pb2.ConfigKeyDefinition(
        resource_type=_numbers()[of],
        name=name,
        is_prefix=name.endswith("."),
        value_type=value_type,
        default_value=default,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        documentation=documentation,
    )
    answer = ask(options, lambda client: client.alter_config_keys([definition], validate_only=dry_run))
    _emit_done(options, answer.offset, of, [name], "would be defined" if dry_run else "defined")


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@_OF
@DRY_RUN
@command
def undefine(options: Options, keys: tuple[str, ...], of: str, dry_run: bool) -> None:
    """Removes definitions of config keys, all of them or none. Refused while a value is set that would lose its definition.

    \b
    $ quorumctl configs undefine acme.shard.count --of topic
    """
    from metaquorum import admin_pb2

    names = [admin_pb2.ConfigKeyName(resource_type=_numbers()[of], name=key) for key in keys]
    answer = ask(options, lambda client: client.alter_config_keys(removals=names, validate_only=dry_run))
    _emit_done(options, answer.offset, of, keys, "would be removed" if dry_run else "removed")


def _emit_done(options: Options, offset: int, of: str, keys: Any, result: str) -> None:
    rows = [{"of": of, "key": key, "result": result, "error": None, "message": None} for key in keys]
    emit(options.output, {"offset": offset, "results": rows}, rows="results", columns=_RESULTS)


@click.command()
@click.option("--of", type=click.Choice(_WORDS), help="Only the keys of topics, or of brokers.")
@command
def keys(options: Options, of: str | None) -> None:
    """Lists the config keys that embedders have defined. docs/configuration.md lists the built-in keys.

    \b
    $ quorumctl configs keys --of topic
    """

    async def work(client: AdminClient) -> list[admin_pb2.ConfigKeyDefinition]:
        return [each async for each in client.config_keys()]

    words = {number: word for word, number in _numbers().items()}
    rows = [_row(each, words[each.resource_type]) for each in ask(options, work)]
    rows = [row for row in rows if of in (None, row["of"])]
    emit(options.output, {"keys": rows}, rows="keys", columns=_COLUMNS)


def _row(definition: admin_pb2.ConfigKeyDefinition, of: str) -> dict[str, Any]:
    return {
        "of": of,
        "key": definition.name,
        "is_prefix": definition.is_prefix,
        "type": definition.value_type,
        "default": definition.default_value,
        "minimum": definition.minimum if definition.HasField("minimum") else None,
        "maximum": definition.maximum if definition.HasField("maximum") else None,
        "choices": list(definition.choices),
        "documentation": definition.documentation or None,
    }
