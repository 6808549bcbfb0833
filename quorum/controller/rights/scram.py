"""SCRAM credentials of users: alterations, and a list without secrets (Kafka's ScramControlManager, KIP-554).

A credential has a salt, a number of iterations, and two keys that check a password without knowing it. The client makes the keys,
so neither a request nor the log has a password. metaquorum keeps the credentials for the system that embeds the agent.

Example. A request sets alice's credential of SCRAM-SHA-256 with 4,096 iterations, and bob's with 100.
    1  Alice's is good: the decision has a `UserScramCredential`.
    2  Bob's could be guessed too fast: INVALID_REQUEST in its own result, and no record.
    3  A request removes alice's: the decision has a `RemoveUserScramCredential`. The same request again has no record.
"""

from collections import Counter
from typing import Final, NamedTuple

from metadata_log.format.records import MetadataRecord, RemoveUserScramCredential, UserScramCredential
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.happenings import UsersChanged, first_few
from quorum.controller.protocol.rights.scram_commands import (
    AlterUserScramCredentials,
    AlterUserScramCredentialsReply,
    ScramAlteration,
    ScramMechanism,
    ScramResult,
    ScramSecrets,
)
from quorum.controller.protocol.topic_rules import Rejected
from quorum.controller.rights.limits import check_cluster, check_request
from quorum.controller.rights.names import bad, check_name

ALTERATIONS_MAX: Final = 1_000
"""Maximum number of alterations in one request. Their records fit into one batch."""
CREDENTIALS_MAX: Final = 50_000
"""Maximum number of credentials in the cluster."""
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""The bounds of Kafka: fewer are guessed too fast, and more cost a broker too much at each login."""
SALT_BYTES_MAX: Final = 64
USERS_PAGE_MAX: Final = 1_000
"""Maximum number of users in one page, also if a client wants more."""

_KEY_BYTES: Final = {ScramMechanism.SCRAM_SHA_256: 32, ScramMechanism.SCRAM_SHA_512: 64}


def alter_scram_credentials(image: MetadataImage, command: AlterUserScramCredentials) -> Decision:
    """Decides alterations of credentials; each has its own result. The removal of a missing credential is no error.

    Raises:
        ControllerError: POLICY_VIOLATION if the request is too large, or the cluster would have too many credentials.
    """
    check_request(len(command.alterations), ALTERATIONS_MAX, "alterations")
    times = Counter([(each.user, each.mechanism) for each in command.alterations])
    records: list[UserScramCredential | RemoveUserScramCredential] = []
    results = []
    for each in command.alterations:
        try:
            if times[each.user, each.mechanism] > 1:
                raise bad("the request names this user and mechanism more than once")
            records += _altered(image, each)
        except Rejected as e:
            results.append(ScramResult(each.user, e.code, f"{e.message}; this credential was not changed"))
        else:
            results.append(ScramResult(each.user))
    new = [each for each in records if (each.user, each.mechanism) not in image.scram_credentials]
    check_cluster(len(image.scram_credentials), len(new), CREDENTIALS_MAX, "credentials", "remove some first")
    reply = AlterUserScramCredentialsReply(results=tuple(results))
    if command.validate_only or not records:
        return Decision((), reply)
    written: tuple[MetadataRecord, ...] = tuple(records)
    return Decision(written, reply, happenings=(UsersChanged(len(records), first_few(each.user for each in records)),))


def _altered(
    image: MetadataImage, alteration: ScramAlteration
) -> list[UserScramCredential | RemoveUserScramCredential]:
    """Returns the record of one alteration, if it changes anything. Raises Rejected."""
    user, mechanism, secrets = alteration.user, alteration.mechanism, alteration.secrets
    check_name("the name of the user", user)
    if mechanism not in _KEY_BYTES:
        known = ", ".join(f"{each.name} ({each.value})" for each in ScramMechanism)
        raise bad(f"there is no mechanism {mechanism}: this release knows {known}")
    before = image.scram_credentials.get((user, mechanism))
    if secrets is None:
        return [] if before is None else [RemoveUserScramCredential(user, mechanism)]
    _check_secrets(secrets, _KEY_BYTES[ScramMechanism(mechanism)])
    after = UserScramCredential(
        user, mechanism, secrets.salt, secrets.stored_key, secrets.server_key, secrets.iterations
    )
    return [] if after == before else [after]


def _check_secrets(secrets: ScramSecrets, key_bytes: int) -> None:
    if not ITERATIONS_MIN <= secrets.iterations <= ITERATIONS_MAX:
        raise bad(f"{secrets.iterations} iterations: there must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if not 1 <= len(secrets.salt) <= SALT_BYTES_MAX:
        raise bad(f"the salt has {len(secrets.salt)} bytes: it must have 1 to {SALT_BYTES_MAX}")
    if len(secrets.stored_key) != key_bytes or len(secrets.server_key) != key_bytes:
        raise bad(f"the stored key and the server key must have {key_bytes} bytes each")


class DescribedUser(NamedTuple):
    """A user with the mechanisms and iterations of its credentials. Nothing of it is a secret."""

    user: str
    credentials: tuple[tuple[int, int], ...]


class UsersPage(NamedTuple):
    """A page of users by name. `is_last`: no other user comes after it."""

    users: tuple[DescribedUser, ...]
    is_last: bool


def describe_users(image: MetadataImage, after: str = "", limit: int = 0) -> UsersPage:
    """Lists the users with credentials, by name, after the name `after`. Looks at each credential of the image."""
    room = limit if 0 < limit <= USERS_PAGE_MAX else USERS_PAGE_MAX
    found: dict[str, list[tuple[int, int]]] = {}
    for each in image.scram_credentials.unordered_values():
        if each.user > after:
            found.setdefault(each.user, []).append((each.mechanism, each.iterations))
    names = sorted(found)
    users = tuple([DescribedUser(name, tuple(sorted(found[name]))) for name in names[:room]])
    return UsersPage(users, len(names) <= room)
