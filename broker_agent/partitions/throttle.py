"""Throttled replication (KIP-73): a reassignment copies its data at a limited rate, and replicas in sync are never held up. Pure.

An operator names the throttled replicas of a topic, and the rates of the brokers. Only bytes of throttled replicas outside of the
ISR count, at the leader and at the follower. Example, with a rate of 1 MB/s at leader 101:

    1. orders-0 moves to broker 104, which lacks 50 MB. Broker 101 sends 1 MB, and the quota is used up.
    2. For the next second broker 101 answers fetches of 104 without records of orders-0. All other partitions go on.
    3. After about 50 s broker 104 has everything, and joins the ISR. Its fetches are not throttled any more.

The quota is a bucket, which fills at the rate, up to the bytes of one second. If an answer has overdrawn it, the next one waits.
"""

from typing import Final, NamedTuple

UNLIMITED: Final = (1 << 63) - 1
"""The rate without a limit, in bytes per second; the default of `leader.replication.throttled.rate`."""
EVERY: Final = "*"


class ThrottledReplicas(NamedTuple):
    """The throttled partitions of one topic, as far as this broker has replicas of them."""

    is_every: bool = False
    partitions: frozenset[int] = frozenset()

    @classmethod
    def of(cls, text: str, broker_id: int) -> "ThrottledReplicas":
        """Take the value of `leader.replication.throttled.replicas`, which the controllers have checked: `*`, or pairs."""
        items = [item.strip() for item in text.split(",") if item.strip()]
        if EVERY in items:
            return cls(is_every=True)
        pairs = [item.split(":") for item in items]
        return cls(partitions=frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id))

    def has(self, partition: int) -> bool:
        """True if the partition's replica on this broker is throttled."""
        return self.is_every or partition in self.partitions


NOTHING_THROTTLED: Final = ThrottledReplicas()


class Quota:
    """The bytes that throttled replicas may move now."""

    def __init__(self) -> None:
        self._rate = UNLIMITED
        self._credit = 0.0
        self._at_ms = 0

    def limit(self, bytes_per_s: int, now_ms: int) -> None:
        """Take another rate; the bucket is full."""
        self._rate, self._credit, self._at_ms = bytes_per_s, float(bytes_per_s), now_ms

    def used(self, count: int, now_ms: int) -> None:
        """Note bytes of throttled replicas."""
        if self._rate != UNLIMITED:
            self._fill(now_ms)
            self._credit -= count

    def wait_ms(self, now_ms: int) -> int:
        """Return how long throttled replicas have to wait; 0 if they may go on."""
        if self._rate == UNLIMITED:
            return 0
        self._fill(now_ms)
        if self._credit > 0:
            return 0
        return 1_000 if self._rate == 0 else min(1_000, int(-self._credit * 1_000 / self._rate) + 1)

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._at_ms)
        self._credit = min(float(self._rate), self._credit + self._rate * passed_ms / 1_000)
        self._at_ms = max(now_ms, self._at_ms)
