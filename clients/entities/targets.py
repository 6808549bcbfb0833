"""The node that a stream asks, and the next one.

1. A client has the addresses c1, c2 and c3; its stream is at c1. Node c1 names c4 as the leader: the stream goes to c4.
2. Node c4 breaks the stream. The client has no address after c4, so it goes on with the list, at c2.
"""

from collections.abc import Sequence


class Targets:
    """Addresses of nodes, and the present one."""

    def __init__(self, endpoints: Sequence[str], first: str | None = None) -> None:
        """`first`: the address to begin with, which need not be in the list."""
        assert endpoints
        self._endpoints = tuple(endpoints)
        self._turn = 0
        self.current = first or self._endpoints[0]

    def go(self, hint: str | None, *, elsewhere: bool) -> str:
        """Moves to `hint`, or, if `elsewhere`, to the next address; returns the present address."""
        if hint is not None:
            self.current = hint
        elif elsewhere:
            self._turn = (self._turn + 1) % len(self._endpoints)
            self.current = self._endpoints[self._turn]
        return self.current
