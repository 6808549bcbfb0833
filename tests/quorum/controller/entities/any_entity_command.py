"""Any command of an embedder, good and bad, for `test_any_command`."""

from typing import Final

from hypothesis import strategies as st

from metadata_log.format.records import EntityKind, Owner
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import Command
from quorum.controller.protocol.entity_commands import (
    AlterKinds,
    CloseSession,
    Condition,
    DeleteEntity,
    DeleteTopic,
    EndExpiredSessions,
    OpenSession,
    OpenSessionReply,
    Operation,
    PutEntity,
    Transact,
)
from tests.quorum.controller.cluster import Cluster

SESSION: Final = b"a living session"
NUMBER: Final = st.sampled_from([-(2**63), -1, 0, 1, 1_000, 86_400_000, 2**31, 2**63 - 1])
KIND: Final = st.sampled_from(["shard", "job", "worker", "", "Job", "x" * 65])
NAME: Final = st.tuples(
    KIND, st.one_of(st.sampled_from(["a", "b", "ttl", "", "\0", "x" * 512, "é" * 257]), st.text(max_size=5))
)
BYTES: Final = st.one_of(st.sampled_from([b"", b"{}", b'{"host": 1}', bytes(70_000)]), st.binary(max_size=9))
SCHEMA: Final = st.sampled_from(["", "{", '{"type": "object"}', '{"pattern": "a"}', '{"$ref": "#"}', "x" * 20_000])


def settle(cluster: Cluster) -> None:
    """A session, a TTL, and an entity of broker 0: with owners of each sort."""
    opened = cluster.ask(OpenSession(SESSION, "worker", "CN=worker", 2_000), OpenSessionReply)
    broker = Owner(None, 0, cluster.image.brokers[0].broker_epoch)
    puts = (
        PutEntity(("shard", "a"), b"", owner=broker),
        PutEntity(("shard", "b"), b"", owner=Owner(SESSION, None, opened.epoch)),
        PutEntity(("shard", "ttl"), b"", ttl_ms=3_000),
        PutEntity(("job", "a"), b"{}"),
    )
    cluster.run(Transact((), puts))
    cluster.run(AlterKinds((EntityKind("job", '{"type": "object"}', 3, 0, 0),)))


def entity_commands(
    image: MetadataImage, topic: st.SearchStrategy[Operation], alteration: st.SearchStrategy[Operation]
) -> st.SearchStrategy[Command]:
    """Commands about entities that there are, or not."""
    sessions = [Owner(each.session_id, None, each.epoch) for each in image.client_sessions.values()]
    brokers = [Owner(None, each.broker_id, each.broker_epoch) for each in image.brokers.values()]
    owner = st.sampled_from([None, *sessions, *brokers, Owner(SESSION, None, 1), Owner(None, 77, 1)])
    ttl = st.one_of(st.just(0), st.just(5_000), NUMBER)
    version = st.one_of(st.sampled_from([each.version for each in image.entities.values()] or [0]), NUMBER)
    put = st.one_of(
        st.builds(PutEntity, NAME, BYTES, owner),
        st.builds(PutEntity, NAME, BYTES, st.none(), ttl, st.booleans()),
        st.builds(PutEntity, NAME, BYTES, owner, ttl, st.booleans()),
    )
    operation = st.one_of(
        put, put, st.builds(DeleteEntity, NAME), topic, alteration,
        st.builds(DeleteTopic, st.sampled_from(["orders", "alone", "nothing", "é"])),
    )  # fmt: skip
    condition = st.one_of(
        st.builds(Condition, NAME, st.booleans()),
        st.builds(Condition, NAME, version=version),
        st.builds(Condition, NAME, version_at_most=version),
        st.builds(Condition, NAME, value=BYTES),
    )
    kind = st.builds(EntityKind, KIND, SCHEMA, NUMBER, NUMBER, NUMBER)
    session_id = st.one_of(
        st.sampled_from([owner.session_id or b"" for owner in sessions] or [SESSION]),
        st.binary(min_size=16, max_size=16),
    )
    return st.one_of(
        st.builds(Transact, st.just(()), st.lists(operation, min_size=1, max_size=6).map(tuple)),
        st.builds(Transact, st.lists(condition, max_size=2).map(tuple), st.lists(operation, max_size=3).map(tuple)),
        st.builds(AlterKinds, st.lists(kind, max_size=3).map(tuple), st.lists(KIND, max_size=2).map(tuple)),
        st.builds(OpenSession, session_id, st.text(max_size=5), st.just("CN=any"), st.one_of(st.just(9_000), NUMBER)),
        st.builds(
            CloseSession, session_id, st.one_of(st.sampled_from([each.epoch for each in sessions] or [1]), NUMBER)
        ),
        st.builds(EndExpiredSessions),
    )
