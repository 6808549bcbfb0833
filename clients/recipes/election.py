"""Election: many candidates, one leader at a time.

    async with client.session("controller a") as session:
        election = Election(session, "scheduler", b"a:7000")
        await election.campaign()
        ...                                     # leads: election.token
        await election.resign()

Clients that are no candidates ask `leader_of` or follow `observe_leaders`. The promises are those of `clients.recipes.lock`: each
leader's token is greater than those of all leaders before. A leader that was deposed while it slept still believes to lead:

    1. Candidate a leads under the token (0, 1,200). Its session ends during a long pause, and candidate b leads under (0, 1,310).
    2. Candidate a goes on, and assigns job 7 by `election.transact`. Its place is gone, so nothing is done: NotHeld.
    3. A worker that gets orders with tokens, and has seen (0, 1,310), refuses the order with (0, 1,200).
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from clients.entities.client import EntityClient
from clients.entities.core.transactions import Condition, Operation, Transacted
from clients.entities.core.values import Entity, Token
from clients.entities.errors import NotHeld
from clients.entities.session import Session
from clients.recipes.queue_place import QueuePlace, checked_name, is_place, places

KIND: Final = "election"


class Leader(NamedTuple):
    """The leader, as another client sees it."""

    value: bytes
    """What the leader says about itself, for example its address."""
    token: Token
    """The leader's token, or one between it and the next leader's: the generation is that of the reading."""


class Election:
    """One candidate."""

    def __init__(self, session: Session, name: str, value: bytes = b"", *, kind: str = KIND) -> None:
        """`value`: what the leader says about itself.

        Raises:
            ValueError: the name is empty, or has a slash at an end.
        """
        self.name = checked_name(name)
        self._session = session
        self._kind = kind
        self._value = value
        self._place: QueuePlace | None = None
        self._leads = False

    async def campaign(self) -> Token:
        """Waits until this candidate leads; returns the fencing token. A caller that is cancelled is no candidate any more.

        Raises:
            SessionLost: the session has ended.
            NotHeld: somebody has deleted the candidacy; campaign again.
        """
        if self._place is not None and self._place.is_gone:
            await self.resign()
        assert self._place is None, f"a candidate for {self.name} already: resign first"
        place = self._place = QueuePlace(self._session, self._kind, self.name, self._value)
        try:
            await place.enter()
            await place.wait_first()
        except BaseException:
            await place.give_up()
            self._place = None
            raise
        self._leads = True
        return self.token

    async def resign(self) -> None:
        """Gives the leadership or the candidacy up. Raises AdminError if the controllers may not know it: resign again."""
        self._leads = False
        if self._place is not None:
            await self._place.leave()
            self._place = None

    async def proclaim(self, value: bytes) -> None:
        """Changes what the leader says about itself. Raises NotHeld if it does not lead any more."""
        await self._led_place().put(value)
        self._value = value

    @property
    def is_leader(self) -> bool:
        """True if this candidate was elected, its session is safe at this moment, and no deletion of the candidacy is known.
        `transact` and `wait_lost` notice a deletion."""
        return self._leads and self._place is not None and not self._place.is_gone and self._session.is_safe()

    async def wait_lost(self) -> None:
        """Returns when this candidate does not lead: its session has ended, an operator has deleted its candidacy, or it has
        resigned. It watches only while somebody waits, and returns at once for a candidate that was not elected."""
        if self._place is not None and self._leads:
            await self._place.wait_gone()

    @property
    def token(self) -> Token:
        """The fencing token. Raises NotHeld if the candidate does not lead."""
        token = self._led_place().token
        assert token is not None
        return token

    @property
    def condition(self) -> Condition:
        """Holds for as long as this candidate leads, until the next `proclaim`. Raises NotHeld if it does not lead."""
        return self._led_place().condition

    async def transact(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Transacted:
        """Does a transaction on condition that this candidate still leads.

        Raises:
            NotHeld: it does not lead any more, so nothing was done. It is no candidate, either: campaign again.
        """
        return await self._led_place().transact(conditions, operations)

    async def leader(self) -> Leader | None:
        """Returns who leads now: another candidate, this one, or nobody."""
        return await leader_of(self._session.client, self.name, kind=self._kind)

    def observe(self) -> AsyncIterator[Leader | None]:
        """Yields the leader, and then each new one: see `observe_leaders`."""
        return observe_leaders(self._session.client, self.name, kind=self._kind)

    def _led_place(self) -> QueuePlace:
        if self._place is None or not self._leads:
            raise NotHeld(f"this candidate does not lead {self.name}: campaign first")
        if self._place.is_gone:
            raise self._place.gone("campaign again")
        return self._place


async def leader_of(client: EntityClient, name: str, *, kind: str = KIND) -> Leader | None:
    """Returns the leader of an election, or None if there is no candidate."""
    queue = await places(client, kind, checked_name(name), with_values=True)
    return _leader(queue)


async def observe_leaders(client: EntityClient, name: str, *, kind: str = KIND) -> AsyncIterator[Leader | None]:
    """Yields the leader, and then each new leader or each new value of it. None: nobody leads. Leaders of a short time may be
    left out if this client is slow."""
    name, shown, is_first = checked_name(name), None, True
    async with client.live(kind, f"{name}/") as candidates:
        while True:
            queue = [each for each in candidates.values() if is_place(name, each.name)]
            leader = _leader(sorted(queue, key=lambda each: each.created))
            if not is_first and leader == shown:
                await candidates.changed()
                continue
            shown, is_first = leader, False
            yield leader


def _leader(queue: list[Entity]) -> Leader | None:
    return Leader(queue[0].value, Token(queue[0].generation, queue[0].created)) if queue else None
