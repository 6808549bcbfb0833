"""The figures of `benchmarks.entities` as tables, and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.entities.fan_out import FanOut
from benchmarks.entities.sides import LEADER
from benchmarks.rounds import Rounds, Spread, spread

ETCD, OURS = "etcd", "ours"


class Found(NamedTuple):
    """Everything that one run has measured."""

    loads: Sequence[Rounds]
    fans: Mapping[tuple[str, int], Mapping[str, Sequence[FanOut]]]
    """By place and watchers, then by side, one for each round."""
    highest: Mapping[str, Sequence[int]]
    """By side, the highest rates."""
    late_s: Mapping[str, Sequence[Sequence[float]]]
    """By side, the sorted latenesses of each round."""
    load_average: float


def ratio_text(ratio: Spread | None) -> str:
    """The median, and the quartiles if there are several rounds."""
    if ratio is None:
        return ""
    quartiles = "" if ratio.low == ratio.high else f" ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{ratio.median:.2f} x{quartiles}"


def ratio_of(sides: Mapping[str, Sequence[float]]) -> Spread | None:
    """Ours to etcd's, round by round; nothing if a figure is missing or not above zero."""
    if not sides.get(ETCD) or not sides.get(OURS) or min(*sides[ETCD], *sides[OURS]) <= 0:
        return None
    return spread([own / peer for own, peer in zip(sides[OURS], sides[ETCD], strict=True)])


def middle(values: Sequence[float]) -> float:
    """The median."""
    return spread(values).median


def show(found: Found, title: str) -> None:
    """Prints the tables."""
    console = Console(width=170)
    for table in (
        _loads(found, f"{title}; load average {found.load_average:.1f}"),
        _fans(found),
        _expiry(found),
    ):
        if table.row_count:
            console.print(table)


def _table(title: str, *headings: str, left: int = 1) -> Table:
    table = Table(title=title)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < left else "right")
    return table


def _loads(found: Found, title: str) -> Table:
    table = _table(title, "what", "etcd", "metaquorum", "ratio (quartiles)", "us of CPU: leader, followers; ours")
    for rounds in found.loads:
        unit, digits = (" ms", 2) if rounds.load.is_latency else ("/s", 0)
        sides = rounds.load.sides
        figures = [f"{rounds.figure(side):,.{digits}f}{unit}" if side in sides else "" for side in (ETCD, OURS)]
        cpu = "; ".join(" ".join(f"{us:,.0f}" for us in rounds.cpu_us(side).values()) for side in sides)
        table.add_row(rounds.load.name, *figures, ratio_text(_load_ratio(rounds)), cpu)
    return table


def _load_ratio(rounds: Rounds) -> Spread | None:
    return rounds.ratio(OURS, ETCD) if len(rounds.load.sides) == 2 else None


def _fans(found: Found) -> Table:
    table = _table(
        "watchers of one prefix; a latency is from the sending of a write to its delivery; CPU in shares of a core",
        *("watchers, opened at", "figure", "etcd", "metaquorum", "ratio (quartiles)"),
        left=2,
    )
    for (place, watchers), sides in found.fans.items():
        if not sides:
            continue
        table.add_section()
        name = f"{watchers:,}, {place}"
        for what, pick, form in FIGURES:
            values = {side: [pick(each) for each in several] for side, several in sides.items()}
            figures = [form.format(middle(values[side])) if values.get(side) else "" for side in (ETCD, OURS)]
            if what == NODE_CPU and not any(values.get(OURS, ())):
                continue
            table.add_row(name, what, *figures, ratio_text(ratio_of(values)))
            name = ""
        _leader_for_watches(table, found, place, watchers)
    if found.highest:
        table.add_section()
        rates = {side: [float(rate) for rate in several] for side, several in found.highest.items()}
        figures = [f"{middle(rates[side]):,.0f}/s" if side in rates else "" for side in (ETCD, OURS)]
        table.add_row("1,000, leader", "highest rate with p99 < 250 ms", *figures, ratio_text(ratio_of(rates)))
    return table


def _leader_for_watches(table: Table, found: Found, place: str, watchers: int) -> None:
    """Adds the CPU time that the leader spends on watches: what is above the figure with the fewest watchers."""
    fewest = min(count for at, count in found.fans if at == LEADER)
    if place != LEADER or watchers == fewest:
        return
    base, all_of_them = found.fans[LEADER, fewest], found.fans[LEADER, watchers]
    more = {
        side: [own.leader_cpu - few.leader_cpu for own, few in zip(all_of_them[side], base[side], strict=True)]
        for side in all_of_them
    }
    figures = [f"{middle(more[side]):.1%}" if side in more else "" for side in (ETCD, OURS)]
    table.add_row("", f"CPU of the leader above {fewest:,}", *figures, ratio_text(ratio_of(more)))


NODE_CPU = "CPU of the broker"
FIGURES: Sequence[tuple[str, Any, str]] = (
    ("p50", lambda each: each.p50_ms, "{:,.1f} ms"),
    ("p99", lambda each: each.p99_ms, "{:,.1f} ms"),
    ("p50 since the answer", lambda each: each.commit_p50_ms, "{:,.1f} ms"),
    ("p99 since the answer", lambda each: each.commit_p99_ms, "{:,.1f} ms"),
    ("events/s", lambda each: each.events_per_s, "{:,.0f}"),
    ("events in a message", lambda each: each.events_a_message, "{:,.1f}"),
    ("missing", lambda each: each.missing, "{:,.0f}"),
    ("CPU of the leader", lambda each: each.leader_cpu, "{:.1%}"),
    ("CPU of the followers", lambda each: each.followers_cpu, "{:.1%}"),
    (NODE_CPU, lambda each: each.node_cpu, "{:.1%}"),
    ("CPU of the load", lambda each: each.load_cpu, "{:.1%}"),
)


def _expiry(found: Found) -> Table:
    table = _table(
        "sessions that end: from the end of the timeout to the sight of the vanished key",
        *("figure", "etcd", "metaquorum", "ratio (quartiles)"),
    )
    for what, part in (("min", 0.0), ("p50", 0.5), ("max", 1.0)):
        values = {
            side: [late[round((len(late) - 1) * part)] for late in several] for side, several in found.late_s.items()
        }
        figures = [f"{middle(values[side]):.3f} s" if values.get(side) else "" for side in (ETCD, OURS)]
        if any(figures):
            table.add_row(what, *figures, ratio_text(ratio_of(values)))
    return table


def as_json(found: Found) -> dict[str, Any]:
    """The same figures, with all rounds."""
    return {
        "load_average": found.load_average,
        "loads": [_load_json(rounds) for rounds in found.loads],
        "watches": [
            {"place": place, "side": side, **each._asdict()}
            for (place, _), sides in found.fans.items()
            for side, several in sides.items()
            for each in several
        ],
        "highest_rate": {side: list(several) for side, several in found.highest.items()},
        "late_s": {side: [list(late) for late in several] for side, several in found.late_s.items()},
    }


def _load_json(rounds: Rounds) -> dict[str, Any]:
    sides = {side: {"figure": rounds.figure(side), "cpu_us": rounds.cpu_us(side)} for side in rounds.load.sides}
    ratio = _load_ratio(rounds)
    return {"what": rounds.load.name, **sides, "ratio": ratio and ratio._asdict()}
