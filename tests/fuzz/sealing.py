"""Makes checksums right again: what lies behind a CRC is only reached by bytes whose CRC fits.

`sealed` walks over whatever still looks like batches, and gives each a CRC that fits; its chain too, if asked. The rest stays
as it is.
"""

import hashlib
import struct
from collections.abc import Sequence
from random import Random
from typing import Final

import google_crc32c

from metadata_log.format.batch import BATCH_BYTES_MAX, HEADER_BYTES
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from tests.fuzz.mutation import EXTREMES, Mutate, mutated


def sealed(data: bytes, *, start: int = 0, chain: bytes | None = None, lengths: bool = False) -> bytes:
    """`data` with fitting CRCs from `start` on. With `chain`, each batch continues the one before, the first one `chain`.

    With `lengths` a batch whose length leads beyond the end is said to end there.
    """
    out = bytearray(data)
    position = start
    while position + HEADER_BYTES < len(out):
        length = int.from_bytes(out[position + 4 : position + 8], "big")
        if not HEADER_BYTES < length <= min(BATCH_BYTES_MAX, len(out) - position):
            if not lengths:
                break
            length = min(BATCH_BYTES_MAX, len(out) - position)
            out[position + 4 : position + 8] = length.to_bytes(4, "big")
        if chain is not None:
            chain = _chain(chain, bytes(out[position : position + length]))
            out[position + 48 : position + 80] = chain
        out[position + 8 : position + 12] = _crc(out[position + 12 : position + length])
        position += length
    return bytes(out)


def sealed_segment(data: bytes, *, chained: bool) -> bytes:
    """As `sealed`, for a segment: its header's CRC fits as well."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return data
    head = bytearray(data[:SEGMENT_HEADER_BYTES])
    crc_at = 64 if head[8:10] == b"\x00\x01" else 68  # of version 1, and of all since
    head[crc_at : crc_at + 4] = _crc(head[:crc_at])
    chain = bytes(head[crc_at - 32 : crc_at]) if chained else None
    return sealed(bytes(head) + data[SEGMENT_HEADER_BYTES:], start=SEGMENT_HEADER_BYTES, chain=chain)


def sealed_note(data: bytes) -> bytes:
    """Of `flushed` and `lost`."""
    return data[:48] + _crc(data[:48]) if len(data) >= 52 else data


def sealed_line(data: bytes) -> bytes:
    """Of `log-start`: a line, and its CRC in a second one."""
    line = data.split(b"\n")[0]
    return b"%s\n%08x\n" % (line, google_crc32c.value(line))


def batches_mutated(first_chain: bytes | None) -> Mutate:
    """Batches end to end: hurt anywhere, or in one field of a header, or in the records; the CRCs fit three times in four."""

    def mutate(rng: Random, samples: Sequence[bytes]) -> bytes:
        kind = rng.random()
        data = mutated(rng, samples) if kind < 0.6 else _field_mutated(rng, rng.choice(samples))
        if rng.random() < 0.25:
            return data
        return sealed(data, chain=first_chain if rng.random() < 0.5 else None, lengths=rng.random() < 0.5)

    return mutate


_FIELDS: Final = (
    (0, 1),
    (1, 1),
    (2, 2),
    (4, 4),
    (12, 4),
    (16, 8),
    (24, 4),
    (28, 4),
    (32, 8),
    (40, 8),
    (80, 8),
    (88, 4),
    (92, 4),
)
"""Where the numbers of a header and of a stamp stand, and how wide they are."""


def _field_mutated(rng: Random, sample: bytes) -> bytes:
    out = bytearray(sample)
    position = 0
    starts = []
    while position + HEADER_BYTES < len(out):
        starts.append(position)
        position += max(HEADER_BYTES, struct.unpack_from(">I", out, position + 4)[0])
    at, width = rng.choice(_FIELDS)
    at += rng.choice(starts or [0])
    value = rng.choice(EXTREMES) if rng.random() < 0.6 else rng.randrange(20)
    out[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "big")
    return bytes(out)


def _chain(previous: bytes, batch: bytes) -> bytes:
    return hashlib.sha256(b"".join((previous, batch[:8], batch[12:48], batch[80:]))).digest()


def _crc(data: bytes | bytearray) -> bytes:
    value: int = google_crc32c.value(bytes(data))
    return value.to_bytes(4, "big")
