"""The committed history, from all logs that a run has left, and the places where the logs contradict each other.

Committed is what a majority of the controllers holds; a log that goes on beyond that has a tail that nobody was told of. A
chain vouches for all below it, so one batch that two logs share at the same end stands for everything before. For example
controller 1 was cut off while it led, holds the batches that end at 100 and 103, and was down when the run ended; controllers 2
and 3 hold the one at 100, another at 104, and more up to 200. Committed is up to 200, and what controller 1 has from 100 on is a
tail: no contradiction, and no second copy of what its clients sent again. It is a contradiction if controller 1 knew the batch
at 103 to be committed, because it has a snapshot of that, or if all were equal there before they were stopped.

A log that cannot be read may hold anything, and one that has lost its durable end may have held all that was below; so where
such logs are needed for a majority, the log that Raft would elect (by the epoch of its last record, then by its end) is believed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.disk.files import RealDirectory
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.ids import Offset
from metadata_log.image.replay import Replay, ReplayStopped
from metadata_log.store.salvage import intact_batches
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from tests.chaos.judge.final_log import Change, FinalLog, changes_of, digest_of


class Committed(NamedTuple):
    """The history: its changes in their order, from the offset on at which it begins, and what is wrong with it."""

    changes: list[Change]
    known_from: int
    problems: list[str]
    end: Offset | None = None
    """No answer can be as of more. None: nobody knows where it ends."""
    tails: tuple[str, ...] = ()
    """The records of logs beyond it, for people: the leftovers of a run that ended before its cluster was well."""
    batches: tuple[Batch, ...] = ()
    """All of it, as far as it is known."""


NOTHING_KNOWN: Final = Committed([], sys.maxsize, ["no log can be read"])


def committed(
    logs: list[FinalLog], recorded: Path, *, unread: int = 0, equal_at: tuple[Offset, bytes] | None = None
) -> Committed:
    """One history out of all logs.

    `recorded`: what `final_log.record` has copied. `unread`: controllers whose logs cannot be read. `equal_at`: where all logs
    ended, with the same chain, when they were last seen equal; None, if they were not.
    """
    if not logs:
        return NOTHING_KNOWN
    newest = _held_by_a_majority(logs, (len(logs) + unread) // 2 + 1, unread)
    if not newest:
        return NOTHING_KNOWN._replace(problems=["there is no history that a majority holds"])
    history = [*_before(newest[0], logs, recorded), *newest]
    known_from = history[0].base_offset
    known = {batch.end_offset: batch.chain for batch in history}
    problems = _contradictions(logs, known, known_from, equal_at)
    if known_from > 0:
        oldest = min(logs, key=lambda log: log.start)
        problems.append(f"nobody has the log from its beginning, the oldest is {oldest.name} with {known_from}")
    problems += _wrong_images(logs, history)
    tails = [(log, _tail_begins(log, known, known_from)) for log in logs]
    texts = tuple(f"{log.name} from {begins} to {log.end}" for log, begins in tails if begins < log.end)
    return Committed(changes_of(history), known_from, problems, newest[-1].end_offset, texts, tuple(history))


def _held_by_a_majority(logs: list[FinalLog], majority: int, unread: int) -> list[Batch]:
    """The batches of one log up to the last one that so many logs hold or may hold."""
    ends = {log.name: {(batch.end_offset, batch.chain) for batch in log.batches} for log in logs}

    def may_hold(log: FinalLog, batch: Batch) -> bool:
        place = batch.end_offset, batch.chain
        return place in ends[log.name] or batch.end_offset <= max(log.start, log.had_below)

    def held(mine: FinalLog) -> list[Batch]:
        for index in range(len(mine.batches), 0, -1):
            last = mine.batches[index - 1]
            if unread + sum(log is mine or may_hold(log, last) for log in logs) >= majority:
                return mine.batches[:index]
        return []

    return max(
        map(held, logs), key=lambda batches: (batches[-1].epoch, batches[-1].end_offset) if batches else (-1, -1)
    )


def _tail_begins(log: FinalLog, known: dict[Offset, bytes], known_from: Offset) -> Offset:
    """The offset at which it leaves the committed history; its end, if it does not."""
    tail = (each for each in log.batches if known.get(each.end_offset) != each.chain and each.base_offset >= known_from)
    return next((batch.base_offset for batch in tail), log.end)


def _contradictions(
    logs: list[FinalLog], known: dict[Offset, bytes], known_from: Offset, equal_at: tuple[Offset, bytes] | None
) -> list[str]:
    """The logs that hold something else than what is committed where they must hold that, or less than all held."""
    problems = []
    for log in logs:
        begins = _tail_begins(log, known, known_from)
        if begins < log.committed_below:
            problems.append(f"{log.name} has another history from offset {begins} on than what is committed")
        elif log.committed_below > max(known):
            problems.append(f"{log.name} has a snapshot at {log.committed_below}, and a majority holds {max(known)}")
        if equal_at is not None and not _holds(log, equal_at):
            problems.append(
                f"{log.name} has not what all had when they were equal at {equal_at[0]}; it ends at {log.end}"
            )
    return problems


def _holds(log: FinalLog, place: tuple[Offset, bytes]) -> bool:
    return log.start >= place[0] or place in ((each.end_offset, each.chain) for each in reversed(log.batches))


def _wrong_images(logs: list[FinalLog], history: list[Batch]) -> list[str]:
    """Images of one history that differ, or that are not its replay from 0.

    If every log begins at a snapshot, all the images are the snapshots', right or wrong.
    """
    problems = []
    groups: dict[tuple[Offset, bytes], list[FinalLog]] = {}
    for log in logs:
        groups.setdefault(log.place, []).append(log)
    for same in groups.values():
        if len({log.digest for log in same}) > 1:
            problems.append("images differ: " + ", ".join(f"{log.name} {log.digest.hex()[:12]}" for log in same))
        oldest = min(same, key=lambda log: log.start)
        before = [each for each in history if each.end_offset <= oldest.start]
        is_whole = history[0].base_offset == 0 and before and before[-1].end_offset == oldest.start
        if is_whole:  # (One that begins at 0 was replayed when it was read.)
            problems += _wrong_replay(oldest, before)
    return problems


def _wrong_replay(log: FinalLog, before: list[Batch]) -> list[str]:
    try:
        digest = digest_of(Replay(), [*before, *log.batches])
    except ReplayStopped as e:
        return [f"{log.name} has a history that cannot be replayed from 0: {e}"]
    if digest != log.digest:
        return [f"{log.name} has an image that is not the replay of its history from 0"]
    return []


def _before(first: Batch, logs: list[FinalLog], recorded: Path) -> list[Batch]:
    """All that was kept and that `first` continues: found backwards along the chain, which only committed batches bear."""
    ending: dict[Offset, list[Batch]] = {}
    if first.base_offset > 0:
        for batch in (*(batch for log in logs for batch in log.batches), *_recorded(recorded)):
            ending.setdefault(batch.end_offset, []).append(batch)
    found: list[Batch] = []
    following = first
    while following.base_offset > 0:
        candidates = ending.get(following.base_offset, [])
        before = next((each for each in candidates if verify_chain(following, each.chain)), None)
        if before is None:
            break
        found.append(before)
        following = before
    return found[::-1]


def _recorded(recorded: Path) -> Iterator[Batch]:
    """All that can be read of nodes' copies, behind a flipped bit too: when that is mended the node may begin anew."""
    for directory in (each for each in recorded.rglob("*") if each.is_dir()):
        for path in sorted(directory.glob("*.log")):
            with RealDirectory(directory).open(path.name) as file:
                for _, batch in intact_batches(file, SEGMENT_HEADER_BYTES, 0):
                    yield batch
