"""Clients of registers: entities that several clients write, on condition of the version that they have read.

The registers of one group may be written together. A version that a client knows may be old, so many conditions fail. Every
value is written by one transaction only, so a value that is seen tells who wrote it.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Final

from metaquorum import (
    AdminError,
    Condition,
    ConditionFailed,
    DeleteEntity,
    Operation,
    PutEntity,
    Unanswered,
    absent,
    version_is,
)
from tests.chaos.entities.recorder import RecordedClient
from tests.chaos.entities.truce import LOOK_S, Truce

KIND: Final = "register"
GROUPS: Final = (("a/1", "a/2"), ("b/1", "b/2"), ("c/1",))
"""The registers, by group. No transaction writes registers of two groups."""
FORGET_CHANCE: Final = 0.15
"""How often a client keeps an old version instead of the one that it has just heard of."""

Connect = Callable[[int, random.Random], RecordedClient]


class RegisterClients:
    """Several clients of the same registers. `connect(number, dice)` makes a client's connection."""

    def __init__(self, connect: Connect, seed: int, count: int, pause_s: float, truce: Truce) -> None:
        self._connect = connect
        self._seed = seed
        self._count = count
        self._pause_s = pause_s
        self._truce = truce
        self._values = itertools.count(1)

    async def run(self, until: asyncio.Event) -> None:
        """All clients at work until the event is set; then each ends what it has begun."""
        async with asyncio.TaskGroup() as tasks:
            for client in range(1, self._count + 1):
                tasks.create_task(self._one(client, until))

    async def _one(self, client: int, until: asyncio.Event) -> None:
        dice = random.Random(f"{self._seed} register client {client}")
        while not until.is_set():
            if self._truce.is_wanted:
                await asyncio.sleep(LOOK_S)
                continue
            with self._truce.working():
                async with self._connect(client, dice) as connection:
                    await _Worker(connection, dice, self._values).work(self._pause_s, until, self._truce)


class _Worker:
    """One client with one connection, and with the versions that it knows."""

    def __init__(self, connection: RecordedClient, dice: random.Random, values: "itertools.count[int]") -> None:
        self._client = connection
        self._dice = dice
        self._values = values
        self._known: dict[str, int | None] = {}
        """The version of each register as the client knows it, which may be old; None: the register does not exist."""

    async def work(self, pause_s: float, until: asyncio.Event, truce: Truce) -> None:
        for _ in range(self._dice.randint(5, 100)):
            try:
                await self._act(self._dice.choice(GROUPS))
            except Unanswered:
                return  # the node that it asks does not answer: it looks for another one
            except ConditionFailed as e:
                if self._dice.random() >= FORGET_CHANCE:
                    del self._known[e.condition.name]  # it has another version, and only a read tells the value of that
            except AdminError:
                pass  # refused: nobody leads, or the level of the metadata is too low
            await asyncio.sleep(self._dice.random() * 2 * pause_s)
            if until.is_set() or truce.is_wanted:
                return

    async def _act(self, group: Sequence[str]) -> None:
        roll, name = self._dice.random(), self._dice.choice(group)
        if roll < 0.25 or name not in self._known:
            await self._read(group)
        elif roll < 0.40:
            await self._transact([], [self._put(name)])
        elif roll < 0.70:
            await self._transact([self._unchanged(name)], [self._put(name)])
        elif roll < 0.90:
            await self._write_together(group)
        elif roll < 0.95:
            await self._transact([self._unchanged(name)], [DeleteEntity(KIND, name)])
        else:
            await self._transact([], [DeleteEntity(KIND, name)])

    async def _read(self, group: Sequence[str]) -> None:
        """Often of one register, often of all registers of the group at one moment."""
        names = group if self._dice.random() < 0.5 else [self._dice.choice(group)]
        found = await self._client.get_many([(KIND, name) for name in names])
        for name, entity in zip(names, found, strict=True):
            if name not in self._known or self._dice.random() >= FORGET_CHANCE:
                self._known[name] = None if entity is None else entity.version

    async def _write_together(self, group: Sequence[str]) -> None:
        """Conditions on all registers of the group, and a write of each; now and then one of them is deleted."""
        conditions = [self._unchanged(name) for name in group if name in self._known]
        operations: list[Operation] = [self._put(name) for name in group]
        if self._dice.random() < 0.2:
            place = self._dice.randrange(len(operations))
            operations[place] = DeleteEntity(KIND, group[place])
        await self._transact(conditions, operations)

    def _put(self, name: str) -> PutEntity:
        return PutEntity(KIND, name, b"%d" % next(self._values))

    def _unchanged(self, name: str) -> Condition:
        version = self._known[name]
        return absent(KIND, name) if version is None else version_is(KIND, name, version)

    async def _transact(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> None:
        done = await self._client.must_transact(conditions, operations)
        for operation, result in zip(operations, done.results, strict=True):
            assert isinstance(operation, PutEntity | DeleteEntity)
            is_put = isinstance(operation, PutEntity)
            if self._dice.random() >= FORGET_CHANCE:
                self._known[operation.name] = result.version if is_put else None
