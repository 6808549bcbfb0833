"""The quota that holds for a client, with Kafka's precedence (ClientQuotaManager).

The first of these entities that has the key decides:

    1  user and client id        5  default user, default client id
    2  user, default client id   6  default user
    3  user                      7  client id
    4  default user, client id   8  default client id

Example. `producer_byte_rate` is 500 for user alice, and 100 for client id web.
    1. Alice's client web has 500, because an entity with a user comes first.
    2. Bob's client web has 100.
"""

from metadata_log.format.records import QuotaEntity
from metadata_log.image.metadata_image import MetadataImage


def client_quota(image: MetadataImage, key: str, user: str, client_id: str) -> float | None:
    """Returns the value of `key` for a client; None if it has no such quota. At most eight look-ups."""
    users, clients = (user, None), (client_id, None)
    for name in users:
        of_user = QuotaEntity("user", name)
        for client in clients:
            found = _value(image, key, QuotaEntity("client-id", client), of_user)
            if found is not None:
                return found
        found = _value(image, key, of_user)
        if found is not None:
            return found
    return next((value for client in clients if (value := _value(image, key, QuotaEntity("client-id", client)))), None)


def ip_quota(image: MetadataImage, key: str, address: str) -> float | None:
    """Returns the value of `key` for an address, or else of the default of all addresses; None if there is neither."""
    own = _value(image, key, QuotaEntity("ip", address))
    return own if own is not None else _value(image, key, QuotaEntity("ip", None))


def _value(image: MetadataImage, key: str, *entity: QuotaEntity) -> float | None:
    """The value of the key for exactly this entity, whose parts are sorted by type."""
    found = image.quotas.get((entity, key))
    value: float | None = None if found is None else found.value
    return value
