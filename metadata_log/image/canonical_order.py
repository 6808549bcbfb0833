"""Sort keys for the canonical order of an image's records.

A snapshot has features, controllers, brokers, topics by name (each followed by its partitions), configs, quotas,
producer ids, ACLs, SCRAM credentials, delegation tokens, request outcomes, modes of brokers, the floor of epochs, kinds,
sessions of clients, entities by kind and name, definitions of config keys, and labels, in this order. There are two ways
to this order, and both must agree:
  * `MetadataImage.canonical_records` walks the maps of an image in this order, without sort keys;
  * the Spark jobs read records in any order, and sort by keys. The rows of `delta.REPLAYS` make the key of each type.
Keys are compared byte by byte, as Spark compares binary columns.

    section (1 byte) | fields of the entity's key, each escaped so that no key is the beginning of another
"""

import struct
from typing import Final

from metadata_log.format.records import QuotaEntity

OrderKey = bytes

_U64 = struct.Struct(">Q")
_SIGN: Final = 1 << 63


def by_number(value: int) -> OrderKey:
    return _U64.pack(value + _SIGN)


def by_bytes(value: bytes) -> OrderKey:
    """End with 00 00 and write a zero inside as 00 01, so that a value sorts before every longer value that begins with
    it.
    """
    return value.replace(b"\x00", b"\x00\x01") + b"\x00\x00"


def by_text(value: str) -> OrderKey:
    """Use UTF-8, which sorts as code points do, and so as Python's strings do."""
    return by_bytes(value.encode())


def by_quota(key: tuple[tuple[QuotaEntity, ...], str]) -> OrderKey:
    """Sort the keys of quotas. A default entity (name None) comes before every named one."""
    entity, quota_key = key
    parts = [
        b"\x01" + by_text(part.entity_type) + (b"\x00" if part.name is None else b"\x01" + by_text(part.name))
        for part in entity
    ]
    return b"".join(parts) + b"\x00" + by_text(quota_key)
