"""The sections of the report that come from a history: availability, replication, churn, growth, elections."""

from collections.abc import Iterator
from html import escape
from typing import Final

from snapshots.offline.report import charts
from snapshots.offline.report.charts import Bar, Curve, Series, Span
from snapshots.offline.report.facts import BROKERS_SHOWN, BUCKETS, Facts, Row
from snapshots.offline.report.forecast import DAYS_MIN, Line, line_of
from snapshots.offline.report.html import (
    Section,
    code,
    duration,
    number,
    partition_name,
    plural,
    size,
    table,
    tiles,
    time_text,
)

_STATES: Final = {
    "stopping": ("stopping", "stops in order"),
    "fenced": ("fenced", "is fenced"),
    "registered": ("waiting", "is registered and does not serve yet"),
    "unregistered": ("gone", "is not registered any more"),
}
"""State -> class, words."""

_CONDITIONS: Final = (
    ("offline", "without a leader"),
    ("under_min_isr", "under min.insync.replicas"),
    ("under_replicated", "under-replicated"),
)

_REASONS: Final = {
    "first_known": "the first leader of this log",
    "same_leader": "the same leader, in a new epoch",
    "leader_removed": "the leader before is no voter any more",
    "leader_gave_way": "the leader before gave way: it voted for its successor",
    "leader_silent": "the leader before was silent",
}


def history_sections(facts: Facts) -> Iterator[Section]:
    """Return the sections, in the order of the page. A section without facts is left out."""
    yield from _availability(facts)
    yield from _outages(facts)
    yield from _replication(facts)
    yield from _leadership(facts)
    yield from _churn(facts)
    yield from _growth(facts)
    yield from _largest(facts)
    yield from _elections(facts)


def _availability(facts: Facts) -> Iterator[Section]:
    if not facts.brokers:
        return
    rows = [(f"broker {row['broker_id']}", f"{row['percent']:.3f} %") for row in facts.brokers]
    spans = [
        Span(
            f"broker {row['broker_id']}",
            row["from_ms"],
            row["to_ms"],
            f"broker {row['broker_id']} {_STATES[row['state']][1]}{_why(row['reason'])}: {time_text(row['from_ms'])} "
            f"to {time_text(row['to_ms'])}, {duration(row['to_ms'] - row['from_ms'])}",
            _STATES[row["state"]][0],
        )
        for row in facts.states
        if row["state"] in _STATES
    ]
    shown = f" The {BROKERS_SHOWN} lowest are shown." if len(facts.brokers) == BROKERS_SHOWN else ""
    note = f"A broker is available while it is online or stops in order. A track is online where it has no mark.{shown}"
    drawing = charts.timeline(spans, *facts.times, rows)
    keys = [("track-key", "online"), *_STATES.values()]
    yield Section("availability", "Availability of brokers", note, drawing + charts.legend(keys))


def _why(reason: str) -> str:
    return f" ({reason.replace('_', ' ')})" if reason else ""


def _outages(facts: Facts) -> Iterator[Section]:
    total = facts.outages_total
    if not total["times"]:
        yield Section("outages", "Partitions without a leader", "No partition was ever without a leader.", "")
        return
    rows = [
        (
            code(partition_name(row["topic"], row["partition"])),
            time_text(row["from_ms"]),
            duration(row["duration_ms"]) + (" so far" if row["is_open"] else ""),
            number(row["last_leader"]),
            escape((row["broker_reason"] or "–").replace("_", " ")),
        )
        for row in facts.outages
    ]
    longest = f" The {len(rows)} longest follow." if total["times"] > len(rows) else ""
    note = (
        f"{plural(total['times'], 'outage')} of {plural(total['partitions'], 'partition')}, {duration(total['ms'])} in all."
        f"{longest} The last column says why the last leader was fenced."
    )
    headings = ("partition", "from", "for", "#last leader", "reason")
    yield Section("outages", "Partitions without a leader", note, table(headings, rows))


def _replication(facts: Facts) -> Iterator[Section]:
    if not facts.conditions_by_bucket:
        return
    series = [
        Series(words, facts.conditions_by_bucket[kind], kind != "under_replicated")
        for kind, words in _CONDITIONS
        if kind in facts.conditions_by_bucket
    ]
    rows = [
        (
            code(partition_name(row["topic"], row["partition"])),
            duration(row["under_replicated_ms"]),
            duration(row["under_min_isr_ms"]),
        )
        for row in facts.conditions
    ]
    note = (
        f"How many partitions were affected; each column is {duration(facts.times.bucket_ms)} of log time. The partitions that "
        "were under-replicated longest follow."
    )
    drawing = _over_time(facts, series)
    found = table(("partition", "under-replicated", "under min.insync.replicas"), rows) if rows else ""
    yield Section("replication", "Replication", note, drawing + found)


