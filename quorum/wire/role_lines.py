"""One line in the log for each change of a controller's role, with its reason.

A node that has lost its majority changes its role a few times a second, for as long as that lasts: it gives up on the leader
that it knew, asks who would vote for it, goes back, and begins again. That is one piece of news and 230,000 changes a day. So a
change that was logged already since the node last had a leader, in the same epoch, is counted and not logged again. The first
repetition writes a line of its own, so that the log does not end with the role that the node has left again; after that a line
a minute says how many repetitions there were.

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
    """Told of each change, in order."""

    def __init__(self, logs: Logs | None = None) -> None:
        """`logs`: where role and epoch are to stand on every line from then on."""
        self._logs = logs
        self._epoch = -1
        self._told: set[object] = set()
        """The changes that were logged since the node last had a leader, in this epoch."""
        self._repeated = 0
        self._line_ms = 0
        self._repeats = False
        """Whether the log's newest line says that the node goes round and round."""

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
        """How many changes were counted since the last line, which is written now."""
        repeated, self._repeated, self._line_ms = self._repeated, 0, now_ms
        return repeated
