"""Bugs of fetching over slow links."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from metadata_log.format.fetch_size import FetchSize, PartialBatch
from metadata_log.format.ids import NodeId, Offset
from quorum.core import follower
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Follower
from tests.sim.mutants.patching import Mutant, patched

_heard_well = follower._heard_well
_init = FetchSize.__init__


def _begin_with_the_largest(self: FetchSize, smallest: int, largest: int, timeout_ms: int) -> None:
    _init(self, largest, largest, timeout_ms)


def _double_after_any_answer(self: FetchSize, content_bytes: int, asked_ms: int, now_ms: int) -> None:
    self._seen_ms = now_ms
    if 5 * (now_ms - asked_ms) <= 2 * self._timeout_ms:
        self.bytes = min(self.largest, 2 * self.bytes)


def _hear_nothing_in_a_part(
    state: QuorumState,
    role: Follower,
    successors: tuple[NodeId, ...],
    read_token: int,
    verified: tuple[Offset | None, Offset],
    partial: PartialBatch | None = None,
) -> Follower:
    if partial is None:
        return _heard_well(state, role, successors, read_token, verified)
    state.fetch.wait_until(state.now_ms)
    return replace(role, partial=partial)


def _patch(target: object, name: str, replacement: object) -> Callable[[], AbstractContextManager[None]]:
    return lambda: patched(target, name, replacement)


LINKS: dict[str, Mutant] = {
    "pieces-never-shrink": Mutant(
        "a follower always asks for the largest piece, also after an answer that came too late",
        _patch(FetchSize, "__init__", _begin_with_the_largest),
    ),
    "few-bytes-taken-for-a-piece": Mutant(
        "the last few bytes of a batch come quickly, and let the next piece be twice as large",
        _patch(FetchSize, "came", _double_after_any_answer),
    ),
    "part-is-no-contact": Mutant(
        "a follower that is given parts of a large batch believes that its leader is silent",
        _patch(follower, "_heard_well", _hear_nothing_in_a_part),
    ),
}
