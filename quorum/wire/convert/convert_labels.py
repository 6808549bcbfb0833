"""Translates between protobuf and the requests about labels. Decides nothing."""

from collections.abc import Mapping

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.labels import label_key_problem, label_value_problem
from metadata_log.format.records import WHOLE_RESOURCE
from quorum.controller.protocol.label_commands import AlterLabels, AlterLabelsReply, LabelAlteration
from quorum.controller.topics.labels import CHANGES_MAX, LabelPage, Place, list_labels
from quorum.runtime.protocol.requests import ReadView
from quorum.wire.convert import pages
from quorum.wire.convert.convert_admin import at_most
from quorum.wire.convert.errors import BadMessage

_DIGITS_MAX = 10


def from_alter_labels(message: admin_pb2.AlterLabelsRequest) -> AlterLabels:
    at_most(len(message.alterations), "alterations", CHANGES_MAX)
    at_most(sum(len(each.set) + len(each.remove) for each in message.alterations), "labels", CHANGES_MAX)
    return AlterLabels(tuple(_alteration(each) for each in message.alterations), message.validate_only)


def _alteration(message: admin_pb2.LabelAlteration) -> LabelAlteration:
    if message.HasField("partition") and message.partition < 0:
        raise BadMessage(f"partition {message.partition}: it must be at least 0, or unset for the topic itself")
    return LabelAlteration(
        message.resource.resource_type,
        message.resource.name,
        message.partition if message.HasField("partition") else WHOLE_RESOURCE,
        (*((each.key, each.value) for each in message.set), *((key, None) for key in message.remove)),
    )


def to_alter_labels_response(reply: AlterLabelsReply) -> admin_pb2.AlterLabelsResponse:
    return admin_pb2.AlterLabelsResponse(offset=reply.offset)


def to_labels(labels: Mapping[str, str]) -> list[admin_pb2.Label]:
    return [admin_pb2.Label(key=key, value=value) for key, value in sorted(labels.items())]


def wanted_label(text: str) -> str:
    """Returns a filter. Raises BadMessage for one that no label can pass: an empty list would look like an answer."""
    key, _, value = text.partition("=")
    problem = (label_key_problem(key) or label_value_problem(value)) if text else None
    if problem is not None:
        raise BadMessage(f"label: {problem}")
    return text


def find_labels(request: admin_pb2.ListLabelsRequest, view: ReadView) -> LabelPage:
    """Looks at all labels, on a thread."""
    size, wanted = pages.page_size(request.page_size), wanted_label(request.label)
    return list_labels(view.image, wanted, _place(request.page_token), size)


def list_labels_page(_: admin_pb2.ListLabelsRequest, view: ReadView, page: LabelPage) -> admin_pb2.ListLabelsResponse:
    return admin_pb2.ListLabelsResponse(
        as_of_offset=view.as_of_offset,
        things=[
            admin_pb2.LabelledThing(
                resource=admin_pb2.ConfigResource(resource_type=resource_type, name=name),
                partition=None if partition == WHOLE_RESOURCE else partition,
                labels=to_labels(labels),
            )
            for (resource_type, name, partition), labels in page.things
        ],
        next_page_token=b"" if page.next_place is None else _token(page.next_place),
    )


def _token(place: Place) -> bytes:
    resource_type, name, partition = place
    return f"{resource_type} {partition} {name}".encode()


def _place(token: bytes) -> Place | None:
    if not token:
        return None
    resource_type, _, rest = pages.name_after(token).partition(" ")
    partition, _, name = rest.partition(" ")
    digits = (resource_type, partition.removeprefix("-"))
    if not name or not all(each.isascii() and each.isdecimal() and len(each) <= _DIGITS_MAX for each in digits):
        raise BadMessage(pages.UNKNOWN_TOKEN)
    return int(resource_type), name, int(partition)
