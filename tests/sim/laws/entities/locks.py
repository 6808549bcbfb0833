"""The laws of locks (E5): tokens grow, no two holders have the same token, and at most one holder is safe.

A holder is *safe* while it trusts the lease of the session that its entity belongs to. Another holder may not be safe: then a
guarded resource refuses its token as soon as the resource has seen a greater one.

Example: client e0 holds the lock "m" under the token 40, and sleeps. Its session ends, and e1 gets the lock under the token 60.

    1. e0 wakes, and still believes that it holds the lock. Its lease is over, so it is not safe, and the law holds.
    2. If e1 had got the token 40 again, a resource could not tell the two holders apart.
"""

from typing import TYPE_CHECKING

from metadata_log.format.ids import Offset
from tests.sim.coverage import Coverage
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.entities.sessions import SimSession


class LockLaws:
    """Checks each client that begins to hold a lock, and each lease that is renewed."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._holders: dict[str, dict[str, tuple[SimSession, Offset]]] = {}
        """By lock and holder: the session, and the token."""
        self._newest: dict[str, tuple[Offset, str]] = {}
        """By lock: the greatest token of a safe holder, and the holder's session."""

    def holds(self, lock: str, client: str, session: "SimSession", token: Offset) -> None:
        """Called when a client begins to believe that it holds a lock."""
        self._coverage["lock held"] += 1
        self._holders.setdefault(lock, {})[client] = session, token
        if not session.trusted_for_ms() > 0:
            return
        newest, who = self._newest.get(lock, (-1, ""))
        again = token == newest and who == session.name
        text = f"{session.name} holds {lock} under the token {token}; {who} had {newest}"
        hold(token > newest or again, "E5 TokensGrow", text)
        self._newest[lock] = token, session.name
        self.renewed()

    def ended(self, lock: str, client: str) -> None:
        """Called when a client stops to believe that it holds a lock."""
        self._holders.get(lock, {}).pop(client, None)

    def renewed(self) -> None:
        """Called after a lease was renewed."""
        for lock, holders in self._holders.items():
            safe = [client for client, (session, _) in holders.items() if session.trusted_for_ms() > 0]
            hold(len(safe) <= 1, "E5 OneHolder", f"{lock} is held by {safe}, and all of them are safe")
