"""The quota that holds for a client: Kafka's precedence, against the table of its documentation written as a list."""

import random
from typing import Final

import pytest

from broker_agent.cache import MetadataCache
from metadata_log.format.records import ClientQuota, QuotaEntity
from metadata_log.image.changes import Changes
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance

KEY: Final = "producer_byte_rate"
ORDER: Final[tuple[dict[str, str | None], ...]] = (
    {"client-id": "web", "user": "alice"},
    {"client-id": None, "user": "alice"},
    {"user": "alice"},
    {"client-id": "web", "user": None},
    {"client-id": None, "user": None},
    {"user": None},
    {"client-id": "web"},
    {"client-id": None},
)


def image_of(*quotas: ClientQuota, before: MetadataImage = EMPTY_IMAGE) -> tuple[MetadataImage, Changes]:
    delta = MetadataDelta(before)
    for offset, quota in enumerate(quotas, before.offset):
        delta.replay(quota, offset)
    return delta.finish(Provenance(before.offset + len(quotas), 1, 1)), delta.changed


def quota(entity: dict[str, str | None], value: float | None) -> ClientQuota:
    return ClientQuota(tuple(QuotaEntity(*part) for part in sorted(entity.items())), KEY, value)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_entity_of_the_order_decides(seed: int) -> None:
    dice = random.Random(seed)
    there = [rank for rank in range(len(ORDER)) if dice.random() < 0.4]
    others = [quota({"user": "bob"}, 98.0), quota({"client-id": "batch", "user": "alice"}, 99.0)]
    image, _ = image_of(*[quota(ORDER[rank], float(rank + 1)) for rank in there], *others)
    cache = MetadataCache()
    cache.swap(image, Changes.between(EMPTY_IMAGE, image))
    assert cache.current.client_quota(KEY, "alice", "web") == (there[0] + 1.0 if there else None)
    assert cache.current.client_quota("consumer_byte_rate", "alice", "web") is None


def test_an_address_comes_before_the_default_of_all_addresses() -> None:
    values = ((None, 5.0), ("::1", 9.0))
    quotas = [ClientQuota((QuotaEntity("ip", name),), "connection_creation_rate", value) for name, value in values]
    image, changes = image_of(*quotas)
    cache = MetadataCache()
    cache.swap(image, changes)
    found = [cache.current.ip_quota("connection_creation_rate", address) for address in ("::1", "10.0.0.1")]
    assert found == [9.0, 5.0]


def test_a_publisher_is_told_that_something_has_changed() -> None:
    """`Changes.others` is true, so the update is not empty; also if a snapshot was loaded instead of the records."""
    image, changes = image_of(quota({"user": "alice"}, 5.0))
    later, removed = image_of(quota({"user": "alice"}, None), before=image)
    assert changes.others and removed.others and Changes.between(EMPTY_IMAGE, image).others
    assert not later.quotas
