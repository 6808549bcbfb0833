"""Feeds targets, on all cores, and keeps an eye on what must not happen: a wrong error, no end, too much memory."""

import contextlib
import logging
import resource
import signal
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import structlog

from tests.fuzz.target import Target
from tests.fuzz.targets import targets
from tests.journal import Journal
from tests.sim.runner import on_all_cores

CPU_SECONDS_MAX: Final = 2.0
"""No input of these sizes is worth more of a core."""
ALLOCATED_BYTES_MAX: Final = 64 << 20
WATCHED_EACH: Final = 400
"""One in so many inputs has its memory watched, which makes it several times as slow."""
ADDRESS_SPACE_BYTES: Final = 2 << 30
"""More than this process may ever have: an allocation by a length that nobody has checked ends in a MemoryError."""
MINIMISING_STEPS: Final = 400


class TookTooLong(BaseException):
    """An input has used up its time. No reader may catch that."""


class Chunk(NamedTuple):
    """So many inputs for one target, the first one being number `first` of this seed."""

    target: str
    seed: int
    first: int
    inputs: int


class Failure(NamedTuple):
    """An input that its reader answers wrongly."""

    target: str
    seed: int
    number: int
    kind: str
    story: str
    data: bytes

    def __str__(self) -> str:
        again = f"python -m tests.fuzz --only {self.target} --input {self.data.hex()}"
        return f"{self.target}, seed {self.seed}, input {self.number}: {self.kind}\n{self.story}\n\n    {again}\n"


class Tally(NamedTuple):
    """What became of a target's inputs."""

    target: str
    outcomes: Counter[str]
    slowest_ms: float
    failures: tuple[Failure, ...]


def input_of(target: Target, seed: int, number: int) -> bytes:
    """Input `number` of this seed."""
    return target.mutate(Random(f"{seed} {target.name} {number}"), target.samples)


def run_chunk(chunk: Chunk) -> Tally:
    """Feeds one target, up to its first failure."""
    _limit_memory()
    _be_quiet()
    target = targets()[chunk.target]
    outcomes: Counter[str] = Counter()
    slowest_s = 0.0
    for number in range(chunk.first, chunk.first + chunk.inputs):
        data = input_of(target, chunk.seed, number)
        began_s = time.process_time()
        watched = number % WATCHED_EACH == 0
        outcome, wrong = judge(target, data, watched=watched)
        if not watched:
            slowest_s = max(slowest_s, time.process_time() - began_s)
        outcomes[outcome] += 1
        if wrong is not None:
            smaller = _minimised(target, data, outcome, watched=watched)
            failure = Failure(target.name, chunk.seed, number, outcome, wrong, smaller)
            return Tally(target.name, outcomes, slowest_s * 1_000, (failure,))
    return Tally(target.name, outcomes, slowest_s * 1_000, ())


def judge(target: Target, data: bytes, *, watched: bool = False) -> tuple[str, str | None]:
    """What became of an input, in a word; and if that must not be, the story."""
    signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS_MAX * (10 if watched else 1))
    if watched:
        tracemalloc.start()
    try:
        outcome = target.outcome(data)
        peak = tracemalloc.get_traced_memory()[1] if watched else 0
    except (Exception, TookTooLong) as e:
        return f"!{type(e).__name__}", traceback.format_exc(limit=-8)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if watched:
            tracemalloc.stop()
    if peak > ALLOCATED_BYTES_MAX:
        return "!TooMuchMemory", f"{peak} bytes allocated for an input of {len(data)}"
    return outcome, None


def _too_long(*_: Any) -> None:
    raise TookTooLong(f"more than {CPU_SECONDS_MAX} s of CPU time")


def _be_quiet() -> None:
    """Drops the log lines of the code under test: a million inputs write thousands, and the progress bar drowns in them."""
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _limit_memory() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, hard))


def _minimised(target: Target, data: bytes, outcome: str, *, watched: bool) -> bytes:
    """A shorter input with the same failure: spans are left out, ever smaller ones, as long as it keeps failing."""
    size, steps = len(data) // 2, 0
    while size > 0 and steps < MINIMISING_STEPS:
        at = 0
        while at < len(data) and steps < MINIMISING_STEPS:
            shorter = data[:at] + data[at + size :]
            steps += 1
            if judge(target, shorter, watched=watched)[0] == outcome:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def chunks(names: Sequence[str], inputs: int, seed: int) -> list[Chunk]:
    """At least `inputs` in all, the same number for each target, in chunks of a few seconds."""
    each = max(1, -(-inputs // len(names)))
    size = max(1, min(2_000, each // 4))
    return [Chunk(name, seed, first, min(size, each - first)) for first in range(0, each, size) for name in names]


def run(
    work: Sequence[Chunk], progress: Callable[[Tally], None] = lambda _: None, journal: Journal | None = None
) -> dict[str, Tally]:
    """The tally of every target; of those inputs that were fed, if somebody stops it."""
    found: dict[str, Tally] = {}
    with contextlib.suppress(KeyboardInterrupt):
        for tally in on_all_cores(run_chunk, work, journal):
            before = found.get(tally.target, Tally(tally.target, Counter(), 0.0, ()))
            found[tally.target] = Tally(
                tally.target,
                before.outcomes + tally.outcomes,
                max(before.slowest_ms, tally.slowest_ms),
                before.failures + tally.failures,
            )
            progress(tally)
    return found
