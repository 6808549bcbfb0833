"""Numbers of variable length, as Kafka's batches and messages have them.

An unsigned varint has 7 bits in each byte, lowest first; the high bit says that another byte follows. A signed varint is the
zigzag of a number: 0, -1, 1, -2, ... are 0, 1, 2, 3, ... Example:
  1. 300 is 0b10_0101100: the bytes are AC 02.
  2. -1 is the zigzag 1: the byte 01.
  3. A varint of 32 bits has 5 bytes at most, one of 64 bits 10; a longer one is damage, not a longer number.
"""

from typing import Final

from snapshots.offline.kafka.errors import KafkaFormatError

_VARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10


def unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 32 bits, and the position behind it.

    Raises:
        KafkaFormatError: the number has more than 32 bits.
        IndexError: the bytes end inside the number.
    """
    return _unsigned(data, at, _VARINT_BYTES_MAX, 32)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a signed number of 32 bits, and the position behind it. Raises as `unsigned_varint`."""
    zigzag, at = _unsigned(data, at, _VARINT_BYTES_MAX, 32)
    return (zigzag >> 1) ^ -(zigzag & 1), at


def varlong(data: bytes, at: int) -> tuple[int, int]:
    """Return a signed number of 64 bits, and the position behind it. Raises as `unsigned_varint`."""
    zigzag, at = _unsigned(data, at, _VARLONG_BYTES_MAX, 64)
    return (zigzag >> 1) ^ -(zigzag & 1), at


def _unsigned(data: bytes, at: int, bytes_max: int, bits: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    for place in range(at + 1, at + bytes_max):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, place + 1
        shift += 7
    raise KafkaFormatError(f"a varint has more than {bits} bits")
