"""Operators: clients that change what a cluster's administrator changes, and note each answer with its claims.

All operators work on the same two topics and on the same brokers: the committed log tells the order of their changes. Now and
then one operator ends all modes and reassignments, and lowers the features. The cluster stays at the first level for a moment.
Meanwhile the other operators begin nothing that needs level 2, and the clients of entities rest. And now and then one operator
makes partitions lose their leader, so that an unclean election is needed.

Operator 1 asks controllers, once for each call. Operator 2 asks controllers, and repeats a call without an answer. Operator 3
asks brokers, repeats, and reads the images of the brokers.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from metadata_log.format.ids import NodeId
from metadata_log.format.records import ELR_VERSION, METADATA_VERSION
from metaquorum import TOPIC_RESOURCE, AdminClient, AdminError, ErrorCode
from quorum.controller.partitions.election_rules import UNCLEAN_KEY
from tests.chaos.judge.history import Outcome
from tests.chaos.operators import requests
from tests.chaos.operators.calls import Ask, OperatorCall, noted

DESCENT_CHANCE: Final = 0.004
"""How often an operator lowers the features rather than doing something else."""
STRANDING_CHANCE: Final = 0.01
"""How often an operator makes a topic's partitions lose their leader."""
CAUGHT_UP_S: Final = 1.0
"""How long an operator waits for brokers that copy, or come back."""
AT_LEVEL_1_S: Final = 0.5
"""How long the cluster stays at the first level."""
ENDS_MODES: Final = (requests.undrain_one, requests.unfence_one)
NEEDS_LEVEL_2: Final = frozenset(
    (
        requests.reassign,
        requests.drain,
        requests.fence,
        requests.raise_level,
        requests.set_elr,
        requests.elect_uncleanly,
    )
)
"""The kinds that rest while an operator wants the features down."""

Connect = Callable[[int, random.Random], AdminClient]


class Operators:
    """Several operators, one list of calls. `connect(number, dice)` makes an operator's connection."""

    def __init__(
        self,
        connect: Connect,
        seed: int,
        count: int,
        brokers: Sequence[NodeId],
        pause_s: float,
        resting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """`resting()`: in this block no client uses entities, which need level 3."""
        self.calls: list[OperatorCall] = []
        self.oddities: list[str] = []
        """Errors that no operator should ever get."""
        self._connect = connect
        self._seed = seed
        self._count = count
        self._brokers = brokers
        self._pause_s = pause_s
        self._resting = resting
        self._numbers = itertools.count(1)
        self._is_descending = False

    async def run(self, until: asyncio.Event) -> None:
        """All operators at work until the event is set; then each ends what it has begun."""
        async with asyncio.TaskGroup() as tasks:
            for operator in range(1, self._count + 1):
                tasks.create_task(self._one(operator, until))

    async def _one(self, operator: int, until: asyncio.Event) -> None:
        dice = random.Random(f"{self._seed} operator {operator}")
        while not until.is_set():
            async with self._connect(operator, dice) as admin:
                for _ in range(dice.randint(5, 50)):
                    done = await self._next(admin, operator, dice)
                    await asyncio.sleep(dice.random() * 2 * self._pause_s)
                    if done.outcome is Outcome.UNKNOWN or until.is_set():
                        break  # the node that it asks does not answer

    async def _next(self, admin: AdminClient, operator: int, dice: random.Random) -> OperatorCall:
        if not self._is_descending and dice.random() < DESCENT_CHANCE:
            return await self._descend(admin, operator)
        if not self._is_descending and dice.random() < STRANDING_CHANCE:
            return await self._strand(admin, operator, dice.choice(requests.TOPICS))
        resting = NEEDS_LEVEL_2 if self._is_descending else frozenset()
        kinds = [each for each in requests.KINDS if each not in resting]
        (make,) = dice.choices(kinds, [requests.KINDS[each] for each in kinds])
        done = await self.call(admin, operator, make(dice, self._brokers))
        is_missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name in done.why
        if is_missing and make not in (requests.delete_large, requests.describe_topic):
            topic = dice.choice(requests.TOPICS)
            return await self.call(admin, operator, requests.create(topic, requests.PARTITIONS, requests.REPLICAS))
        return done

    async def _descend(self, admin: AdminClient, operator: int) -> OperatorCall:
        """Takes away what needs level 2, lowers the features, and raises metadata.version again later."""
        self._is_descending = True
        try:
            async with self._resting():
                return await self._lower(admin, operator)
        finally:
            self._is_descending = False

    async def _lower(self, admin: AdminClient, operator: int) -> OperatorCall:
        for topic in requests.TOPICS:
            await self.call(admin, operator, requests.cancel_on(topic))
        for end_mode, broker_id in itertools.product(ENDS_MODES, self._brokers):
            await self.call(admin, operator, end_mode(broker_id))
        await self.call(admin, operator, requests.set_level(ELR_VERSION, 0, downgrade=True))
        lowered = await self.call(admin, operator, requests.set_level(METADATA_VERSION, 1, downgrade=True))
        if lowered.is_done:
            await asyncio.sleep(AT_LEVEL_1_S)
        return await self.call(admin, operator, requests.set_level(METADATA_VERSION, 3, downgrade=False))

    async def _strand(self, admin: AdminClient, operator: int, topic: str) -> OperatorCall:
        """The first of two replicas falls out of the ISR, the second is fenced alone in it, and the first one comes back."""
        first, second = requests.moded(self._brokers)
        await self.call(admin, operator, requests.set_config(TOPIC_RESOURCE, topic, UNCLEAN_KEY, "false"))
        await self.call(admin, operator, requests.unfence_one(first))
        await self.call(admin, operator, requests.move_to(topic, (first, second)))
        await asyncio.sleep(CAUGHT_UP_S)
        await self.call(admin, operator, requests.fence_one(first))
        await self.call(admin, operator, requests.fence_one(second))
        await self.call(admin, operator, requests.unfence_one(first))
        await asyncio.sleep(CAUGHT_UP_S)
        done = await self.call(admin, operator, requests.elect_uncleanly_in(topic))
        await self.call(admin, operator, requests.unfence_one(second))
        return done

    async def call(self, admin: AdminClient, operator: int, ask: Ask) -> OperatorCall:
        """Makes one call, and notes it."""
        answering = admin.call(ask.request, ask.response_type)
        done, answer = await noted(next(self._numbers), f"operator {operator}", ask, answering)
        if isinstance(answer, AdminError) and answer.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.oddities.append(f"{done.caller}, {ask.text}: {done.why}")
        self.calls.append(done)
        return done
