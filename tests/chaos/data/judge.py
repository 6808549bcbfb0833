"""The judge of one partition: an append-only log, whose sends and reads have to fit into one order. Pure.

The offsets of the final log are that order. So no search is needed, and a history is linearizable if and only if these laws hold:

    L1  an acknowledged record is in the log once, at its offset (otherwise it is *lost*)
    L2  every other record is in the log at most once, and a failed one never; nobody finds a record that nobody has sent
    L3  a send that began after the answer to another one has the higher offset
    L4  the records of one producer are in the order of its sends
    L5  a consumer reads what the log has at these offsets, and nothing that was not sent yet
    L6  within a leader epoch the high watermark of an answer covers all that was read, or seen as high watermark, before the
        question

Reads of different epochs may be older than each other: a new leader knows a lower high watermark at first, and the log itself
loses nothing. Example of a history that breaks L1:

    1. Producer 1 sends a5, and is answered "offset 9" by leader 101.
    2. Leader 101 dies. Broker 102 leads, without a5, and gives offset 9 to b7.
    3. The final log has b7 at 9: a5 is lost.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.chaos.data.history import Fate, History, Seen, Send

Log = Sequence[str]
"""The values of a partition's records, from offset 0 on."""


class Verdict(NamedTuple):
    """The judgement of one partition. `problems` are whole sentences."""

    acknowledged: int
    lost: int
    problems: list[str]


def judge_partition(partition: int, history: History, log: Log) -> Verdict:
    """Judges the calls of one partition by its final log."""
    sends = [each for each in history.sends if each.partition == partition]
    reads = [each for each in history.reads if each.partition == partition]
    lost = _lost(sends, log)
    placed = {value: offset for offset, value in enumerate(log)}
    problems = [
        *(f"L1 partition {partition}: {text}" for text in lost),
        *(f"L2 partition {partition}: {text}" for text in _strangers(sends, log)),
        *(f"L3 partition {partition}: {text}" for text in _overtaken(sends, placed)),
        *(f"L4 partition {partition}: {text}" for text in _out_of_order(sends, placed)),
        *(f"L5 partition {partition}: {text}" for text in _misread(sends, reads, log)),
        *(f"L6 partition {partition}: {text}" for text in _gone_back(reads)),
    ]
    acknowledged = sum(len(each.values) for each in sends if each.fate is Fate.ACKNOWLEDGED)
    return Verdict(acknowledged, len(lost), problems)


def _lost(sends: Iterable[Send], log: Log) -> list[str]:
    """L1: for each acknowledged record that is not where its producer was told, a text."""
    found = []
    for send in sends:
        if send.fate is not Fate.ACKNOWLEDGED:
            continue
        assert send.offset is not None, "an acknowledged send has an offset"
        for offset, value in enumerate(send.values, send.offset):
            if offset >= len(log):
                found.append(f"{value} was acknowledged at {offset}, and the log ends at {len(log)}")
            elif log[offset] != value:
                found.append(f"{value} was acknowledged at {offset}, where the log has {log[offset]}")
    return found


def _strangers(sends: Sequence[Send], log: Log) -> list[str]:
    """L2: records that are twice in the log, that failed, or that nobody has sent."""
    fates = {value: send.fate for send in sends for value in send.values}
    found = [f"{value} is {count} times in the log" for value, count in Counter(log).items() if count > 1]
    for offset, value in enumerate(log):
        if value not in fates:
            found.append(f"{value} at {offset} was never sent")
        elif fates[value] is Fate.FAILED:
            found.append(f"{value} at {offset} was told to have failed")
    return found


def _overtaken(sends: Iterable[Send], placed: dict[str, int]) -> list[str]:
    """L3, by a walk over all beginnings and answers in the order of time."""
    events: list[tuple[int, int, Send]] = []
    for send in sends:
        if send.values[0] in placed:
            events.append((send.sent_ns, 0, send))
            if send.fate is Fate.ACKNOWLEDGED:
                events.append((send.ended_ns, 1, send))
    found = []
    highest: tuple[int, Send] | None = None
    for _, is_answer, send in sorted(events, key=lambda event: event[:2]):  # beginnings first: equal times overlap
        offset = placed[send.values[0]]
        if is_answer and (highest is None or offset > highest[0]):
            highest = offset, send
        elif not is_answer and highest is not None and offset < highest[0]:
            found.append(
                f"{send.values[0]} is at {offset}, before {highest[1].values[0]} at {highest[0]}, answered earlier"
            )
    return found


def _out_of_order(sends: Iterable[Send], placed: dict[str, int]) -> list[str]:
    """L4: producers send one batch after the other, and a later record stands behind an earlier one."""
    last: dict[str, tuple[int, str]] = {}
    found = []
    for send in sorted(sends, key=lambda each: each.sent_ns):
        for value in send.values:
            if value not in placed:
                continue
            before = last.get(send.producer)
            if before is not None and placed[value] < before[0]:
                found.append(f"{value} is at {placed[value]}, before {before[1]} at {before[0]}, sent earlier")
            last[send.producer] = placed[value], value
    return found


def _misread(sends: Iterable[Send], reads: Iterable[Seen], log: Log) -> list[str]:
    """L5: what consumers saw, compared with the log, and with the times of the sends."""
    sent_ns = {value: send.sent_ns for send in sends for value in send.values}
    found = []
    for read in reads:
        for offset, value in enumerate(read.values, read.offset):
            if offset >= len(log) or log[offset] != value:
                there = log[offset] if offset < len(log) else "its end"
                found.append(f"{read}: {value} at {offset}, where the log has {there}")
            elif sent_ns.get(value, 0) > read.answered_ns:
                found.append(f"{read}: {value} before anybody had sent it")
    return found


def _gone_back(reads: Iterable[Seen]) -> list[str]:
    """L6, epoch by epoch, by a walk as in `_overtaken`."""
    epochs: dict[int, list[Seen]] = {}
    for read in reads:
        epochs.setdefault(read.leader_epoch, []).append(read)
    found = []
    for several in epochs.values():
        events = sorted(
            [(read.asked_ns, 0, read) for read in several] + [(read.answered_ns, 1, read) for read in several],
            key=lambda event: event[:2],
        )
        highest = 0
        due: dict[int, int] = {}
        for _, is_answer, read in events:
            if not is_answer:
                due[id(read)] = highest
                continue
            if read.high_watermark < due[id(read)]:
                found.append(f"{read}: the high watermark {read.high_watermark}, after {due[id(read)]} was seen")
            highest = max(highest, read.high_watermark, read.offset + len(read.values) if read.values else 0)
    return found
