"""Entities, kinds and sessions in the image: what each record does, and which records replay refuses."""

import pytest

from metadata_log.format.ids import Offset
from metadata_log.format.records import (
    FROM_OFFSET,
    METADATA_VERSION,
    BrokerRegistrationChange,
    ClientSession,
    EndClientSession,
    Entity,
    EntityKind,
    FeatureLevel,
    MetadataRecord,
    Owner,
    RemoveEntity,
    RemoveEntityKind,
    UnregisterBroker,
)
from metadata_log.image.changes import Changes
from metadata_log.image.delta import InvalidRecord, MetadataDelta
from metadata_log.image.entity_index import KindUsage
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from tests.metadata_log.image.histories import broker, newest_level, uuid

A, B = uuid(1), uuid(2)
SESSION = ClientSession(A, "worker", "anonymous", 9_000)
"""At offset 10 of `WITH_SESSIONS`; broker 7 is registered at 11, and unfenced at 12."""
ONLINE = (broker(7), BrokerRegistrationChange(7, 11, fenced=False))
OF_A, OF_7 = Owner(A, None, 10), Owner(None, 7, 11)


def replayed(image: MetadataImage, *records: MetadataRecord, at: Offset | None = None) -> MetadataImage:
    """The image after the records, which begin at `at`; in one delta, and checked."""
    offset = image.offset if at is None else at
    delta = MetadataDelta(image)
    delta.replay_all(records, offset)
    after = delta.finish(Provenance(offset + len(records), 1, 1_000))
    after.check_invariants()
    return after


WITH_SESSIONS = replayed(newest_level(), SESSION, *ONLINE, at=10)
"""Ends at 13."""


def refused(image: MetadataImage, *records: MetadataRecord) -> str:
    """Why the last of the records does not fit."""
    *before, last = records
    after = replayed(image, *before)
    with pytest.raises(InvalidRecord) as caught:
        MetadataDelta(after).replay(last, after.offset)
    return caught.value.reason


def test_the_version_is_the_offset_of_the_last_write() -> None:
    """And `created` stays until the entity is removed."""
    image = replayed(WITH_SESSIONS, Entity("shard", "7", b"one", None))
    assert image.entity("shard", "7") == Entity("shard", "7", b"one", None, 13, 13)
    image = replayed(image, Entity("shard", "7", b"three", None, created=13))
    assert image.entity("shard", "7") == Entity("shard", "7", b"three", None, 13, 14)
    image = replayed(image, RemoveEntity("shard", "7"), Entity("shard", "7", b"", None))
    assert image.entity("shard", "7") == Entity("shard", "7", b"", None, 16, 16)


def test_the_use_of_a_kind_counts_names_and_values() -> None:
    image = replayed(WITH_SESSIONS, Entity("lock", "é", b"123", None), Entity("shard", "a", b"", None))
    assert dict(image.kind_usage.items()) == {"lock": KindUsage(1, 5), "shard": KindUsage(1, 1)}
    assert image.entity_bytes == 6
    image = replayed(image, Entity("lock", "é", b"", None, created=13), RemoveEntity("shard", "a"))
    assert dict(image.kind_usage.items()) == {"lock": KindUsage(1, 2)}
    assert image.entity_bytes == 2


def test_an_owner_is_a_session_of_a_client_or_of_a_broker() -> None:
    image = replayed(WITH_SESSIONS, Entity("lock", "a", b"", OF_A), Entity("lock", "b", b"", OF_7))
    assert dict(image.owned.items()) == {OF_A: {("lock", "a")}, OF_7: {("lock", "b")}}
    image = replayed(image, Entity("lock", "a", b"", OF_7, created=13), Entity("lock", "b", b"", None, created=14))
    assert dict(image.owned.items()) == {OF_7: {("lock", "a")}}


PUT_A, PUT_7 = Entity("lock", "a", b"", OF_A), Entity("lock", "a", b"", OF_7)

