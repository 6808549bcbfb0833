"""Prometheus metrics of one node. Each node object has a registry of its own, because tests run three in one process.

Names are Kafka's meaning in Prometheus's spelling, all under one prefix: `metaquorum_current_epoch`. Values that a node
knows anyway are read when they are asked for (`gauge_of`), so that the loop never spends time on a page nobody reads.
"""

from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

PREFIX: Final = "metaquorum"

LATENCY_BUCKETS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""From a good disk's fsync to a very bad one's."""


class Metrics:
    """The metrics of one node."""

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self, *, process: bool = False) -> None:
        """With `process`, memory, CPU and open files of the whole process are told too (once per process)."""
        self.registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=self.registry)

    def counter(self, name: str, what: str, labels: Sequence[str] = ()) -> Counter:
        """A number that only grows; Prometheus appends `_total`."""
        return Counter(name, what, labels, namespace=PREFIX, registry=self.registry)

    def gauge(self, name: str, what: str, labels: Sequence[str] = ()) -> Gauge:
        """A number that comes and goes."""
        return Gauge(name, what, labels, namespace=PREFIX, registry=self.registry)

    def gauge_of(self, name: str, what: str, read: Callable[[], float]) -> None:
        """A gauge whose value is `read()` whenever somebody asks."""
        Gauge(name, what, namespace=PREFIX, registry=self.registry).set_function(read)

    def seconds(self, name: str, what: str, labels: Sequence[str] = ()) -> Histogram:
        """A histogram of durations in seconds; name it `..._seconds`."""
        return Histogram(name, what, labels, namespace=PREFIX, registry=self.registry, buckets=LATENCY_BUCKETS_S)

    def page(self) -> bytes:
        """What Prometheus fetches, in its text format."""
        return generate_latest(self.registry)