def _over_time(facts: Facts, series: list[Series]) -> str:
    return charts.activity(series, facts.times.first_ms, facts.times.bucket_ms, BUCKETS)


def _leadership(facts: Facts) -> Iterator[Section]:
    if not facts.leaders:
        return
    names: dict[str, str] = {}
    colours: dict[int | None, str] = {None: "fenced"}
    spans = []
    for row in facts.leaders:
        name = partition_name(row["topic"], row["partition"])
        names[name] = plural(row["changes"], "change")
        leader = row["leader"]
        kind = colours.setdefault(leader, charts.colour(len(colours) - 1))
        led = "no leader" if leader is None else f"broker {leader}"
        title = f"{name}: {led}, {time_text(row['from_ms'])} to {time_text(row['to_ms'])}"
        spans.append(Span(name, row["from_ms"], row["to_ms"], title, kind))
    keys = [(kind, "no leader" if leader is None else f"broker {leader}") for leader, kind in colours.items()]
    drawing = charts.timeline(spans, *facts.times, list(names.items()))
    note = "The partitions whose leadership changed most."
    yield Section("leadership", "Leadership of partitions", note, drawing + charts.legend(keys[:9]))


def _churn(facts: Facts) -> Iterator[Section]:
    if not facts.churn:
        return
    series = [
        Series(kind.replace("_", " "), counts, kind == "leader changes: failure")
        for kind, counts in sorted(facts.churn.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    ]
    note = f"Each column is {duration(facts.times.bucket_ms)} of log time; each row has a scale of its own."
    yield Section("churn", "Changes over time", note, _over_time(facts, series))


def _growth(facts: Facts) -> Iterator[Section]:
    if not facts.growth:
        return
    last = facts.growth[-1]
    rows = [
        Curve("partitions", _points(facts.growth, "partitions"), number(last["partitions"])),
        Curve("topics", _points(facts.growth, "topics"), number(last["topics"])),
        Curve("brokers", _points(facts.growth, "brokers"), number(last["brokers"])),
        Curve("records a day", _points(facts.growth, "records"), number(last["records"])),
    ]
    line = line_of(_points(facts.growth, "partitions"))
    drawing = charts.curves(rows, facts.growth[0]["at_ms"], max(facts.times.last_ms, facts.growth[-1]["at_ms"]))
    written = size(sum(row["bytes"] for row in facts.growth))
    note = f"The log has {written} of records from {plural(len(facts.growth), 'day')}. {_pace(line)}"
    yield Section("growth", "Growth and forecast", note, drawing + _forecast(line))


def _points(rows: list[Row], name: str) -> list[tuple[int, float]]:
    return [(row["at_ms"], row[name]) for row in rows]


def _pace(line: Line | None) -> str:
    if line is None:
        return f"A forecast needs {DAYS_MIN} days."
    return f"Over the last {line.days} days the partitions grew by {line.a_day:+,.1f} a day."


def _forecast(line: Line | None) -> str:
    if line is None:
        return ""
    return tiles((f"partitions in {days} days, at this pace", number(line.after(days))) for days in (30, 90, 365))


def _largest(facts: Facts) -> Iterator[Section]:
    if facts.largest:
        bars = [Bar(row["topic"], row["partitions"]) for row in facts.largest]
        yield Section("largest", "Largest topics", "Partitions at the end of the log.", charts.bars(bars))


def _elections(facts: Facts) -> Iterator[Section]:
    if not facts.elections:
        return
    rows = [
        (
            number(row["epoch"]),
            time_text(row["time_ms"]),
            number(row["leader_id"]),
            number(row["previous_leader"]),
            duration(row["gap_ms"]),
            escape(_REASONS.get(row["why"], row["why"] or "–")),
        )
        for row in facts.elections
    ]
    newest = f" The newest {len(rows)} follow." if facts.elections_total > len(rows) else ""
    note = (
        f"{plural(facts.elections_total, 'election')} of a controller.{newest} The gap is the time since the last batch of the "
        "leader before, so it is an upper bound: that leader may have been idle."
    )
    headings = ("#epoch", "time", "#leader", "#leader before", "gap", "why")
    yield Section("elections", "Controller epochs", note, table(headings, rows))
