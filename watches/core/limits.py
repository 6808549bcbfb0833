"""The limits of a node's watches, for its configuration."""

from typing import Final

WATCHES_MAX: Final = 5_000
"""The default of the key `watches.max`."""
WATCHES_MAX_MAX: Final = 9_000
"""Maximum of the key: a gRPC server takes 10,000 calls at a time, and the other calls need some of them."""
BUFFER_BYTES: Final = 1 << 20
"""Maximum size of the messages that wait for one client."""
BOOKMARKS_PER_S_MAX: Final = 2_000
"""How many messages without events the watches of a node may want in a second: a third of a core. 9,000 watches with the default
interval want 1,800."""
