"""Records of security: ACLs, SCRAM credentials and delegation tokens. This release writes no tokens."""

from typing import NamedTuple

from metadata_log.format.ids import Uuid
from metadata_log.format.records.registry import Secret, record


@record(18)
class AccessControlEntry(NamedTuple):
    """One ACL, with the numbers of `acl_words`. Canonical."""

    entry_id: Uuid
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@record(19)
class RemoveAccessControlEntry(NamedTuple):
    """The ACL was removed."""

    entry_id: Uuid


@record(11)
class UserScramCredential(NamedTuple):
    """The data that checks a user's password without storing the password (RFC 5802). Canonical."""

    user: str
    mechanism: int
    salt: Secret
    stored_key: Secret
    server_key: Secret
    iterations: int


@record(22)
class RemoveUserScramCredential(NamedTuple):
    """The credential was removed."""

    user: str
    mechanism: int


@record(10)
class DelegationToken(NamedTuple):
    """A delegation token was issued or renewed. Canonical."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiration_timestamp_ms: int
    max_timestamp_ms: int


@record(26)
class RemoveDelegationToken(NamedTuple):
    """The token was removed."""

    token_id: str
