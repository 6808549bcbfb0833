"""Queries of the tree without threads: the whole answer at the first call, for nodes without an event loop."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from metadata_log.format.errors import ErrorCode, LogFormatError
from metadata_log.tree.queries import BatchChange, History, QueryRefused, Row, Seen, answer
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.tree_question import TreeQuestion
from snapshots.history.wanted import OutOfReach

T = TypeVar("T")


class InlineTree(Generic[T]):
    """Implements `TreeRows`. `changes`: the batches of a history, asked for when they are needed."""

    def __init__(
        self,
        asked: TreeQuestion,
        encode: Callable[[Row], tuple[T, int]],
        changes: Callable[[History, int], Iterable[BatchChange]],
    ) -> None:
        self._asked = asked
        self._encode = encode
        self._changes = changes
        self._is_told = False
        self.is_closed = False

    async def portion(self) -> list[T]:
        if self._is_told:
            return []
        self._is_told = True
        query, image, before, end = self._asked
        try:
            changes = self._changes(query, end) if isinstance(query, History) else ()
            return [self._encode(row)[0] for row in answer(query, Seen(image, before, changes))]
        except QueryRefused as e:
            raise Refused(ErrorCode.RESOURCE_NOT_FOUND if e.is_missing else ErrorCode.INVALID_REQUEST, str(e)) from e
        except OutOfReach as e:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, str(e)) from e
        except LogFormatError as e:
            raise Refused(ErrorCode.STORAGE_ERROR, str(e)) from e

    async def close(self) -> None:
        self.is_closed = True