REFUSED: list[tuple[str, tuple[MetadataRecord, ...]]] = [
    ("exists since 13, and is created", (Entity("k", "n", b"", None), Entity("k", "n", b"", None))),
    ("does not exist, and a write names", (Entity("k", "n", b"", None, created=4),)),
    ("exists since 13, and a write names", (Entity("k", "n", b"", None), Entity("k", "n", b"", None, created=12))),
    ("with the version 13", (Entity("k", "n", b"", None, 13, 13),)),
    ("there is no entity ('k', 'n')", (RemoveEntity("k", "n"),)),
    ("'K' is no kind", (Entity("K", "n", b"", None),)),
    ("the name of an entity is empty", (Entity("k", "", b"", None),)),
    ("has a control character", (Entity("k", "a\nb", b"", None),)),
    ("longer than 512 bytes", (Entity("k", "é" * 257, b"", None),)),
    ("a value of 262145 bytes", (Entity("k", "n", bytes((256 << 10) + 1), None),)),
    ("with the owner Owner(session_id=None, broker_id=None", (Entity("k", "n", b"", Owner(None, None, 10)),)),
    ("broker_id=7, epoch=10", (Entity("k", "n", b"", Owner(A, 7, 10)),)),
    ("of epoch 9, which is not open", (Entity("k", "n", b"", Owner(A, None, 9)),)),
    ("AAAAAAAAAAAAAAAAAAAAAg of epoch 10, which is not open", (Entity("k", "n", b"", Owner(B, None, 10)),)),
    ("broker 7 of epoch 12, which is not open", (Entity("k", "n", b"", Owner(None, 7, 12)),)),
    ("broker 8 of epoch 11, which is not open", (Entity("k", "n", b"", Owner(None, 8, 11)),)),
    ("broker 7 of epoch 11, which is not open", (BrokerRegistrationChange(7, 11, fenced=True), PUT_7)),
    ("of epoch 10 ends and owns 1 entities", (PUT_A, EndClientSession(A, 10, "expired"))),
    ("broker 7 of epoch 11 ends and owns 1 ", (PUT_7, BrokerRegistrationChange(7, 11, fenced=True))),
    ("broker 7 of epoch 11 ends and owns 1 ", (PUT_7, UnregisterBroker(7, 11))),
    ("broker 7 of epoch 11 ends and owns 1 ", (PUT_7, broker(7, incarnation=2))),
    ("broker 7 of epoch 11 ends and owns 1 ", (PUT_7, broker(7, broker_epoch=11))),
    ("is open already", (SESSION,)),
    ("with epoch 13", (ClientSession(B, "", "", 9_000, 13),)),
    ("a field is out of its limits", (ClientSession(B, "", "", 999),)),
    ("a field is out of its limits", (ClientSession(B, "x" * 257, "", 1_000),)),
    ("is not open, and epoch 10", (EndClientSession(B, 10, "expired"),)),
    ("has epoch 10, and epoch 11", (EndClientSession(A, 11, "expired"),)),
    ("with the reason 'bored'", (EndClientSession(A, 10, "bored"),)),
    ("there is no kind k to remove", (RemoveEntityKind("k"),)),
    ("'-k' is no kind", (EntityKind("-k", "", 0, 0, 0),)),
    ("kind k: a field is out of its limits", (EntityKind("k", "", -1, 0, 0),)),
    ("kind k: a field is out of its limits", (EntityKind("k", "", 0, 0, (256 << 10) + 1),)),
    ("kind k: a field is out of its limits", (EntityKind("k", "x" * ((16 << 10) + 1), 0, 0, 0),)),
]


@pytest.mark.parametrize(("reason", "records"), REFUSED)
def test_a_record_that_does_not_fit_is_refused(reason: str, records: tuple[MetadataRecord, ...]) -> None:
    assert reason in refused(WITH_SESSIONS, *records)


@pytest.mark.parametrize("end", [BrokerRegistrationChange(7, 11, fenced=True), UnregisterBroker(7, 11), broker(7, 2)])
def test_a_session_ends_in_the_batch_that_removes_its_entities(end: MetadataRecord) -> None:
    """In one delta and record by record alike."""
    image = replayed(WITH_SESSIONS, PUT_7, PUT_A._replace(name="b"))
    after = replayed(image, RemoveEntity("lock", "a"), end)
    assert [*after.entities] == [("lock", "b")]
    after = replayed(after, RemoveEntity("lock", "b"), EndClientSession(A, 10, "closed"))
    assert not after.entities and not after.client_sessions and not after.owned


