"""The canonical order of an image's records, as byte strings that sort into it: what such keys are made of.

A snapshot holds features, controllers, brokers, topics by name with each topic's partitions behind it, configs, quotas,
producer ids, ACLs, SCRAM credentials, delegation tokens and requests that were done. An image walks its maps in that order
without these keys, in
`MetadataImage.canonical_records`; the Spark jobs, which meet the records in any order, sort by them. The rows of
`delta.REPLAYS` say what the key of each type is, and must say the same order. Compared byte for byte, as Spark compares
binary columns.

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
    """Ends with 00 00; a zero inside becomes 00 01, so that a value sorts before every longer one that begins with it."""
    return value.replace(b"\x00", b"\x00\x01") + b"\x00\x00"


def by_text(value: str) -> OrderKey:
    """UTF-8 sorts as the code points do, and so as Python's strings do."""
    return by_bytes(value.encode())


def by_quota(key: tuple[tuple[QuotaEntity, ...], str]) -> OrderKey:
    """Sorts the keys of quotas, of which some parts are None: the default entity comes before every named one."""
    entity, quota_key = key
    parts = [
        b"\x01" + by_text(part.entity_type) + (b"\x00" if part.name is None else b"\x01" + by_text(part.name))
        for part in entity
    ]
    return b"".join(parts) + b"\x00" + by_text(quota_key)
