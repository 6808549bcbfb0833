"""Barrier: N parties begin together, and end together (ZooKeeper's double barrier).

    async with client.session("party a") as session:
        barrier = Barrier(session, "nightly", parties=3)
        round_ = await barrier.enter()      # returns when three have entered
        ...
        await barrier.leave()               # returns when all of this round have left, or have died

It promises: `enter` returns only after `parties` clients have entered this round, and `leave` only after each party of the
round has left or its session has ended. It does not promise that all parties live when `enter` returns, and a party more than
`parties` that enters in the same moment is of the round, too. The token of a round is greater than those of all rounds before:

    1. Parties a, b and c enter; c dies. Its entity vanishes, so a and b wait on. Party d enters: the first that counts three
       places writes the mark of the round, version 1,400. All three have places below 1,400, so all three go on, under (0,
       1,400).
    2. Party a leaves, and waits for b and d. Party b dies in the round, d leaves: `leave` returns.
    3. Party a enters again at 1,500, above the mark: this place belongs to the next round.
"""

from typing import Final

from clients.entities.core.values import Token
from clients.entities.errors import ConditionFailed
from clients.entities.live_view import LiveView
from clients.entities.session import Session
from clients.recipes.queue_place import QueuePlace, checked_name, is_place

KIND: Final = "barrier"


class Barrier:
    """One party of a barrier."""

    def __init__(self, session: Session, name: str, parties: int, *, kind: str = KIND) -> None:
        """Raises ValueError if the name is empty or has a slash at an end, or `parties` is below 1."""
        if parties < 1:
            raise ValueError(f"a barrier needs at least one party, not {parties}")
        self.name = checked_name(name)
        self.parties = parties
        self._session = session
        self._kind = kind
        self._mark = f"{name}/round"
        self._place: QueuePlace | None = None
        self._round: Token | None = None

    async def enter(self) -> Token:
        """Waits until the round is complete; returns its token. A caller that is cancelled does not take part.

        Raises:
            SessionLost: the session has ended, and this party is not counted any more.
        """
        assert self._place is None, f"this party is inside of the barrier {self.name}: leave first"
        place = self._place = QueuePlace(self._session, self._kind, self.name, b"")
        try:
            async with self._session.client.live(self._kind, f"{self.name}/") as view:
                entered = await place.enter()
                self._round = await self._session.run(self._complete(view, entered))
        except BaseException:
            await place.give_up()
            self._place = None
            raise
        return self._round

    async def _complete(self, view: LiveView, entered: Token) -> Token:
        """Returns the token of the first mark above this party's place, and writes the mark if nobody has."""
        client = self._session.client
        await view.reach(entered)
        while True:
            mark = view.get(self._mark)
            if mark is not None and mark.token > entered:
                return mark.token
            began = -1 if mark is None else mark.version
            if sum(each.created > began for each in view.values() if is_place(self.name, each.name)) < self.parties:
                await view.changed()
                continue
            try:
                if mark is None:
                    return await client.put(self._kind, self._mark, b"", if_absent=True)
                return await client.put(self._kind, self._mark, b"", if_version=mark.token)
            except ConditionFailed:
                await view.wait_for(lambda was=mark: view.get(self._mark) != was)  # type: ignore[misc]

    async def leave(self) -> None:
        """Leaves, and waits until all parties of this round have left.

        Raises:
            SessionLost: the session has ended.
            AdminError: the others may still wait for this party: leave again. Its place vanishes with the session, too.
        """
        began = self._round
        assert began is not None, f"this party is not inside of the barrier {self.name}: enter first"
        if self._place is not None:
            await self._place.leave()
        self._place = self._round = None
        async with self._session.client.live(self._kind, f"{self.name}/") as view:
            await self._session.run(view.wait_for(lambda: self._all_left(view, began)))

    def _all_left(self, view: LiveView, began: Token) -> bool:
        """A view that lags behind the mark does not show all parties yet."""
        places = (each for each in view.values() if is_place(self.name, each.name))
        return view.position.token > began and not any(each.created < began.offset for each in places)
