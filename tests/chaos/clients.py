"""Clients that do a bit of everything on a few topics, and note what they know about each call.

Half of them use production's `AdminClient` as it is: it sends a change again when the answer is missing, under the same request
id, so the change must take effect once however often it was sent. The others ask once, and know less more often. One in four only
reads: it is not held up where nothing is committed any more, and would see what a leader says that is none any more.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from quorum_rpc.v1 import admin_pb2

from clients.calls import Calls
from clients.methods import method_of
from metaquorum import TOPIC_RESOURCE, AdminClient, AdminError, ErrorCode, Unanswered
from service_kit.rpc.api_methods import changes_nothing
from tests.chaos.judge.history import Kind, Operation, Outcome, State

R = TypeVar("R")

REGISTER: Final = "retention.ms"
KEYS: Final = ("alpha", "beta", "gamma", "delta", "epsilon")
_WEIGHTS: Final = {Kind.SET: 40, Kind.READ: 40, Kind.CREATE: 14, Kind.DELETE: 6}


class Answer(NamedTuple):
    """The outcome of a call; see `Operation`."""

    outcome: Outcome
    offset: int | None = None
    seen: State = None
    why: str = ""


class AsksOnce(Calls):
    """A client that asks once for a change: whatever may have happened is said to the caller."""

    async def call(self, request: Any, response_type: type[R], *, repeatable: bool = True) -> R:
        is_read = changes_nothing(method_of(request).name, request)
        return await super().call(request, response_type, repeatable=repeatable and is_read)


class SingleAttempts(AsksOnce, AdminClient):
    """An AdminClient that asks once for a change."""


class Clients:
    """Several clients, one history. `connect(number, dice)` makes a client's connection; each makes a new one now and then."""

    def __init__(
        self, connect: Callable[[int, random.Random], AdminClient], seed: int, count: int, pause_s: float
    ) -> None:
        self.history: list[Operation] = []
        self.oddities: list[str] = []
        """Errors that no client should ever get."""
        self._connect = connect
        self._seed = seed
        self._count = count
        self._pause_s = pause_s
        self._numbers = itertools.count(1)

    async def run(self, until: asyncio.Event) -> None:
        """All clients at work until the event is set; then each ends what it has begun."""
        async with asyncio.TaskGroup() as tasks:
            for client in range(1, self._count + 1):
                tasks.create_task(self._one(client, until))

    async def _one(self, client: int, until: asyncio.Event) -> None:
        dice = random.Random(f"{self._seed} client {client}")
        kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
        while not until.is_set():
            async with self._connect(client, dice) as admin:
                for _ in range(dice.randint(5, 100)):
                    (kind,) = (Kind.READ,) if client % 4 == 3 else dice.choices(kinds, weights)
                    done = await self.operate(admin, client, kind, dice.choice(KEYS), dice)
                    await asyncio.sleep(dice.random() * 2 * self._pause_s)
                    if done.outcome is Outcome.UNKNOWN or until.is_set():
                        break  # whom it asked does not answer: it looks for somebody else

    async def operate(self, admin: AdminClient, client: int, kind: Kind, key: str, dice: random.Random) -> Operation:
        """One call, and its line in the history."""
        number = next(self._numbers)
        called_ns = time.monotonic_ns()
        try:
            answer = await _call(admin, kind, key, number, dice)
        except Unanswered as e:
            answer = Answer(Outcome.UNKNOWN, why=f"{e.code.name}: {e.message}")
        except AdminError as e:
            answer = Answer(Outcome.FAILED, why=f"{e.code.name}: {e.message}")
            if e.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                self.oddities.append(f"#{number} {kind} {key}: {answer.why}")
        value = answer.seen if kind is Kind.READ else None if kind is Kind.DELETE else number
        operation = Operation(
            number, client, key, kind, value, answer.outcome, called_ns, time.monotonic_ns(), answer.offset, answer.why
        )
        self.history.append(operation)
        return operation


async def _call(admin: AdminClient, kind: Kind, key: str, number: int, dice: random.Random) -> Answer:
    """Asks for one thing.

    Raises:
        AdminError: no answer that tells anything of the topic.
    """
    match kind:
        case Kind.CREATE:
            register = admin_pb2.ConfigEntry(key=REGISTER, value=str(number))
            copies = dice.choice([1, 2])
            topic = admin_pb2.NewTopic(name=key, partitions=1, replication_factor=copies, configs=[register])
            created = await admin.create_topics([topic])
            return _of(created.results[0].error, created.offset)
        case Kind.SET:
            operation = admin_pb2.ConfigOperation(kind=admin_pb2.ConfigOperation.SET, key=REGISTER, value=str(number))
            resource = admin_pb2.ConfigResource(resource_type=TOPIC_RESOURCE, name=key)
            altered = await admin.alter_configs([admin_pb2.ConfigAlteration(resource=resource, operations=[operation])])
            return _of(altered.results[0].error, altered.offset)
        case Kind.DELETE:
            deleted = await admin.delete_topics([key])
            return _of(deleted.results[0].error, deleted.offset)
        case Kind.READ if dice.random() < 0.5:
            topics = await admin.describe_topics([key])
            return _seen(topics.topics[0], topics.as_of_offset)
        case Kind.READ:
            configs = await admin.describe_configs([admin_pb2.ConfigResource(resource_type=TOPIC_RESOURCE, name=key)])
            return _seen(configs.resources[0], configs.as_of_offset)


def _of(error: Any, offset: int) -> Answer:
    """The outcome that one result of a change tells."""
    match error.code:
        case ErrorCode.NONE:
            return Answer(Outcome.DONE, offset)
        case ErrorCode.TOPIC_ALREADY_EXISTS:
            return Answer(Outcome.EXISTS, offset)
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return Answer(Outcome.MISSING, offset)
        case _:
            raise AdminError.of(error)


def _seen(described: Any, as_of: int) -> Answer:
    """The value of the topic that a read tells."""
    if described.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Answer(Outcome.DONE, as_of, None)
    if described.error.code:
        raise AdminError.of(described.error)
    return Answer(Outcome.DONE, as_of, int(next(each.value for each in described.configs if each.key == REGISTER)))
