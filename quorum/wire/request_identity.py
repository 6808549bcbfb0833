"""Which of its client's requests this is.

The payload's hash is taken over the message without its context: a repetition may have another deadline, and comes with
whatever its client has seen meanwhile.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.wire.convert.convert_raft import uuid
from quorum.wire.convert.errors import BadMessage


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
