"""Config: typed settings that change while the program runs, the same for all programs.

    @dataclass(frozen=True)
    class Settings:
        batch_size: int = 100
        verbose: bool = False

    async with Config(client, "indexer", Settings) as config:
        config.current.batch_size
        await config.set(batch_size=200)
        async for settings in config.changes():
            ...

The fields of the dataclass are the keys, with their types (bool, int, float, str) and defaults. A `__post_init__` that raises
ValueError validates. Each key is an entity with a JSON value; keys that were never set have their default.

It promises: `set` writes all keys that it names or none, and only if all settings together are valid then; all programs see the
same settings in the same order. It does not promise that all programs use a new setting at the same time. `token` says how new
it is:

    1. The operator sets `batch_size` to 200, under the token (0, 1,300). Program a has seen it, program b has not yet.
    2. Program a sends b a request with the token (0, 1,300). Program b waits for `reach(token)`, and then has 200, too.

A value that this program cannot use (another program wrote it, with another dataclass) changes nothing here: the last good value
stays, and `problems` names the key.

The setting `batch_size` of the name `indexer` is the entity `indexer/batch_size` of the kind `config`; its value is JSON: `200`.

The settings follow by themselves inside of the block. If the cluster refuses their watch, `current` raises the error, and so does
the end of the block: old settings never pass for live ones.
"""

import asyncio
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Generic, Self, TypeVar, get_type_hints

from clients.entities.client import EntityClient
from clients.entities.core.transactions import Condition, DeleteEntity, Operation, PutEntity, absent, version_is
from clients.entities.core.values import Entity, Token
from clients.entities.errors import ConditionFailed
from clients.recipes.queue_place import checked_name

S = TypeVar("S")

logger: Final = logging.getLogger(__name__)

KIND: Final = "config"
ATTEMPTS: Final = 10
"""How often `set` begins anew when other programs change the settings at the same time."""
TYPES: Final = (bool, int, float, str)


