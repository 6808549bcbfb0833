"""What the watches of one node count, for its metrics page."""

from service_kit.process.tallies import Counter
from watches.core.position import ResetReason


class WatchTallies:
    """The counters of one node's watches. The event loop adds to them."""

    def __init__(self) -> None:
        self.open = 0
        """How many watches are open."""
        self.events = Counter()
        """Events that were sent, over all watches."""
        self.resets = Counter(*(each.name.lower() for each in ResetReason))
        """Times that a watch has begun, or gone on, with the state."""
        self.cut = Counter()
        """Watches that were ended because their client was too slow."""
        self.batches = Counter()
        """Batches that were decoded for watches, each once for all watches of the node."""
