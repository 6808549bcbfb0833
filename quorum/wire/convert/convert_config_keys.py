"""Translates between protobuf and the requests about definitions of config keys. Decides nothing."""

from bisect import bisect_right
from typing import Final

from quorum_rpc.v1 import admin_pb2

from metadata_log.format.records import ConfigDefinition
from quorum.controller.protocol.config_commands import AlterConfigKeys, AlterConfigKeysReply
from quorum.controller.topics.config_definitions import REQUEST_MAX
from quorum.runtime.protocol.requests import ReadView
from quorum.wire.convert import pages
from quorum.wire.convert.convert_admin import at_most
from quorum.wire.convert.errors import BadMessage

PAGE_MAX: Final = 100
"""Maximum number of definitions in one page, also if a client wants more: less than 1 MiB."""
_DIGITS_MAX: Final = 10


def from_alter_config_keys(message: admin_pb2.AlterConfigKeysRequest) -> AlterConfigKeys:
    at_most(len(message.definitions) + len(message.removals), "definitions and removals", REQUEST_MAX)
    return AlterConfigKeys(
        tuple(_definition(each) for each in message.definitions),
        tuple((each.resource_type, each.name) for each in message.removals),
        message.validate_only,
    )


def to_alter_config_keys_response(reply: AlterConfigKeysReply) -> admin_pb2.AlterConfigKeysResponse:
    return admin_pb2.AlterConfigKeysResponse(offset=reply.offset)


def _definition(message: admin_pb2.ConfigKeyDefinition) -> ConfigDefinition:
    return ConfigDefinition(
        message.resource_type,
        message.name,
        message.is_prefix,
        message.value_type,
        message.default_value,
        message.minimum if message.HasField("minimum") else None,
        message.maximum if message.HasField("maximum") else None,
        tuple(message.choices),
        message.documentation,
    )


def describe_config_keys(
    request: admin_pb2.DescribeConfigKeysRequest, view: ReadView
) -> admin_pb2.DescribeConfigKeysResponse:
    asked = pages.page_size(request.page_size)
    room = asked if 0 < asked <= PAGE_MAX else PAGE_MAX
    definitions = view.image.config_definitions
    keys = definitions.sorted_keys()
    begin = bisect_right(keys, _after(request.page_token)) if request.page_token else 0
    page = keys[begin : begin + room]
    is_last = begin + room >= len(keys)
    return admin_pb2.DescribeConfigKeysResponse(
        as_of_offset=view.as_of_offset,
        definitions=[to_definition(definitions[key]) for key in page],
        next_page_token=b"" if is_last else "{} {}".format(*page[-1]).encode(),
    )


def to_definition(definition: ConfigDefinition) -> admin_pb2.ConfigKeyDefinition:
    return admin_pb2.ConfigKeyDefinition(
        resource_type=definition.resource_type,
        name=definition.name,
        is_prefix=definition.is_prefix,
        value_type=definition.value_type,
        default_value=definition.default,
        minimum=definition.minimum,
        maximum=definition.maximum,
        choices=definition.choices,
        documentation=definition.documentation,
    )


def _after(token: bytes) -> tuple[int, str]:
    number, _, name = pages.name_after(token).partition(" ")
    if not name or not number.isdecimal() or len(number) > _DIGITS_MAX:
        raise BadMessage(pages.UNKNOWN_TOKEN)
    return int(number), name
