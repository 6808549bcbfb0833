"""`quorumctl brokers`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from quorum.cli.commands.brokers.broker_changes import drain, fence, undrain, unfence, unregister
from quorum.cli.errors import EXIT_NOT_FOUND, EXIT_UNHEALTHY, CliError
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import UNKNOWN, Column, emit
from quorum.cli.shared_options import BROKER_IDS, LABEL
from quorum.wire.words import endpoint_text, id_text, optional, state_text, time_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_COLUMNS = (
    Column("ID", "broker_id"),
    Column("STATE", "state"),
    Column("MODE", "mode"),
    Column("RACK", "rack"),
    Column("ENDPOINTS", "endpoints_text"),
    Column("EPOCH", "broker_epoch"),
    Column("CONTACT_MS", "last_contact_age_ms"),
    Column("OFFSET", "metadata_offset"),
    Column("LEADS", "led_partitions"),
    Column("REPLICAS", "replicas"),
    Column("DATA_PLANE", "data_plane"),
)

_LOST = id_text(bytes(15) + b"\x01")
"""The log directory of replicas that were lost before the broker could say where they were."""
_MODES = {
    "fenced": "an operator keeps the broker out",
    "maintenance": "an operator has drained the broker",
}


@click.group()
def brokers() -> None:
    """Show brokers, keep them out, drain them for maintenance, and remove those that are gone."""


@brokers.command("list")
@at_position
@click.option("--expect-online", is_flag=True, help="Exit code 10 unless every broker is online.")
@LABEL
@command
def list_(options: Options, expect_online: bool, label: str) -> None:
    """Lists the registered brokers as the active controller sees them.

    \b
    $ quorumctl brokers list --expect-online
    """
    as_of_offset, listed = ask(options, lambda client: _all_brokers(client, label))
    rows = [_row(broker) for broker in listed]
    shown = [{**row, "endpoints_text": [each["endpoint"] for each in row["endpoints"]]} for row in rows]
    is_table = options.output == "table"
    document = {"as_of_offset": as_of_offset, "brokers": shown if is_table else rows}
    emit(options.output, document, rows="brokers", columns=_COLUMNS)
    if expect_online and any(row["state"] != "online" for row in rows):
        raise SystemExit(EXIT_UNHEALTHY)


@brokers.command()
@at_position
@BROKER_IDS
@command
def describe(options: Options, broker_ids: tuple[int, ...]) -> None:
    """Shows brokers: state and mode, since when and why, the last contact, what each broker holds, and the configs set on it.

    The reason and the time come from the broker's record in the metadata log, so every controller tells the same, also after a
    failover. The log of the controller that was active then has a line with more: search it for the event `broker fenced`.

    \b
    $ quorumctl brokers describe 101
    """

    async def work(client: AdminClient) -> tuple[int, dict[int, dict[str, Any]]]:
        as_of_offset, listed = await _all_brokers(client)
        wanted = [broker for broker in listed if broker.broker_id in broker_ids]
        configs = await _configs(client, [broker.broker_id for broker in wanted])
        return as_of_offset, {broker.broker_id: _description(broker, configs[broker.broker_id]) for broker in wanted}

    as_of_offset, found = ask(options, work)
    missing = [broker_id for broker_id in broker_ids if broker_id not in found]
    if missing:
        text = ", ".join(map(str, missing))
        raise CliError(
            f"not registered: broker {text}; `quorumctl brokers list` shows the registered brokers", EXIT_NOT_FOUND
        )
    described = [found[broker_id] for broker_id in broker_ids]
    if options.output == "table":
        emit("table", {}, heading=[line for each in described for line in _lines(each)])
    else:
        emit(options.output, {"as_of_offset": as_of_offset, "brokers": described}, rows="brokers")


for change in (fence, unfence, drain, undrain, unregister):
    brokers.add_command(change)


async def _all_brokers(client: AdminClient, label: str = "") -> tuple[int, list[admin_pb2.BrokerListing]]:
    """The offset that the first page is as of, and the brokers of all pages."""
    from quorum_rpc.v1 import admin_pb2

    request = admin_pb2.ListBrokersRequest(label=label)
    pages = [page async for page in client.pages(request, admin_pb2.ListBrokersResponse)]
    return pages[0].as_of_offset, [broker for page in pages for broker in page.brokers]


async def _configs(client: AdminClient, broker_ids: list[int]) -> dict[int, dict[str, str]]:
    """The configs that were set on each broker itself, and not on all brokers."""
    from metaquorum import BROKER_RESOURCE, admin_pb2

    resources = [admin_pb2.ConfigResource(resource_type=BROKER_RESOURCE, name=str(each)) for each in broker_ids]
    return {
        int(described.resource.name): {entry.key: entry.value for entry in described.configs}
        async for described in client.described_configs(resources)
    }


def _description(broker: admin_pb2.BrokerListing, configs: dict[str, str]) -> dict[str, Any]:
    since_ms, mode_since_ms = optional(broker, "state_since_ms"), optional(broker, "mode_since_ms")
    return {
        **_row(broker),
        "state_reason": broker.state_reason or None,
        "state_since": None if since_ms is None else time_text(since_ms),
        "state_since_ms": since_ms,
        "mode_reason": broker.mode_reason or None,
        "mode_since": None if mode_since_ms is None else time_text(mode_since_ms),
        "mode_since_ms": mode_since_ms,
        "session_left_ms": optional(broker, "session_left_ms"),
        "log_dirs": [
            {"directory_id": id_text(each.directory_id), "is_online": each.is_online, "replicas": each.replicas}
            for each in broker.log_dirs
        ],
        "configs": configs,
        "labels": {label.key: label.value for label in broker.labels},
    }


def _lines(of: dict[str, Any]) -> Iterator[str]:
    """One broker, for people."""
    left_ms, heard_ms = of["session_left_ms"], of["last_contact_age_ms"]
    facts = (
        ("state", of["state"]),
        ("since", of["state_since"] or UNKNOWN),
        ("why", _why_text(of)),
        ("mode", _mode_text(of)),
        ("last heard", UNKNOWN if heard_ms is None else f"{heard_ms:,} ms ago"),
        ("session", UNKNOWN if left_ms is None else f"ends in {left_ms:,} ms, if the broker is not heard before"),
        ("epoch", of["broker_epoch"]),
        ("incarnation", of["incarnation_id"]),
        ("applied", UNKNOWN if of["metadata_offset"] is None else f"all metadata below offset {of['metadata_offset']}"),
        ("rack", of["rack"] or UNKNOWN),
        ("endpoints", ", ".join(f"{each['listener']} {each['endpoint']}" for each in of["endpoints"])),
        ("leads", f"{of['led_partitions']:,} partitions"),
        ("replicas", f"{of['replicas']:,}"),
        ("data plane", of["data_plane"] or UNKNOWN),
        *[("directory", _directory_text(each)) for each in of["log_dirs"]],
        ("configs", ",".join(f"{key}={value}" for key, value in of["configs"].items()) or UNKNOWN),
        ("labels", ",".join(f"{key}={value}" for key, value in of["labels"].items()) or UNKNOWN),
    )
    yield f"broker {of['broker_id']}"
    yield from (f"  {name:<12} {value}" for name, value in facts)


def _why_text(of: dict[str, Any]) -> str:
    """Says why a broker is in its state. A broker that restarts under an operator's fence has the reason `registered` in its
    record, and would be online but for the fence."""
    if of["state"] == "fenced" and of["mode"] == "fenced":
        return f"operator: an operator keeps the broker out; `quorumctl brokers unfence {of['broker_id']}` ends that"
    reason = of["state_reason"]
    return UNKNOWN if reason is None else f"{reason}: {_meaning(reason)}"


def _mode_text(of: dict[str, Any]) -> str:
    """Says which mode an operator has given to a broker, since when and why."""
    if of["mode"] is None:
        return UNKNOWN
    meaning = _MODES.get(of["mode"], "a mode of a newer release")
    why = "" if of["mode_reason"] is None else f": {of['mode_reason']}"
    return f"{of['mode']} ({meaning}) since {of['mode_since'] or UNKNOWN}{why}"


def _directory_text(of: dict[str, Any]) -> str:
    """Says where a log directory is, and how many replicas the broker has assigned to it."""
    state = "online" if of["is_online"] else "offline"
    if of["directory_id"] == _LOST:
        return f"{state}, {of['replicas']:,} replicas that were in a failed directory before the broker could say which one"
    return f"{of['directory_id']} {state}, {of['replicas']:,} replicas assigned"


def _meaning(reason: str) -> str:
    """Says in words what a reason in a broker's record means."""
    from quorum.controller.protocol.brokers.state_reason import StateReason

    try:
        return StateReason(reason).meaning
    except ValueError:
        return "a reason of a newer release"


def _row(broker: admin_pb2.BrokerListing) -> dict[str, Any]:
    return {
        "broker_id": broker.broker_id,
        "state": state_text(broker.state),
        "mode": broker.mode or None,
        "rack": optional(broker, "rack"),
        "endpoints": [{"listener": each.listener, "endpoint": endpoint_text(each)} for each in broker.endpoints],
        "broker_epoch": broker.broker_epoch,
        "incarnation_id": id_text(broker.incarnation_id),
        "last_contact_age_ms": optional(broker, "last_contact_age_ms"),
        "metadata_offset": optional(broker, "metadata_offset"),
        "led_partitions": broker.led_partitions,
        "replicas": broker.replicas,
        "data_plane": broker.data_plane or None,
    }
