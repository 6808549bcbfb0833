"""The place of a record in the state from which a history goes on.

Records of a state have numbers, and no offsets. Example: `_state` has record 2 of topic `orders`, and the bytes of the record are
wrong. "the record at offset 2" would send a person to the log, which is sound.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from metadata_log.format.errors import LogFormatError
from metadata_log.image.delta import InvalidRecord


@contextmanager
def in_first_state(of_what: str) -> Iterator[None]:
    """Name the place of a record of the state of `of_what` that cannot be decoded, or does not fit.

    Raises:
        LogFormatError: there is such a record.
    """
    try:
        yield
    except InvalidRecord as e:
        raise LogFormatError(
            f"record {e.offset} in the state of {of_what} does not fit: {e.reason}. The state is `_state` of the tables, or for "
            "new tables the snapshot below the log: make the tables anew in another directory, or use another node's log"
        ) from None
