"""The doubt that an answer leaves about an earlier attempt of the same request, whose answer is missing.

1. A client sends CreateTopics for orders. The attempt is lost on its way.
2. The client repeats the request. The controller refuses it, because too many replicas were asked for.
3. A controller with more brokers may still get the lost attempt, and create orders. So the refusal is no proof.
"""

from typing import Any

from clients.errors import AdminError
from metadata_log.format.errors import ErrorCode


def doubt_of(request: Any, response: Any) -> AdminError | None:
    """Returns why this answer leaves the outcome of an earlier, lost attempt open; None where the outcome is clear.

    Either every item was refused. Controllers remember only changes that were made, so the lost attempt may still arrive, and be
    accepted then. Or the lost attempt was made, and its results were too long to be remembered.
    """
    if not request.context.request_id or getattr(request, "validate_only", False) or not hasattr(response, "results"):
        return None
    if not response.results:
        if getattr(response, "failed", None) is not None and not response.succeeded:
            return _of_condition(request, response)
        text = f"the change was made below offset {response.offset}; the controllers have forgotten the result of each part"
        return AdminError(ErrorCode.REQUEST_TIMED_OUT, text)
    # A request that is done as a whole or not at all has results without errors: the answer itself is the proof.
    errors = [result.error for result in response.results if hasattr(result, "error")]
    return AdminError.of(errors[0]) if errors and all(error.code for error in errors) else None


def _of_condition(request: Any, response: Any) -> AdminError | None:
    """Returns why the lost attempt of a transaction may still be made although this attempt was not.

    1. A client creates the lock `a` on condition that `a` does not exist. The answer is lost.
    2. The client repeats the request, and the lock of another client is in the way. That lock is deleted a moment later.
    3. The lost attempt arrives now, and creates the lock. On condition of a version that `a` has passed, it could do nothing.
    """
    condition, entity = request.conditions[response.failed.index], response.failed.entity
    is_past = condition.WhichOneof("test") == "version" and condition.version < request.context.client_high_watermark
    if is_past and (not response.failed.HasField("entity") or entity.version > condition.version):
        return None
    return AdminError(ErrorCode.INVALID_UPDATE_VERSION, "a condition did not hold at the next attempt")
