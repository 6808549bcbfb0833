"""Pieces of a large request: a slice of its transaction takes as many pieces as one turn has time for."""

from collections.abc import Iterator
from typing import NamedTuple

from metadata_log.format.records import MetadataRecord


class Piece(NamedTuple):
    """Some records of a request, and the cost of deciding them. A piece without records has only checked something."""

    records: list[MetadataRecord]
    cost: int


def next_slice(pieces: Iterator[Piece], cost_max: int) -> tuple[list[MetadataRecord], bool]:
    """Takes pieces until their cost is `cost_max`. Returns their records, and whether there may be more pieces."""
    records: list[MetadataRecord] = []
    cost = 0
    for piece in pieces:
        records += piece.records
        cost += piece.cost
        if cost >= cost_max:
            return records, True
    return records, False
