"""The identity of a client's request, by which controllers recognize a repetition.

The payload's hash leaves the request's context out: a repetition may have another deadline and another high watermark.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.wire.convert.errors import BadMessage
from quorum.wire.convert.parts import uuid


def identity_of(request: Any, principal: Callable[[], str]) -> RequestIdentity | None:
    """Returns the identity of a request; None for a request without an id. Only a request with an id needs `principal`.

    Raises:
        BadMessage: the id has not 16 bytes, or the offset is below 0.
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
