"""`help()` names what a program reads: `help` leaves attributes of an instance out."""

import pytest

from metaquorum import AdminClient, Config, EntityClient, Lock, Membership, Session
from tests.clients.fake_entities import FakeCluster, one_client


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Config, "current"),
        (Config, "problems"),
        (Config, "token"),
        (Membership, "token"),
        (Session, "lost"),
        (Session, "session_id"),
        (Session, "epoch"),
        (Session, "generation"),
        (Lock, "token"),
        (EntityClient, "past_offset"),
        (AdminClient, "past_offset"),
    ],
)
def test_a_property_has_words(owner: type, name: str) -> None:
    assert isinstance(vars(owner).get(name) or getattr(owner, name), property)
    assert (getattr(owner, name).__doc__ or "").strip()


async def test_a_client_of_the_past_says_which_state_it_showed() -> None:
    cluster = FakeCluster()
    cluster.put("shard", "7", b"")
    async with one_client(cluster) as client:
        past = client.at(offset=cluster.end)
        await past.get("shard", "7")
        assert [each.past_offset for each in (client, past, past.at(offset=1))] == [None, cluster.end, None]
