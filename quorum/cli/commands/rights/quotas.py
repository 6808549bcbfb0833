"""`quorumctl quotas`: sees and changes the quotas of clients.

An entity is a user, a client id, a user with a client id, or an address; `--user-defaults` stands for all users without a
quota of their own, and so on. For example `quotas set producer_byte_rate=1000000 --user alice` is for all clients of alice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import Column, emit
from quorum.cli.pairs import pairs
from quorum.cli.results import emit_results, outcome
from quorum.cli.shared_options import DRY_RUN

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_TYPES: Final = (("user", "user"), ("client_id", "client-id"), ("ip", "ip"))
_COLUMNS = (Column("ENTITY", "entity"), Column("KEY", "key"), Column("VALUE", "value"))
_RESULTS = (Column("ENTITY", "entity"), Column("RESULT", "result"))


def _of_entity(function: Any) -> Any:
    """Adds the options that name the entity."""
    for option in (
        click.option("--ip-defaults", is_flag=True, help="The default of all addresses."),
        click.option("--ip", metavar="ADDRESS", help="An address."),
        click.option("--client-id-defaults", is_flag=True, help="The default of all client ids."),
        click.option("--client-id", metavar="NAME", help="A client id."),
        click.option("--user-defaults", is_flag=True, help="The default of all users."),
        click.option("--user", metavar="NAME", help="A user."),
    ):
        function = option(function)
    return function


def _named(given: dict[str, Any]) -> list[tuple[str, str | None]]:
    """The parts that the options name, None for a default."""
    found: list[tuple[str, str | None]] = []
    for option, kind in _TYPES:
        name, is_default = given[option], given[f"{option}_defaults"]
        if name is not None and is_default:
            raise CliError(f"--{kind} and --{kind}-defaults exclude each other", EXIT_USAGE)
        if name is not None or is_default:
            found.append((kind, name))
    return found


def _shown(parts: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in parts)


def _parts(entity: admin_pb2.ClientQuotaEntity) -> list[tuple[str, str | None]]:
    """The parts, the user first."""
    found = {each.entity_type: each.name if each.HasField("name") else None for each in entity.parts}
    return sorted(found.items(), reverse=True)


def _documented(parts: Sequence[tuple[str, str | None]]) -> list[dict[str, str | None]]:
    return [{"entity_type": kind, "name": name} for kind, name in parts]


@click.group()
def quotas() -> None:
    """See and change the quotas of clients."""


@quotas.command("list")
@at_position
@_of_entity
@click.option("--strict", is_flag=True, help="Leave out entities with other parts than the named ones.")
@command
def list_(options: Options, strict: bool, **given: Any) -> None:
    """Shows the quotas of all entities, or of those that have the named parts.

    \b
    $ quorumctl quotas list --user alice
    """
    named = _named(given)

    async def work(client: AdminClient) -> list[admin_pb2.DescribedClientQuotas]:
        from metaquorum import admin_pb2

        kinds = admin_pb2.DescribeClientQuotasRequest
        wanted = [
            kinds.Component(entity_type=kind, match=kinds.DEFAULT if name is None else kinds.EXACT, name=name or "")
            for kind, name in named
        ]
        return [each async for each in client.client_quotas(*wanted, strict=strict)]

    rows = [
        {"entity": _shown(parts), "parts": _documented(parts), "key": each.key, "value": _number(each.value)}
        for entry in ask(options, work)
        for parts in (_parts(entry.entity),)
        for each in entry.values
    ]
    emit(options.output, {"quotas": rows}, rows="quotas", columns=_COLUMNS)


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


@quotas.command("set")
@_of_entity
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@DRY_RUN
@command
def set_(options: Options, values: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    """Sets quotas of one entity, all of them or none.

    \b
    Keys of users and client ids: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate.
    Key of addresses: connection_creation_rate.

    \b
    $ quorumctl quotas set producer_byte_rate=1000000 --user alice --client-id web
    """
    from metaquorum import admin_pb2

    operations = []
    for key, text in pairs(values):
        try:
            operations.append(admin_pb2.ClientQuotaOperation(key=key, value=float(text)))
        except ValueError:
            raise CliError(f"{key}={text[:60]}: the value must be a number", EXIT_USAGE) from None
    _alter(options, _named(given), operations, dry_run)


@quotas.command()
@_of_entity
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@DRY_RUN
@command
def remove(options: Options, keys: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    """Removes quotas of one entity. A quota that is not set is no error.

    \b
    $ quorumctl quotas remove producer_byte_rate --user alice
    """
    from metaquorum import admin_pb2

    _alter(options, _named(given), [admin_pb2.ClientQuotaOperation(key=key) for key in keys], dry_run)


def _alter(
    options: Options,
    parts: Sequence[tuple[str, str | None]],
    operations: Sequence[admin_pb2.ClientQuotaOperation],
    dry_run: bool,
) -> None:
    from metaquorum import admin_pb2

    if not parts:
        raise CliError("name the entity: --user, --client-id or --ip, or the defaults of one", EXIT_USAGE)
    entity = admin_pb2.ClientQuotaEntity(
        parts=[admin_pb2.ClientQuotaEntityPart(entity_type=kind, name=name) for kind, name in parts]
    )
    alteration = admin_pb2.ClientQuotaAlteration(entity=entity, operations=operations)
    response = ask(options, lambda client: client.alter_client_quotas([alteration], validate_only=dry_run))
    done = "would be altered" if dry_run else "altered"
    named = {"entity": _shown(parts), "parts": _documented(parts)}
    rows = [{**named, **outcome(each.error, done)} for each in response.results]
    emit_results(options, response.offset, rows, _RESULTS)