class Config(Generic[S]):
    """The live settings of one name."""

    def __init__(self, client: EntityClient, name: str, schema: type[S], *, kind: str = KIND) -> None:
        """`schema`: a frozen dataclass; each field has a default, and one of the types bool, int, float, str.

        Raises:
            ValueError: the schema is none, or the name is empty or has a slash at an end.
        """
        self.name = checked_name(name)
        self._schema: Any = schema
        self._types = _types_of(schema)
        self._client = client
        self._kind = kind
        self._view = client.live(kind, f"{name}/")
        self._good: dict[str, Any] = {}
        self._current: S = schema()
        self._problems: dict[str, str] = {}
        self._token = Token(0, -1)
        self._stored: frozenset[str] = frozenset()
        """The keys that had a value at the last look."""
        self._follower: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._view.__aenter__()
        try:
            self._look()
        except BaseException:
            await self._view.close()
            raise
        self._follower = asyncio.create_task(self._follow(), name=f"settings {self.name}")
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        assert self._follower is not None
        self._follower.cancel()
        await asyncio.gather(self._follower, return_exceptions=True)
        await self._view.close()
        if kind is None:
            self._check_follower()

    async def _follow(self) -> None:
        try:
            while True:
                self._look()
                await self._view.changed()
        except Exception as e:
            logger.error("the settings %s do not follow any more: %s", self.name, e)
            raise

    def _check_follower(self) -> None:
        """Raises the error because of which the settings do not follow any more. The follower hears of it a moment later."""
        if self._follower is not None and self._follower.done() and not self._follower.cancelled():
            self._follower.result()
        self._view.check()

    @property
    def current(self) -> S:
        """The settings now, or at the end of the block; immutable. Raises AdminError if they do not follow any more."""
        self._check_follower()
        return self._current

    @property
    def problems(self) -> dict[str, str]:
        """Why a stored value is not used, by key; "" stands for values that are not valid together. Raises as `current`."""
        self._check_follower()
        return self._problems

    @property
    def token(self) -> Token:
        """How new the settings are: not older than their last write, and than the last `unset`. Raises as `current`."""
        self._check_follower()
        return self._token

    async def changes(self) -> AsyncIterator[S]:
        """Yields the present settings, and then all settings that differ from those before. A slow caller gets the newest
        ones."""
        shown = self._look()
        yield shown
        while True:
            if self._look() == shown:
                await self._view.changed()
                continue
            shown = self._current
            yield shown

    async def reach(self, token: Token) -> S:
        """Returns the settings as soon as they contain this write."""
        await self._view.reach(token)
        return self._look()

    async def set(self, **values: Any) -> Token:
        """Sets keys, all or none; returns the token of the last one when `current` has them.

        Raises:
            ValueError: a key is unknown, has a wrong type, or the settings would not be valid. Nothing was done.
            ConditionFailed: other programs change the settings all the time. Nothing was done.
        """
        for key, value in values.items():
            self._check(key, value)
        return await self._write(values, ())

    async def unset(self, *keys: str) -> Token:
        """Gives keys their defaults back; returns a token for `reach`. Raises as `set`."""
        for key in keys:
            self._type(key)
        return await self._write({}, keys)

    async def _write(self, values: dict[str, Any], unset: tuple[str, ...]) -> Token:
        """Writes on condition that no key of the schema has changed since the settings were found valid together."""
        assert values or unset, "no key given"
        last: ConditionFailed | None = None
        for _ in range(ATTEMPTS):
            seen = self._seen()
            stored = {key: entity.value for key, entity in seen.items() if entity is not None and key not in unset}
            self._schema(**(_parsed(stored, self._types)[0] | values))  # raises ValueError
            conditions: list[Condition] = [
                absent(self._kind, self._path(key))
                if entity is None
                else version_is(self._kind, self._path(key), entity.token)
                for key, entity in seen.items()
            ]
            operations: list[Operation] = [
                PutEntity(self._kind, self._path(key), json.dumps(value).encode()) for key, value in values.items()
            ]
            operations += [DeleteEntity(self._kind, self._path(key)) for key in unset]
            try:
                done = await self._client.must_transact(conditions, operations)
            except ConditionFailed as e:
                last = e
                await self._see(e, seen)
                continue
            # The batch ends with the outcome of the request, so its last offset is above the writes, and above all deletions.
            written = [result.version for result in done.results[: len(values)]]
            token = Token(done.generation, max(written or [done.offset - 1, 0]))
            await self.reach(token)
            return token
        assert last is not None
        raise last

    async def _see(self, failed: ConditionFailed, seen: dict[str, Entity | None]) -> None:
        """Returns when the view has the change that was in the way. A value that was written and deleted since leaves no trace in
        the view, so the view has to reach the write itself."""
        if failed.entity is None:
            await self._view.wait_for(lambda: self._seen() != seen)
        else:
            await self._view.reach(failed.entity.token)

    # --- the schema ------------------------------------------------------------------------------------------------

    def _look(self) -> S:
        """Takes the present values of the view."""
        found = {key: entity for key in self._types if (entity := self._view.get(self._path(key))) is not None}
        good, problems = _parsed({key: entity.value for key, entity in found.items()}, self._types)
        kept = {key: self._good[key] for key in problems if key in self._good}
        try:
            self._current = self._schema(**good, **kept)
            self._good = good | kept
        except ValueError as e:
            problems[""] = str(e)
        self._problems = problems
        newest = [self._token, *(entity.token for entity in found.values())]
        if self._stored - found.keys():  # the view does not tell at which offset a value was deleted
            newest.append(self._view.position.token._replace(offset=self._view.position.offset - 1))
        self._token, self._stored = max(newest), frozenset(found)
        return self._current

    def _seen(self) -> dict[str, Entity | None]:
        return {key: self._view.get(self._path(key)) for key in self._types}

    def _path(self, key: str) -> str:
        return f"{self.name}/{key}"

    def _type(self, key: str) -> type:
        if key not in self._types:
            raise ValueError(f"{self.name} has no setting {key!r}; it has {', '.join(self._types)}; nothing was done")
        return self._types[key]

    def _check(self, key: str, value: object) -> None:
        wanted = self._type(key)
        if not _fits(value, wanted):
            raise ValueError(f"{key} must be a {wanted.__name__}, not {value!r}; nothing was done")


def _types_of(schema: type) -> dict[str, type]:
    if not dataclasses.is_dataclass(schema):
        raise ValueError(f"a dataclass expected, not {schema!r}")
    hints = get_type_hints(schema)
    types = {field.name: hints[field.name] for field in dataclasses.fields(schema)}
    wrong = [name for name, each in types.items() if each not in TYPES]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: a setting has one of the types bool, int, float, str")
    return types


def _fits(value: object, wanted: type) -> bool:
    """True is an int in Python, but no setting of the type int; 1 is a float that JSON has shortened."""
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is wanted


def _parsed(stored: Mapping[str, bytes], types: Mapping[str, type]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the values that fit, and why the others do not."""
    good, problems = dict[str, Any](), dict[str, str]()
    for key, data in stored.items():
        try:
            value = json.loads(data)
        except ValueError:
            problems[key] = "the stored value is no JSON"
            continue
        if _fits(value, types[key]):
            good[key] = float(value) if types[key] is float else value
        else:
            problems[key] = f"the stored value is no {types[key].__name__}"
    return good, problems
