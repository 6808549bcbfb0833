"""The Prometheus page of a node, made from a table: each row is a metric, with a function to read the value.

    Metric("current_epoch", Kind.GAUGE, "The current epoch of this node.", lambda node: node.status().epoch)

A row has no prefix; the page shows `metaquorum_current_epoch`. Values are read when Prometheus asks for the page, so that
a node spends no time on a page that is never read. All rows of one page read the same `look()`, taken once per page.

The tables are `quorum.wire.reporting.metric_table` (controllers) and `broker_agent.metric_table` (brokers). The page,
`docs/metrics.md` and the tests of Prometheus' rules for names use these tables.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Final, Generic, TypeAlias, TypeVar, cast

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from service_kit.process.tallies import Counter, Histogram, Labels

PREFIX: Final = "metaquorum"

S = TypeVar("S")
R_contra = TypeVar("R_contra", contravariant=True)
Reading: TypeAlias = float | Mapping[Labels, float] | Counter | Histogram | None
"""The reading of a row: one number (None: unknown to this node, shown as NaN), or a number for each combination of labels."""


class Kind(Enum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    """A number that only grows. Its name ends in `_total`."""
    GAUGE = "gauge"
    """A number that rises and falls."""
    HISTOGRAM = "histogram"
    """Observations in buckets. Its name ends in their unit."""


@dataclass(frozen=True)
class Metric(Generic[R_contra]):
    """One row of a table of metrics. `R_contra` is the type that its `read` reads."""

    name: str
    """The name without the prefix; a unit stands at the end, before `_total`."""
    kind: Kind
    help: str
    """One sentence for operators, with a full stop."""
    read: Callable[[R_contra], Reading]
    labels: Labels = ()

    @property
    def full_name(self) -> str:
        """The name on the page."""
        return f"{PREFIX}_{self.name}"


class Metrics:
    """The metrics page of one node. Each node has its own, because tests run several nodes in one process."""

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self, *, process: bool = False) -> None:
        """With `process` the page also shows memory, CPU and open files of the whole process (once per process)."""
        self.registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=self.registry)

    def add_table(self, rows: Sequence[Metric[S]], look: Callable[[], S]) -> None:
        """Shows `rows` from now on. `look` is called once for each page, and each row reads what `look` returned."""
        self.registry.register(_Table(rows, look))

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self.registry)


class _Table(Collector, Generic[S]):
    def __init__(self, rows: Sequence[Metric[S]], look: Callable[[], S]) -> None:
        self._rows = tuple(rows)
        self._look = look

    def collect(self) -> Iterable[Family]:
        source = self._look()
        for row in self._rows:
            yield _family(row, row.read(source))

    def describe(self) -> Iterable[Family]:
        return ()


def _family(row: Metric[S], reading: Reading) -> Family:
    if row.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(row.full_name, row.help, labels=row.labels)
        for labels, buckets, total in _histogram(cast(Histogram, reading)):
            histogram.add_metric(labels, buckets=buckets, sum_value=total)
        return histogram
    family = CounterMetricFamily if row.kind is Kind.COUNTER else GaugeMetricFamily
    numbers = family(row.full_name, row.help, labels=row.labels)
    for labels, value in _numbers(reading):
        assert len(labels) == len(row.labels), (row.name, labels)
        numbers.add_metric(labels, value)
    return numbers


def _numbers(reading: Reading) -> Iterator[tuple[Labels, float]]:
    if isinstance(reading, Counter):
        yield from list(reading.values.items())
    elif isinstance(reading, Mapping):
        yield from reading.items()
    else:
        assert not isinstance(reading, Histogram)
        yield (), float("nan") if reading is None else float(reading)


def _histogram(histogram: Histogram) -> Iterator[tuple[Labels, list[tuple[str, float]], float]]:
    """Each series with its cumulative buckets, as Prometheus wants them, and its sum."""
    bounds = [*(str(float(bound)) for bound in histogram.buckets), "+Inf"]
    for labels, series in list(histogram.series.items()):
        yield labels, list(zip(bounds, accumulate(series.counts), strict=True)), series.sum
