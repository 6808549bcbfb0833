"""The list of things that a transcription leaves out: parts of Kafka's records without a counterpart, each with a reason."""

from typing import NamedTuple

from metadata_log.format.ids import Offset


class LeftOut(NamedTuple):
    """One kind of thing without a counterpart."""

    what: str
    """A type of record, or a part of one, for example `endPoints.securityProtocol`."""
    number: int
    """How many times it was there."""
    first_offset: Offset
    """The offset of the first record with it; in a snapshot the record's number."""
    reason: str


class Tally:
    """The things that were left out so far."""

    def __init__(self) -> None:
        self._found: dict[str, LeftOut] = {}

    def add(self, what: str, offset: Offset, reason: str) -> None:
        known = self._found.get(what) or LeftOut(what, 0, offset, reason)
        self._found[what] = known._replace(number=known.number + 1)

    def list(self) -> tuple[LeftOut, ...]:
        """Return all kinds, in the order of their names."""
        return tuple(self._found[what] for what in sorted(self._found))