def test_the_same_process_that_registers_again_keeps_its_entities() -> None:
    """An unfenced broker whose registration changes keeps epoch and session."""
    image = replayed(WITH_SESSIONS, PUT_7)
    now = image.brokers[7]
    assert [*replayed(image, now._replace(rack="rack-2")).entities] == [("lock", "a")]


def test_an_owner_has_a_thousand_entities_at_most() -> None:
    """They are removed in one batch."""
    image = replayed(WITH_SESSIONS, *(Entity("k", str(number), b"", OF_A) for number in range(1_000)))
    assert "owns more than 1000" in refused(image, Entity("k", "one", b"", OF_A))
    assert len(replayed(image, Entity("k", "0", b"x", OF_A, created=13)).owned[OF_A]) == 1_000
    assert len(replayed(image, RemoveEntity("k", "0"), Entity("k", "one", b"", OF_A)).owned[OF_A]) == 1_000


def test_below_level_3_none_of_these_records_fits() -> None:
    image = replayed(WITH_SESSIONS, FeatureLevel(METADATA_VERSION, 2))
    for record in (*[records[-1] for _, records in REFUSED], Entity("k", "n", b"", None)):
        if not isinstance(record, BrokerRegistrationChange | UnregisterBroker | type(broker(1))):
            assert "needs metadata.version 3" in refused(image, record)


def test_changes_name_what_was_written_and_what_has_gone() -> None:
    delta = MetadataDelta(WITH_SESSIONS)
    records = (PUT_A, RemoveEntity("lock", "a"), EntityKind("k", "", 0, 0, 0), EndClientSession(A, 10, "expired"))
    delta.replay_all(records, 13)
    assert delta.changed.entities == {("lock", "a")}
    assert delta.changed.entity_kinds == {"k"}
    assert delta.changed.client_sessions == {A}
    assert delta.changed and not delta.changed.others


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ((Entity("k", "n", b"", None),), "with the version -1"),
        ((Entity("k", "n", b"", None, 5, 4),), "with the version 4"),
        ((Entity("k", "n", b"", None, 4, 5), Entity("k", "n", b"", None, 4, 6)), "comes twice"),
        ((Entity("k", "n", b"", OF_A, 4, 5),), "which is not open"),
        ((ClientSession(A, "", "", 9_000, FROM_OFFSET),), "with epoch -1"),
        ((RemoveEntity("k", "n"),), "cannot be in a snapshot"),
    ],
)
def test_a_bad_record_of_a_snapshot_is_refused(records: tuple[MetadataRecord, ...], reason: str) -> None:
    delta = MetadataDelta(newest_level(), kind=DeltaKind.LOADING)
    for record in records[:-1]:
        delta.replay(record, 0)
    with pytest.raises(InvalidRecord) as caught:
        delta.replay(records[-1], 1)
    assert reason in caught.value.reason


def reloaded(image: MetadataImage) -> MetadataImage:
    """The image as a snapshot of it is loaded: no part of it is shared."""
    delta = MetadataDelta(EMPTY_IMAGE, kind=DeltaKind.LOADING)
    for place, record in enumerate(image.canonical_records()):
        delta.replay(record, place)
    return delta.finish(image.provenance)


@pytest.mark.parametrize("through_a_snapshot", [False, True])
def test_two_images_differ_in_what_was_written_removed_or_opened(through_a_snapshot: bool) -> None:
    """Whether the later image shares chunks with the earlier one, or was loaded from a snapshot."""
    many = [Entity("k", f"{number:04d}", b"", None) for number in range(1_500)]
    before = replayed(WITH_SESSIONS, *many, PUT_A, EntityKind("k", "", 0, 0, 0))
    later = (Entity("k", "0700", b"x", None, created=713), RemoveEntity("k", "1400"), Entity("k", "new", b"", OF_7))
    after = replayed(before, *later, RemoveEntityKind("k"), ClientSession(B, "", "", 9_000))
    changes = Changes.between(before, reloaded(after) if through_a_snapshot else after)
    assert changes.entities == {("k", "0700"), ("k", "1400"), ("k", "new")}
    assert (changes.entity_kinds, changes.client_sessions, changes.brokers) == ({"k"}, {B}, set())
    assert not changes.others
    assert Changes.between(EMPTY_IMAGE, reloaded(after)).entities == set(after.entities)
    assert not Changes.between(after, reloaded(after))
