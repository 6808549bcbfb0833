"""A fetch at a leader, from arrival to answer.

1. Consumer 7 fetches orders-0 at 12; the high watermark is 12. `poll` gives no answer: the fetch waits.
2. The high watermark moves to 13: the effect `Wake` names the fetch.
3. `poll` gives the answer with record 12. The fetch is done.

A fetch that waits for many bytes keeps no records: thousands of fetches may wait for a mebibyte each.

1. Consumer 8 wants 100 kB of orders-0, which has 60 kB. The fetch notes the size, lets the records go, and waits.
2. Another 50 kB come. The size is 110 kB now, so the fetch reads all of them again, for the answer.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from broker_agent.replica.follower import PartitionAnswer
from broker_agent.replica.session_cache import Context
from broker_agent.session.isr_proposals import Place
from metadata_log.format.ids import NodeId


class FetchSource(NamedTuple):
    """The follower that fetches."""

    broker_id: NodeId
    broker_epoch: int


@dataclass(eq=False, slots=True)
class Watcher:
    """A fetch session, or a fetch without a session: the partitions to look at before the next answer."""

    follower_id: NodeId | None
    """The broker that fetches; None: a consumer."""
    places: set[Place] = field(default_factory=set)
    todo: dict[Place, None] = field(default_factory=dict)
    """The partitions that may have news; the partition that has waited longest is the first."""
    fetch: "OpenFetch | None" = None
    """The fetch that waits."""


@dataclass(eq=False, slots=True)
class OpenFetch:
    """One fetch without an answer. A caller keeps the object as a token, and changes nothing."""

    source: FetchSource | None
    """None: a consumer."""
    context: Context
    watcher: Watcher
    deadline_ms: int
    min_bytes: int
    max_bytes: int
    named: dict[Place, None]
    """The partitions of the request that were not looked at yet: each of them is an acknowledgement of a follower."""
    answers: dict[Place, PartitionAnswer] = field(default_factory=dict)
    sizes: dict[Place, int] = field(default_factory=dict)
    """The bytes of records of each partition that has any for the answer."""
    size_bytes: int = 0
    """The sum of `sizes`."""
    held: set[Place] = field(default_factory=set)
    """The partitions whose records are in `answers`."""
    throttled: set[Place] = field(default_factory=set)
    """The partitions whose records count for the quota of throttled replication."""
    was_looked_at: bool = False
    """True once all partitions that the request names were looked at."""
    later: dict[Place, None] = field(default_factory=dict)
    """The throttled partitions, which the next request looks at again."""
    is_woken: bool = True
    """True if a `Wake` was sent, or is not needed because the next `poll` comes anyway."""
    is_done: bool = False
    has_news: bool = False
    """True if a partition has an error or a divergence, or if a follower must hear of a high watermark at once."""
