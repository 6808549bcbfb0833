"""The canonical order of an image's records, as byte strings that sort into it.

A snapshot holds features, controllers, brokers, topics by name with each topic's partitions behind it, configs, quotas,
producer ids, ACLs, SCRAM credentials and delegation tokens. An image walks its maps in that order without these keys
(in `MetadataImage.canonical_records`; the order is said there and here, and must be the same); the Spark jobs, which
meet the records in any order, sort by them. Compared byte for byte, as Spark compares binary columns.

    section (1 byte) | fields of the entity's key, each escaped so that no key is the beginning of another
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from metadata_log.records import (
    AccessControlEntry,
    ClientQuota,
    Config,
    DelegationToken,
    FeatureLevel,
    MetadataRecord,
    ProducerIds,
    QuotaEntity,
    RegisterBroker,
    RegisterController,
    UserScramCredential,
)

OrderKey = bytes

_U64 = struct.Struct(">Q")
_SIGN: Final = 1 << 63


def _number(value: int) -> bytes:
    return _U64.pack(value + _SIGN)


def _bytes(value: bytes) -> bytes:
    """Ends with 00 00; a zero inside becomes 00 01, so that a value sorts before every longer one that begins with it."""
    return value.replace(b"\x00", b"\x00\x01") + b"\x00\x00"


def _text(value: str) -> bytes:
    """UTF-8 sorts as the code points do, and so as Python's strings do."""
    return _bytes(value.encode())


def quota_order(key: tuple[tuple[QuotaEntity, ...], str]) -> bytes:
    """Sorts the keys of quotas, of which some parts are None: the default entity comes before every named one."""
    entity, quota_key = key
    parts = [
        b"\x01" + _text(part.entity_type) + (b"\x00" if part.name is None else b"\x01" + _text(part.name))
        for part in entity
    ]
    return b"".join(parts) + b"\x00" + _text(quota_key)


def topic_order_key(name: str) -> OrderKey:
    """Where the `Topic` record of this name stands."""
    return b"\x03" + _text(name)


def partition_order_key(topic_name: str, partition: int) -> OrderKey:
    """Where a `Partition` stands: behind its topic. It carries only the topic's id, so the name must be known."""
    return b"\x03" + _text(topic_name) + _number(partition)


_KEYS: Final[dict[type, Callable[[Any], bytes]]] = {
    FeatureLevel: lambda r: b"\x00" + _text(r.name),
    RegisterController: lambda r: b"\x01" + _number(r.controller_id),
    RegisterBroker: lambda r: b"\x02" + _number(r.broker_id),
    Config: lambda r: b"\x04" + _number(r.resource_type) + _text(r.resource_name) + _text(r.key),
    ClientQuota: lambda r: b"\x05" + quota_order((r.entity, r.key)),
    ProducerIds: lambda r: b"\x06",
    AccessControlEntry: lambda r: b"\x07" + _bytes(r.entry_id),
    UserScramCredential: lambda r: b"\x08" + _text(r.user) + _number(r.mechanism),
    DelegationToken: lambda r: b"\x09" + _text(r.token_id),
}


def order_key(record: MetadataRecord) -> OrderKey:
    """Where a canonical record that is neither a `Topic` nor a `Partition` stands."""
    return _KEYS[type(record)](record)
