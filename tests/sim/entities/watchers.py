"""A simulated client that watches: it goes on at any node, from the position that it has seen.

The messages of a stream are taken in order. If one is lost, the client hears nothing more. It forgets the part of a batch that it
has got, and goes on elsewhere. Example: w0 has two of three messages of the batch [40, 48), and the third is lost. Another node
sends what follows 40, and w0 gets all three again. It has seen the batch once.
"""

import random
from typing import TYPE_CHECKING

from tests.sim.entities.watching import Message, SimNode, Stream, StreamEnded
from watches.core.changes import Change
from watches.core.filters import EVERYTHING, EntityFilter, Filter, filter_of
from watches.core.position import Position, ResetReason

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

LOOK_EVERY_MS = 40.0
PATIENCE_MS = 900.0
CUT_EVERY_MS = 2_500.0
OTHER_POSITION_CHANCE = 0.05
"""How often the position is one of another history."""
FORGET_CHANCE = 0.05
"""How often the client begins anew, without a position."""


def some_wish(dice: random.Random) -> Filter:
    """What a client names: often entities, sometimes everything, and some things twice."""
    kind = dice.choice(("reg", "eph", "ttl", "lock", "plain"))
    return dice.choice(
        (
            EVERYTHING,
            Filter((EntityFilter(kind),)),
            Filter((EntityFilter("lock"), EntityFilter("lock", dice.choice(("m/", "n/"))), EntityFilter("ttl"))),
            Filter((EntityFilter("", "1"), EntityFilter("", "1")), sessions=True),
            Filter(all_topics=True, all_brokers=True),
            Filter((EntityFilter(), EntityFilter("reg")), brokers=(101,)),
        )
    )


class SimWatcher:
    """One watch, over any number of streams."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self._cluster = cluster
        self.name = name
        self._dice = random.Random(f"{cluster.seed} {name}")
        self.wish = some_wish(self._dice)
        self._shown = filter_of(**self.wish._asdict())
        self.position: Position | None = None
        """Everything below is seen."""
        self._stream = 0
        self._next = 0
        self._late: dict[int, Message] = {}
        """The messages of the stream that have overtaken others, by their place."""
        self._events: list[Change] = []
        self._heard_ms = 0.0
        self._cut_ms = 0.0
        self._is_other = False
        """The stream was opened at a position of another history."""

    def act(self) -> None:
        """Opens another stream, if the last one says nothing, or now and then."""
        now_ms = self._cluster.now_ms
        if now_ms - self._heard_ms > PATIENCE_MS or now_ms > self._cut_ms:
            self._open()

    def _open(self) -> None:
        cluster, dice = self._cluster, self._dice
        self._stream += 1
        self._next, self._late, self._events = 0, {}, []
        self._heard_ms = cluster.now_ms
        self._cut_ms = cluster.now_ms + dice.expovariate(1 / CUT_EVERY_MS)
        nodes: list[SimNode] = [*cluster.controllers, *cluster.brokers.values()]
        node, number = dice.choice(nodes), self._stream
        if self.position is not None:
            cluster.coverage["watch goes on elsewhere"] += 1
            if dice.random() < FORGET_CHANCE:
                self.position = None
        since = self.position
        self._is_other = since is not None and dice.random() < OTHER_POSITION_CHANCE
        if self._is_other and since is not None:
            since = since._replace(chain=bytes(32))
        network = cluster.network
        sent = 0

        def send(message: Message) -> None:
            nonlocal sent
            place, sent = sent, sent + 1
            network.carry(node.name, self.name, lambda: self._take(number, place, message, node.name), repeats=False)

        def begin() -> None:
            stream = Stream(node, self._shown, since, send)
            cluster.laws.entities.watches.opened(node, since)
            self._serve(stream, number, node)

        network.carry(self.name, node.name, begin, repeats=False)

    def _serve(self, stream: Stream, number: int, node: SimNode) -> None:
        """The node looks after the stream, as long as the client has no other one."""
        if number != self._stream:
            return
        try:
            stream.look()
        except StreamEnded:
            return
        self._cluster.schedule(self._dice.uniform(0.5, 1.5) * LOOK_EVERY_MS, lambda: self._serve(stream, number, node))

    def _take(self, number: int, place: int, message: Message, who: str) -> None:
        if number != self._stream:
            return
        self._late[place] = message
        while self._next in self._late:
            self._next += 1
            self._heard_ms = self._cluster.now_ms
            self._take_next(self._late.pop(self._next - 1), who)

    def _take_next(self, message: Message, who: str) -> None:
        self._events += message.events
        if message.position is None:
            self._cluster.coverage["part of a watched batch"] += 1
            return
        events, self._events = self._events, []
        laws, coverage = self._cluster.laws.entities.watches, self._cluster.coverage
        if message.reset is not None:
            laws.reset(f"{self.name} at {who}", self.wish, message.position, events, message.reset)
            coverage["watch reset"] += message.reset is not ResetReason.NO_POSITION
            coverage["watch begins with the state"] += message.reset is ResetReason.NO_POSITION
        else:
            laws.continued(f"{self.name} at {who}", self.wish, self.position, message.position, events)
            coverage["watch shows changes"] += bool(events)
        laws.not_of_another_history(self.name, self._is_other, message.reset)
        self._is_other = False
        self.position = message.position
