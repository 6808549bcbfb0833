"""`quorumctl acls`: sees and changes the ACLs that the log carries for the system on the brokers.

For example `acls add --allow User:alice --operation read --resource topic:orders`. metaquorum's own services ask no ACL: they
go by the roles of certificates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from metadata_log.format.acl_words import (
    CLUSTER_NAME,
    EVERY,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import Column, emit
from quorum.cli.results import emit_results, outcome
from quorum.cli.shared_options import DRY_RUN

if TYPE_CHECKING:
    from enum import IntEnum

    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_COLUMNS: Final = (
    Column("RESOURCE_TYPE", "resource_type"),
    Column("RESOURCE_NAME", "resource_name"),
    Column("PATTERN_TYPE", "pattern_type"),
    Column("PRINCIPAL", "principal"),
    Column("HOST", "host"),
    Column("OPERATION", "operation"),
    Column("PERMISSION", "permission"),
)
_RESULT: Final = (*_COLUMNS, Column("RESULT", "result"))


def _words(words: type[IntEnum], *without: str) -> list[str]:
    return [each.name.lower().replace("_", "-") for each in words if each.name not in without]


def _number(words: type[IntEnum], word: str) -> int:
    return words[word.upper().replace("-", "_")].value


def _word(words: type[IntEnum], number: int) -> str:
    known = {each.value: each.name.lower().replace("_", "-") for each in words}
    return known.get(number, str(number))


def _conditions(function: Any) -> Any:
    """Adds the options that say which ACLs are meant."""
    for option in (
        click.option("--permission", type=click.Choice(_words(PermissionType, "ANY")), help="The effect."),
        click.option("--operation", type=click.Choice(_words(AclOperation, "ANY")), help="The operation of the ACL."),
        click.option("--host", metavar="ADDRESS", help="The host of the ACL."),
        click.option("--principal", metavar="TYPE:NAME", help="The principal of the ACL, for example User:alice."),
        click.option(
            "--pattern-type",
            type=click.Choice(_words(PatternType)),
            default="any",
            show_default=True,
            help="The pattern of the ACL; match: all patterns that fit the name of --resource.",
        ),
        click.option("--resource", metavar="TYPE[:NAME]", help="The resource of the ACL; only a type: all names."),
    ):
        function = option(function)
    return function


def _resource(text: str) -> tuple[int, str | None]:
    """The type, and the name if there is one; the cluster has one name."""
    kind, colon, name = text.partition(":")
    known = _words(ResourceType, "ANY")
    if kind not in known or (colon and not name):
        raise CliError(f"{text!r} is not TYPE:NAME; the types are {', '.join(known)}", EXIT_USAGE)
    number = _number(ResourceType, kind)
    return number, name or (CLUSTER_NAME if number == ResourceType.CLUSTER else None)


def _filter(given: dict[str, Any]) -> admin_pb2.AclFilter:
    from metaquorum import admin_pb2

    kind, name = _resource(given["resource"]) if given["resource"] else (ResourceType.ANY.value, None)
    wanted = admin_pb2.AclFilter(resource_name=name, principal=given["principal"], host=given["host"])
    wanted.resource_type = kind  # type: ignore[assignment]  # the numbers are those of the wire
    wanted.pattern_type = _number(PatternType, given["pattern_type"])  # type: ignore[assignment]
    if given["operation"]:
        wanted.operation = _number(AclOperation, given["operation"])  # type: ignore[assignment]
    if given["permission"]:
        wanted.permission_type = _number(PermissionType, given["permission"])  # type: ignore[assignment]
    return wanted


def _row(acl: admin_pb2.AclBinding) -> dict[str, Any]:
    return {
        "resource_type": _word(ResourceType, acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": _word(PatternType, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _word(AclOperation, acl.operation),
        "permission": _word(PermissionType, acl.permission_type),
    }


@click.group()
def acls() -> None:
    """See and change ACLs, which the log carries for the system on the brokers."""


@acls.command("list")
@at_position
@_conditions
@command
def list_(options: Options, **given: Any) -> None:
    """Shows all ACLs, or those that meet every condition.

    \b
    $ quorumctl acls list --resource topic:orders --pattern-type match
    """
    wanted = _filter(given)

    async def work(client: AdminClient) -> list[admin_pb2.AclBinding]:
        return [each async for each in client.acls(wanted)]

    emit(options.output, {"acls": [_row(each) for each in ask(options, work)]}, rows="acls", columns=_COLUMNS)


@acls.command()
@click.option(
    "--resource", "resources", multiple=True, required=True, metavar="TYPE:NAME", help="A resource; may be repeated."
)
@click.option("--prefixed", is_flag=True, help="The names are prefixes.")
@click.option("--allow", "allowed", multiple=True, metavar="TYPE:NAME", help="A principal; may be repeated.")
@click.option("--deny", "denied", multiple=True, metavar="TYPE:NAME", help="A principal; may be repeated.")
@click.option(
    "--host", "hosts", multiple=True, default=(EVERY,), metavar="ADDRESS", help="An address, or *; may be repeated."
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    required=True,
    type=click.Choice(_words(AclOperation, "ANY")),
    help="An operation; may be repeated.",
)
@DRY_RUN
@command
def add(
    options: Options,
    resources: tuple[str, ...],
    prefixed: bool,
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    hosts: tuple[str, ...],
    operations: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Creates an ACL for each principal, host, operation and resource. An ACL that exists is no error.

    \b
    $ quorumctl acls add --allow User:alice --operation read --operation describe --resource topic:orders
    """
    from metaquorum import admin_pb2

    if not (allowed or denied):
        raise CliError("name the principal: --allow User:alice or --deny User:alice", EXIT_USAGE)
    named = [_resource(each) for each in resources]
    if any(name is None for _, name in named):
        raise CliError("name the resource: --resource topic:orders; topic:* is every topic", EXIT_USAGE)
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    principals = [
        *((each, PermissionType.ALLOW) for each in allowed),
        *((each, PermissionType.DENY) for each in denied),
    ]
    bindings = [
        admin_pb2.AclBinding(
            resource_type=kind,  # type: ignore[arg-type]  # the numbers are those of the wire
            resource_name=name or "",
            pattern_type=pattern.value,  # type: ignore[arg-type]
            principal=principal,
            host=host,
            operation=_number(AclOperation, operation),  # type: ignore[arg-type]
            permission_type=permission.value,  # type: ignore[arg-type]
        )
        for kind, name in named
        for principal, permission in principals
        for host in hosts
        for operation in operations
    ]
    response = ask(options, lambda client: client.create_acls(bindings, validate_only=dry_run))
    done = "would exist" if dry_run else "exists"
    rows = [
        {**_row(acl), **outcome(result.error, done)} for acl, result in zip(bindings, response.results, strict=False)
    ]
    emit_results(options, response.offset, rows, _RESULT)


@acls.command()
@_conditions
@click.option("--all", "everything", is_flag=True, help="All ACLs of the cluster.")
@DRY_RUN
@command
def remove(options: Options, everything: bool, dry_run: bool, **given: Any) -> None:
    """Deletes the ACLs that meet every condition, and shows them. No such ACL is no error.

    \b
    $ quorumctl acls remove --principal User:alice --resource topic:orders --dry-run
    """
    wanted = _filter(given)
    is_open = not any(given[each] for each in ("resource", "principal", "host", "operation", "permission"))
    if is_open is not everything:
        raise CliError("name a condition, for example --principal User:alice, or --all without a condition", EXIT_USAGE)
    response = ask(options, lambda client: client.delete_acls([wanted], validate_only=dry_run))
    failed = [outcome(each.error, "") for each in response.results if each.error.code]
    done = {"result": "would be deleted" if dry_run else "deleted", "error": None, "message": None}
    rows = [{**_row(acl), **done} for result in response.results for acl in result.deleted]
    emit_results(options, response.offset, [*rows, *failed], _RESULT)
