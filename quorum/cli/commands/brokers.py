"""`quorumctl brokers`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from quorum.cli.errors import EXIT_UNHEALTHY
from quorum.cli.options import Options, ask, command
from quorum.cli.output import Column, emit
from quorum.wire.words import endpoint_text, id_text, optional, state_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

_COLUMNS = (
    Column("ID", "broker_id"),
    Column("STATE", "state"),
    Column("RACK", "rack"),
    Column("ENDPOINTS", "endpoints_text"),
    Column("EPOCH", "broker_epoch"),
    Column("CONTACT_MS", "last_contact_age_ms"),
    Column("OFFSET", "metadata_offset"),
    Column("LEADS", "led_partitions"),
    Column("REPLICAS", "replicas"),
    Column("DATA_PLANE", "data_plane"),
)


@click.group()
def brokers() -> None:
    """See the brokers."""


@brokers.command("list")
@click.option("--expect-online", is_flag=True, help="Exit code 10 unless every broker is online.")
@command
def list_(options: Options, expect_online: bool) -> None:
    """Lists the registered brokers as the active controller sees them."""
    response = ask(options, lambda client: client.list_brokers())
    rows = [_row(broker) for broker in response.brokers]
    shown = [{**row, "endpoints_text": [each["endpoint"] for each in row["endpoints"]]} for row in rows]
    is_table = options.output == "table"
    document = {"as_of_offset": response.as_of_offset, "brokers": shown if is_table else rows}
    emit(options.output, document, rows="brokers", columns=_COLUMNS)
    if expect_online and any(row["state"] != "online" for row in rows):
        raise SystemExit(EXIT_UNHEALTHY)


def _row(broker: admin_pb2.BrokerListing) -> dict[str, Any]:
    return {
        "broker_id": broker.broker_id,
        "state": state_text(broker.state),
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
