"""The rules of `promtool check metrics`, over a table of metrics; and promtool itself over a page, where it is installed.

The rules are those of Prometheus' `promlint` package, in the same words.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any, Final

from service_kit.process.metrics import Kind, Metric

UNIT_ABBREVIATIONS: Final = ("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d")
BASE_UNITS: Final = ("amperes", "bytes", "celsius", "grams", "joules", "kelvin", "meters", "moles", "seconds", "volts")
PREFIXES: Final = (
    *("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "mega", "giga", "tera", "peta"),
    *("kibi", "mebi", "gibi", "tebi", "pebi"),
)
OTHER_UNITS: Final = {
    **{prefix + base: base for base in BASE_UNITS for prefix in PREFIXES},
    **dict.fromkeys(("minutes", "hours", "days", "weeks"), "seconds"),
    "bits": "bytes",
}


def complaints(rows: Iterable[Metric[Any]]) -> Iterator[str]:
    """What promtool would say about these rows; nothing where it accepts them."""
    seen: set[str] = set()
    for row in rows:
        name, words = row.full_name, row.full_name.split("_")
        if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
            yield f"{name}: a metric name should be snake_case"
        if not row.help.strip():
            yield f"{name}: no help text"
        if name in seen:
            yield f"{name}: duplicate metric name"
        seen.add(name)
        if row.kind is Kind.COUNTER and not name.endswith("_total"):
            yield f'{name}: counter metrics should have "_total" suffix'
        if row.kind is not Kind.COUNTER and name.endswith("_total"):
            yield f'{name}: non-counter metrics should not have "_total" suffix'
        for suffix in ("bucket", "count", "sum"):
            if words[-1] == suffix:
                yield f'{name}: only histograms and summaries have "_{suffix}" suffix'
        for label in set(row.labels) & {"le", "quantile"}:
            yield f'{name}: the label "{label}" is reserved'
        for label in row.labels:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", label):
                yield f"{name}: label names should be written in snake_case: {label}"
        for kind in ("counter", "gauge", "histogram", "summary"):
            if kind in words:
                yield f'{name}: metric name should not include type "{kind}"'
        for abbreviation in set(words) & set(UNIT_ABBREVIATIONS):
            yield f"{name}: metric names should not contain abbreviated units: {abbreviation}"
        for word in set(words) & OTHER_UNITS.keys():
            yield f'{name}: use base unit "{OTHER_UNITS[word]}" instead of "{word}"'
        unit = [word for word in words if word in BASE_UNITS]
        if unit and words[-1 if row.kind is not Kind.COUNTER else -2] != unit[-1]:
            yield f"{name}: the unit stands at the end"


def promtool(page: bytes) -> str:
    """What `promtool check metrics` says about a page; empty where it accepts it, or is not installed."""
    tool = shutil.which("promtool")
    if tool is None:
        return ""
    ended = subprocess.run([tool, "check", "metrics"], input=page, capture_output=True, check=False, timeout=30)
    return (ended.stdout + ended.stderr).decode() if ended.returncode else ""
