"""Translates between protobuf and the requests about SCRAM credentials. Decides nothing."""

from quorum_rpc.v1 import admin_pb2

from quorum.controller.protocol.rights.scram_commands import (
    AlterUserScramCredentials,
    AlterUserScramCredentialsReply,
    ScramAlteration,
    ScramSecrets,
)
from quorum.controller.rights.names import NAME_BYTES_MAX
from quorum.controller.rights.scram import ALTERATIONS_MAX, UsersPage, describe_users
from quorum.runtime.protocol.requests import ReadView
from quorum.wire.convert import pages
from quorum.wire.convert.convert_admin import at_most
from quorum.wire.convert.errors import item_error
from service_kit.rpc.refusals import shortened


def from_alter_credentials(message: admin_pb2.AlterUserScramCredentialsRequest) -> AlterUserScramCredentials:
    at_most(len(message.alterations), "alterations", ALTERATIONS_MAX)
    return AlterUserScramCredentials(tuple(_alteration(each) for each in message.alterations), message.validate_only)


def _alteration(message: admin_pb2.ScramAlteration) -> ScramAlteration:
    secrets = None
    if message.HasField("credential"):
        given = message.credential
        secrets = ScramSecrets(given.iterations, given.salt, given.stored_key, given.server_key)
    return ScramAlteration(message.user, message.mechanism, secrets)


def to_alter_credentials_response(
    reply: AlterUserScramCredentialsReply,
) -> admin_pb2.AlterUserScramCredentialsResponse:
    return admin_pb2.AlterUserScramCredentialsResponse(
        offset=reply.offset,
        results=[
            admin_pb2.ScramResult(
                user=shortened(each.user, NAME_BYTES_MAX),
                error=item_error(each.error, each.message, len(reply.results)),
            )
            for each in reply.results
        ],
    )


def find_users(request: admin_pb2.DescribeUserScramCredentialsRequest, view: ReadView) -> UsersPage:
    """Looks at all credentials, on a thread."""
    return describe_users(view.image, pages.name_after(request.page_token), pages.page_size(request.page_size))


def describe_users_page(
    _: admin_pb2.DescribeUserScramCredentialsRequest, view: ReadView, page: UsersPage
) -> admin_pb2.DescribeUserScramCredentialsResponse:
    return admin_pb2.DescribeUserScramCredentialsResponse(
        as_of_offset=view.as_of_offset,
        users=[
            admin_pb2.DescribedUser(
                user=each.user,
                credentials=[
                    # the number of a mechanism is that of the wire
                    admin_pb2.DescribedScramCredential(mechanism=mechanism, iterations=iterations)  # type: ignore[arg-type]
                    for mechanism, iterations in each.credentials
                ],
            )
            for each in page.users
        ],
        next_page_token=b"" if page.is_last else page.users[-1].user.encode(),
    )
