"""One line in the log for each change of a controller's role, with its reason.

A node without a majority changes its role a few times a second: the node gives up its leader, asks for pre-votes, becomes a
follower again, and begins anew. The operator needs one line, and not 230,000 a day. So the node logs each kind of change once
in an epoch, until a leader is found, and counts repetitions. The first repetition is logged, so that the log does not end with
a role that the node has left; after that one line a minute has the count.

    12:00:00  role  was=follower role=prospective  reason="the leader has not answered for the fetch timeout"
    12:00:00  role  was=prospective role=follower  reason="no majority would vote for this node, or ..."
    12:00:02  repeated role changes  repeated=1    reason="the leader has not answered for the fetch timeout"
    12:01:02  repeated role changes  repeated=118  reason=...
"""

from typing import Final

from quorum.core.roles import Transition
from service_kit.process.logs import Logs, get_logger

log = get_logger(__name__)

REPEATED_EVERY_MS: Final = 60_000


class RoleLines:
    """Takes each change of role, in order."""

    def __init__(self, logs: Logs | None = None) -> None:
        """`logs`: every later line of these logs has the current role and epoch."""
        self._logs = logs
        self._epoch = -1
        self._told: set[object] = set()
        """The changes that were logged in this epoch since the node last had a leader."""
        self._repeated = 0
        self._line_ms = 0
        self._repeats = False
        """True while the newest line tells of repetitions."""

    def tell(self, change: Transition) -> None:
        """Logs `change`, or counts it."""
        if self._logs is not None:
            self._logs.bind(role=change.role.value, epoch=change.epoch)
        if change.had_leader or change.epoch != self._epoch:
            self._told.clear()
            self._epoch = change.epoch
        what = (change.left, change.role, change.why, change.leader_id)
        if what in self._told:
            self._repeated += 1
            if not self._repeats or change.at_ms - self._line_ms >= REPEATED_EVERY_MS:
                self._repeats = True
                log.info("repeated role changes", reason=change.why.value, repeated=self._taken(change.at_ms))
            return
        self._told.add(what)
        self._repeats = False
        repeated = self._taken(change.at_ms)
        log.info(
            "role",
            role=change.role.value,
            epoch=change.epoch,
            was=change.left.value,
            leader_id=change.leader_id,
            reason=change.why.value,
            log_end_offset=change.log_end_offset,
            **({"repeated_before": repeated} if repeated else {}),
        )

    def _taken(self, now_ms: int) -> int:
        """Returns the repetitions since the last line, and begins to count anew."""
        repeated, self._repeated, self._line_ms = self._repeated, 0, now_ms
        return repeated
