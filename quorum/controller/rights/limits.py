"""The limits of requests and of the cluster. A request that would break one of them is refused as a whole.

Example: the cluster has 9,999 of 10,000 ACLs. A request that creates two ACLs gets POLICY_VIOLATION, and creates neither.
"""

from metadata_log.format.errors import ErrorCode
from quorum.controller.protocol.decision import ControllerError


def check_request(count: int, limit: int, what: str) -> None:
    """Raises ControllerError(POLICY_VIOLATION) if one request has more than `limit` of `what`, for example of filters."""
    if count > limit:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"{count:,} {what} in one request; at most {limit:,} are allowed; nothing was done; send several requests",
        )


def check_cluster(have: int, more: int, limit: int, what: str, advice: str) -> None:
    """Raises ControllerError(POLICY_VIOLATION) if the cluster would have more than `limit` of `what`. No removal is refused."""
    if more > 0 and have + more > limit:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"the cluster has {have:,} {what} and may have {limit:,}; nothing was done; {advice}",
        )
