"""Who asks, and which of their requests this is.

The payload's hash is taken over the message without its context: a repetition may have another deadline, and comes with
whatever its client has seen meanwhile.
"""

import hashlib
from collections.abc import Callable
from typing import Any, Final

from metadata_log.records import PRINCIPAL_CHARS_MAX
from quorum.controller.request_outcomes import RequestIdentity
from quorum.wire.convert import uuid
from quorum.wire.errors import BadMessage

ANONYMOUS: Final = "anonymous"
_NAMES: Final = ("x509_subject", "x509_common_name", "x509_subject_alternative_name")


def principal_of(context: Any) -> str:
    """Whom the connection's certificate names; `anonymous` without TLS."""
    properties = context.auth_context()
    for name in _NAMES:
        values = properties.get(name)
        if values and values[0]:
            text = values[0].decode("utf-8", "replace")
            return text if len(text) <= PRINCIPAL_CHARS_MAX else "sha256:" + hashlib.sha256(values[0]).hexdigest()
    return ANONYMOUS


def names_of(context: Any) -> frozenset[str]:
    """All hosts that the connection's certificate was issued for; none without TLS."""
    found = context.auth_context().get("x509_subject_alternative_name") or ()
    return frozenset(value.decode("utf-8", "replace") for value in found)


def identity_of(request: Any, principal: Callable[[], str]) -> RequestIdentity | None:
    """What the request's context says of it; None for a request without an id, which need not know who asks either.

    Raises:
        BadMessage: an id that is none, or an offset below 0.
    """
    asked = request.context
    if not asked.request_id:
        return None
    if asked.client_high_watermark < 0:
        raise BadMessage(f"client_high_watermark is {asked.client_high_watermark}; an offset is not negative")
    request_id = uuid(asked.request_id, "request_id")
    return RequestIdentity(request_id, _payload_hash(request), principal(), asked.client_high_watermark)


def _payload_hash(request: Any) -> bytes:
    payload = type(request)()
    payload.CopyFrom(request)
    payload.ClearField("context")
    name: str = request.DESCRIPTOR.full_name
    return hashlib.sha256(name.encode() + b"\x00" + payload.SerializeToString(deterministic=True)).digest()
