"""Fold a log entity by entity, in parallel, with the rules of `metadata_log.image.entities`.

    entities --repartition(entity), sort(entity, generation, offset)--> one pass per task, entity after entity

`fold_digests` returns the image's digest at any number of offsets in one pass, and the state at the last offset for the audit.
(`packed_fold` makes the records of a snapshot.) Example: two tasks fold topics A and B; task 1
returns the sum of the hashes of A's records, task 2 that of B's. The driver adds the two numbers: the digest is a plain
sum.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from metadata_log.format.codec import decode_records
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import (
    TYPE_NUMBERS,
    ClientSession,
    Entity,
    MetadataRecord,
    Owner,
    Partition,
    RegisterBroker,
    Topic,
)
from metadata_log.image.delta import InvalidRecord
from metadata_log.image.digest import MODULUS, digest_to_bytes, record_hash
from metadata_log.image.entities import OrderKey, fold
from metadata_log.image.entity_index import owner_text
from metadata_log.image.entity_key import EVERY_TOPIC
from snapshots.offline.rows import FROM_LOG, FROM_SNAPSHOT, entity_of, peek_type
from snapshots.offline.schema import Column, arrow_schema, spark_schema
from snapshots.offline.survey import Placed, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDED: Final = (
    Column("kind", "string"),
    Column("number", "long"),
    Column("value", "binary", True),
    Column("text", "string", True),
)
"""The output of `fold_digests`: see `_Totals`."""

_DECODE_RECORDS: Final = 500
_DECODE_BYTES: Final = 256 << 10

Batches = Iterator[pa.RecordBatch]


class Event(NamedTuple):
    """One record of one entity. The records of an entity are ordered by generation and offset."""

    generation: int
    offset: Offset
    payload: bytes


class EntityGroup(NamedTuple):
    entity: str
    events: list[Event]


def read_entities(
    spark: "SparkSession",
    path: str,
    *,
    until: Offset,
    since: Offset = 0,
    base: str | None = None,
    invisible: Iterable[tuple[Offset, Offset]] = (),
) -> "DataFrame":
    """Return the entities table of [since, until), preceded by the snapshot `base`."""
    options: dict[str, object] = {"until": until, "since": since, "invisible": [list(each) for each in invisible]}
    if base is not None:
        options["base"] = base
    entities = read_table(spark, [path], "entities", **options)
    return entities.repartition("entity").sortWithinPartitions("entity", "generation", "offset")


class FoldResult(NamedTuple):
    """The result of folding all entities of a log."""

    digests: dict[Offset, tuple[bytes, int]]
    """Digest and number of canonical records at each cut."""
    misfits: tuple[tuple[Offset, str, str], ...]
    """(offset, entity, reason) of records that do not fit the earlier ones."""
    brokers: dict[int, bool]
    """Registered brokers at the last cut: True if fenced."""
    in_isr: dict[int, str]
    """Brokers in any ISR that has other members or a leader at the last cut, with one partition as an example."""
    replicas: dict[int, str]
    """Brokers with any replica at the last cut, with an example."""
    ever: frozenset[int]
    """Brokers that were ever registered, in the log and the snapshot below it."""
    orphans: dict[str, str]
    """Owners whose session has ended at the last cut, in words -> an ephemeral entity that each owns still."""
    record_types: dict[str, int]
    """How many canonical records of each type exist at the last cut."""


def fold_digests(entities: "DataFrame", every_topic: Iterable[Placed], cuts: Iterable[Offset]) -> FoldResult:
    """Return the digests at each of `cuts`, the misfits, and the state at the last cut."""
    ordered = tuple(sorted(set(cuts)))
    run = _DigestsFold(_every_topic_events(every_topic), ordered)
    rows = entities.mapInArrow(run, spark_schema(FOLDED)).toArrow().to_pylist()
    sums = dict.fromkeys(ordered, 0)
    counts = dict.fromkeys(ordered, 0)
    misfits: list[tuple[Offset, str, str]] = []
    brokers: dict[int, bool] = {}
    examples: dict[str, dict[int, str]] = {"isr": {}, "replica": {}}
    types: dict[str, int] = {}
    ever: set[int] = set()
    owners: dict[str, str] = {}
    sessions: set[str] = set()
    for row in rows:
        kind, number = row["kind"], row["number"]
        if kind == "digest":
            sums[number] += int.from_bytes(row["value"], "big")
        elif kind == "count":
            counts[number] += int(row["text"])
        elif kind == "misfit":
            misfits.append((number, row["value"].decode(), row["text"]))
        elif kind == "broker":
            brokers[number] = row["text"] == "fenced"
        elif kind == "ever":
            ever.add(number)
        elif kind == "owner":
            owners.setdefault(row["text"], row["value"].decode())
        elif kind == "session":
            sessions.add(row["text"])
        elif kind == "type":
            types[row["text"]] = types.get(row["text"], 0) + number
        else:
            examples[kind].setdefault(number, row["text"])
    digests = {cut: (digest_to_bytes(sums[cut] % MODULUS), counts[cut]) for cut in ordered}
    orphans = {owner: example for owner, example in owners.items() if owner not in sessions}
    return FoldResult(
        digests, tuple(sorted(misfits)), brokers, examples["isr"], examples["replica"], frozenset(ever), orphans, types
    )


# --- on the workers ---------------------------------------------------------------------------------------------------


def _every_topic_events(placed: Iterable[Placed]) -> tuple[Event, ...]:
    return tuple(Event(FROM_LOG, each.offset, each.payload) for each in placed)


def _groups(batches: Batches, every_topic: tuple[Event, ...]) -> Iterator[EntityGroup]:
    """Return the entities of one task, each with all its events in order. The input is sorted, and an entity is in one
    task as a whole.
    """

    def rows() -> Iterator[tuple[str, Event]]:
        for batch in batches:
            columns = [batch.column(i).to_pylist() for i in range(4)]
            for entity, generation, offset, payload in zip(*columns, strict=True):
                yield entity, Event(generation, offset, payload)

    for entity, group in groupby(rows(), key=lambda row: row[0]):
        key = entity_of(entity)
        if key == EVERY_TOPIC:
            continue
        events = [event for _, event in group]
        if every_topic and key[0] == EVERY_TOPIC[0]:
            born = events[0]
            later = [e for e in every_topic if born.generation == FROM_SNAPSHOT or e.offset > born.offset]
            events = sorted([*events, *later])
        yield EntityGroup(entity, events)


def _decoded(events: list[Event]) -> Iterator[tuple[Offset, MetadataRecord]]:
    pending: list[Event] = []
    size = 0
    for event in events:
        if pending and (len(pending) >= _DECODE_RECORDS or size + len(event.payload) > _DECODE_BYTES):
            yield from _decode(pending)
            pending, size = [], 0
        pending.append(event)
        size += len(event.payload)
    yield from _decode(pending)


def _decode(events: list[Event]) -> Iterator[tuple[Offset, Any]]:
    records = decode_records(b"".join(event.payload for event in events), len(events))
    return zip((event.offset for event in events), records, strict=True)


def _record_batch(schema: pa.Schema, *columns: list[Any]) -> pa.RecordBatch:
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _DigestsFold:
    """Folds entities into partial sums; returns one RecordBatch per task, at the end."""

    def __init__(self, every_topic: tuple[Event, ...], cuts: tuple[Offset, ...]) -> None:
        self._every_topic = every_topic
        self._cuts = cuts

    def __call__(self, batches: Batches) -> Batches:
        totals = _Totals(self._cuts)
        for entity, events in _groups(batches, self._every_topic):
            totals.take(entity, events)
        rows = totals.rows()
        yield _record_batch(arrow_schema(FOLDED), *(map(list, zip(*rows, strict=True)) if rows else ([], [], [], [])))


class _Totals:
    """The sums of one task."""

    def __init__(self, cuts: tuple[Offset, ...]) -> None:
        self._cuts = cuts
        self._sums = dict.fromkeys(cuts, 0)
        self._counts = dict.fromkeys(cuts, 0)
        self._misfits: list[tuple[Offset, str, str]] = []
        self._brokers: dict[int, bool] = {}
        self._examples: dict[tuple[str, int], str] = {}
        self._types: dict[str, int] = {}
        self._ever: list[int] = []
        self._owners: dict[Owner, str] = {}
        self._sessions: list[Owner] = []

    def take(self, entity: str, events: list[Event]) -> None:
        key = entity_of(entity)
        if key[0] == "broker":
            self._ever.append(int(key[1]))
        elif key[0] == EVERY_TOPIC[0]:
            births = [event for event in events if peek_type(event.payload) == TYPE_NUMBERS[Topic]]
            self._misfits += [(event.offset, entity, "this topic id was used before") for event in births[1:]]
        state: list[tuple[OrderKey, MetadataRecord]] = []
        share, seen = 0, 0
        for cut in self._cuts:
            until = sum(1 for event in events if event.generation == FROM_SNAPSHOT or event.offset < cut)
            if until > seen:
                seen = until
                folded = self._fold(entity, events[:until])
                if folded is None:
                    return
                state = folded
                share = sum(record_hash(record) for _, record in state)
            self._sums[cut] += share
            self._counts[cut] += len(state)
        self._note_state(state)

    def _fold(self, entity: str, events: list[Event]) -> list[tuple[OrderKey, MetadataRecord]] | None:
        try:
            return fold(entity_of(entity), _decoded(events))
        except InvalidRecord as e:
            self._misfits.append((e.offset, entity, e.reason))
        except LogFormatError as e:
            self._misfits.append((events[-1].offset, entity, str(e)))
        return None

    def _note_state(self, state: list[tuple[OrderKey, MetadataRecord]]) -> None:
        topic = ""
        for _, record in state:
            name = type(record).__name__
            self._types[name] = self._types.get(name, 0) + 1
            if isinstance(record, Topic):
                topic = record.name
            elif isinstance(record, RegisterBroker):
                self._brokers[record.broker_id] = record.fenced
                if not record.fenced:
                    self._sessions.append(Owner(None, record.broker_id, record.broker_epoch))
            elif isinstance(record, ClientSession):
                self._sessions.append(Owner(record.session_id, None, record.epoch))
            elif isinstance(record, Entity) and record.owner is not None:
                self._owners.setdefault(record.owner, f"{record.kind} {record.name}")
            elif isinstance(record, Partition):
                # The ISR of a partition without a leader may have fenced members, so that the log still says who has
                # the data.
                for broker_id in record.isr if record.leader in record.isr else ():
                    self._examples.setdefault(("isr", broker_id), f"{topic}-{record.partition}")
                for broker_id in record.replicas:
                    self._examples.setdefault(("replica", broker_id), f"{topic}-{record.partition}")

    def rows(self) -> list[tuple[str, int, bytes | None, str | None]]:
        found: list[tuple[str, int, bytes | None, str | None]] = []
        for cut in self._cuts:
            found.append(("digest", cut, digest_to_bytes(self._sums[cut] % MODULUS), None))
            found.append(("count", cut, None, str(self._counts[cut])))
        found += [("misfit", offset, entity.encode(), reason) for offset, entity, reason in self._misfits]
        found += [
            ("broker", broker, None, "fenced" if fenced else "online") for broker, fenced in self._brokers.items()
        ]
        found += [(kind, broker, None, example) for (kind, broker), example in self._examples.items()]
        found += [("ever", broker, None, None) for broker in self._ever]
        found += [
            ("owner", owner.epoch, example.encode(), owner_text(owner)) for owner, example in self._owners.items()
        ]
        found += [("session", owner.epoch, None, owner_text(owner)) for owner in self._sessions]
        found += [("type", count, None, name) for name, count in self._types.items()]
        return found
