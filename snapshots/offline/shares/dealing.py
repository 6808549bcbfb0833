"""Deal the records of a log into shares, so that each share can be replayed strictly, alone.

    common      features, brokers and their modes, markers of transactions    every share: the laws of all records need them
    of a topic  the topic, its partitions, configs and labels                 the share of the topic's NAME
    the rest    entities, sessions, rights, requests, controllers ...         share 0, requests the next one

The share depends on the name, because two topics of one name must meet. Records of partitions have only the topic's id, so a
first pass over the log finds the names of all ids. Example, with two shares:
  1. Topic("orders", A) has share 1, because of its name; PartitionChange(A, 0) has share 1, because A is called orders;
  2. a leader with a bug creates Topic("orders", B): share 1 too, whose replay refuses the second topic of this name;
  3. the fence of broker 7 is in both shares: each share knows the registered brokers.

Share 0 alone reports misfits of common records, and counts common records in the digest.

The records of a share travel as they are in the log, some thousand in one row. The row has their offsets and sizes; the first
record of each batch is marked.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from metadata_log.format.batch import FORMAT_VERSION, Batch, check_format
from metadata_log.format.codec import UnknownRecord, decode_batch, decode_record, encode_valid, split_payload
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.partition_bytes import ID_AT, NUMBER_AT, PARTITION_MARK
from metadata_log.format.partition_runs import PartitionRun, columns_of
from metadata_log.format.records import (
    TOPIC_RESOURCE,
    TYPE_NUMBERS,
    AbortTransaction,
    BeginTransaction,
    BrokerMode,
    BrokerRegistrationChange,
    ClearElr,
    Config,
    EndTransaction,
    EpochsRaised,
    FeatureLevel,
    Label,
    MetadataRecord,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveTopic,
    RequestOutcome,
    SkippedBatch,
    Topic,
    UnregisterBroker,
)
from metadata_log.image.skips import names
from snapshots.offline.rows import FROM_LOG, FROM_SNAPSHOT, peek_type
from snapshots.offline.schema import Column

DEALT: Final = (
    Column("share", "int"),
    Column("generation", "int"),
    Column("first", "long"),
    Column("offsets", "binary"),
    Column("sizes", "binary"),
    Column("payload", "binary"),
)
"""One row for some thousand records of one share. `generation` as in the table `entities`."""

BATCH_BEGINS: Final = 1 << 31
"""The bit in the size of the first record of each batch in its share."""
PROBLEM: Final = 1 << 30
"""The bit in the size of an item that is the text of a finding: the rule, a line end, and the reason."""
SIZE: Final = PROBLEM - 1

UNKNOWN: Final = "unknown-record"
MALFORMED: Final = "record-malformed"
UNREAD: Final = "unread"
"""No finding: a part of the log could not be read, so nothing that was found counts."""

_COMMON: Final = (
    FeatureLevel, RegisterBroker, UnregisterBroker, BrokerRegistrationChange, BrokerMode,
    BeginTransaction, EndTransaction, AbortTransaction,
)  # fmt: skip
COMMON: Final = frozenset(TYPE_NUMBERS[cls] for cls in _COMMON)
_OF_TOPICS: Final = frozenset(
    TYPE_NUMBERS[cls] for cls in (Topic, RemoveTopic, Partition, PartitionChange, EpochsRaised, ClearElr, Config, Label)
)
_REQUEST: Final = TYPE_NUMBERS[RequestOutcome]
_TOPIC: Final = TYPE_NUMBERS[Topic]

_MARKS: Final = frozenset(
    bytes([TYPE_NUMBERS[cls], *PARTITION_MARK[1:]]) for cls in (PartitionChange, Partition, EpochsRaised)
)
"""The bytes before the topic id of the records whose first field is a topic id, behind the array's head."""

_FULL_BYTES: Final = 1 << 20
_FULL_RECORDS: Final = 20_000

Row = tuple[int, int, Offset, bytes, bytes, bytes]


class Topics(NamedTuple):
    """The share of each topic."""

    share_count: int
    of_id: Mapping[Uuid, int]
    of_name: Mapping[str, int]
    """Only names that share an id with another name; all other names have the share of their hash."""

    def by_name(self, name: str) -> int:
        share = self.of_name.get(name)
        return _hashed(name.encode(), self.share_count) if share is None else share

    def by_id(self, topic_id: Uuid) -> int:
        share = self.of_id.get(topic_id)
        return _hashed(topic_id, self.share_count) if share is None else share


def _hashed(key: bytes, share_count: int) -> int:
    return crc32(key) % share_count


def topics_of(named: Iterable[tuple[Uuid, str]], share_count: int) -> Topics:
    """Return the shares of these topics. Topics of one name have the same share. Names of one id have the same share, too."""
    names_of: dict[Uuid, set[str]] = defaultdict(set)
    for topic_id, name in named:
        names_of[topic_id].add(name)
    joined: dict[str, set[str]] = {}
    for some in names_of.values():
        if len(some) > 1:
            whole = set(some).union(*(joined.get(name, ()) for name in some))
            joined.update(dict.fromkeys(whole, whole))
    of_name = {name: _hashed(min(whole).encode(), share_count) for name, whole in joined.items()}
    found = Topics(share_count, {}, of_name)
    return found._replace(of_id={topic_id: found.by_name(min(some)) for topic_id, some in names_of.items()})


def topics_in(batch: Batch) -> Iterator[tuple[Uuid, str]]:
    """Return id and name of each topic that a batch creates, if the batch can be read."""
    if batch.is_control:
        return
    try:
        pieces = split_payload(batch.payload, batch.record_count)
    except LogFormatError:
        return
    for piece in pieces:
        if peek_type(piece) in (_TOPIC, -1):
            record = _decoded(piece)
            if isinstance(record, Topic):
                yield record.topic_id, record.name


def _decoded(piece: bytes) -> Record | UnknownRecord | None:
    try:
        return decode_record(piece)
    except LogFormatError:
        return None


class _Hand:
    """The records of one share that are not in a row yet."""

    __slots__ = ("batch", "offsets", "pieces", "sizes", "volume")

    def __init__(self) -> None:
        self.batch = -1
        """The base offset of the newest record's batch."""
        self.offsets: list[Offset] = []
        self.sizes: list[int] = []
        self.pieces: list[bytes] = []
        self.volume = 0

    def add(self, batch: Offset, offset: Offset, piece: bytes, mark: int = 0) -> None:
        size = len(piece)
        assert size <= SIZE
        self.volume += size
        if batch != self.batch:
            self.batch = batch
            mark |= BATCH_BEGINS
        self.offsets.append(offset)
        self.sizes.append(size | mark)
        self.pieces.append(piece)


class Dealer:
    """Deals the batches of one task's part of the log, in order, or the records of the snapshot below the log."""

    def __init__(self, topics: Topics, skips: Sequence[SkippedBatch], since: Offset) -> None:
        self._topics = topics
        self._skips = skips
        self._since = since
        self._hands = [_Hand() for _ in range(topics.share_count)]
        self._generation = FROM_LOG

    def take(self, batch: Batch) -> None:
        """Deal one batch. A skipped batch is left out; a batch that cannot be read is a problem at its base offset."""
        base = batch.base_offset
        if batch.end_offset <= self._since or self._is_dropped(batch):
            return
        if batch.is_control:
            self._look_at_control(batch)
            return
        try:
            check_format(batch, FORMAT_VERSION)
            pieces = split_payload(batch.payload, batch.record_count)
        except LogFormatError as e:
            self.problem(base, base, MALFORMED, str(e))
            return
        hands, share_of = self._hands, self._topics.of_id.get
        for offset, piece in enumerate(pieces, base):
            # Nearly all records are of a partition; the shares of all others take longer to find.
            share = share_of(piece[ID_AT:NUMBER_AT]) if piece[1:ID_AT] in _MARKS else None
            if share is not None:
                hands[share].add(base, offset, piece)
                continue
            for hand in self._hands_of(piece):
                hand.add(base, offset, piece)

    def _is_dropped(self, batch: Batch) -> bool:
        return not batch.is_control and any(
            skip.dropped_start <= batch.base_offset < skip.dropped_end and names(skip, batch) for skip in self._skips
        )

    def _look_at_control(self, batch: Batch) -> None:
        """Find control records that no replay can read. The others are for the quorum."""
        try:
            records = decode_batch(batch)
        except LogFormatError as e:
            self.problem(batch.base_offset, batch.base_offset, MALFORMED, str(e))
            return
        for offset, record in enumerate(records, batch.base_offset):
            if isinstance(record, UnknownRecord):
                self.problem(batch.base_offset, offset, UNKNOWN, unknown_text(record))

    def problem(self, batch: Offset, offset: Offset, rule: str, reason: str) -> None:
        """Send a finding to share 0, which reports it. `batch` is the base offset of its batch."""
        self._hands[0].add(batch, offset, f"{rule}\n{reason}".encode(), PROBLEM)

    def _hands_of(self, piece: bytes) -> Sequence[_Hand]:
        number = peek_type(piece)
        if number in COMMON:
            return self._hands
        if number == _REQUEST:
            return (self._hands[1 % len(self._hands)],)
        record = _decoded(piece) if number in _OF_TOPICS or number == -1 else None
        return self._hands_of_record(record)

    def _hands_of_record(self, record: Record | PartitionRun | UnknownRecord | None) -> Sequence[_Hand]:
        topics, share = self._topics, 0
        match record:
            case ClearElr(topic_name=None, topic_id=None):
                return self._hands
            case ClearElr(topic_name=str(name), topic_id=None) | Topic(name=name) | RemoveTopic(name=name):
                share = topics.by_name(name)
            case Config(resource_type, name) | Label(resource_type, name):
                share = topics.by_name(name) if resource_type == TOPIC_RESOURCE else 0
            case Partition() | PartitionChange() | EpochsRaised() | PartitionRun() | ClearElr():
                share = topics.by_id(record.topic_id or b"")
            case RequestOutcome():
                share = 1 % len(self._hands)
            case _ if isinstance(record, _COMMON):
                return self._hands
        return (self._hands[share],)

    def take_canonical(self, records: Iterable[MetadataRecord | PartitionRun]) -> Iterator[Row]:
        """Deal the records of the snapshot below the log; `generation` 0, and the offset of a record is its number."""
        self._generation = FROM_SNAPSHOT
        place = 0
        for record in records:
            if isinstance(record, PartitionRun):
                piece = encode_valid(columns_of(record))
                self._hands[self._topics.by_id(record.topic_id)].add(-1, place, piece)
                place += len(record.states)
            else:
                piece = encode_valid(record)
                for hand in self._hands_of_record(record):
                    hand.add(-1, place, piece)
                place += 1
            yield from self.full_rows()
        yield from self.rows()

    def full_rows(self) -> Iterator[Row]:
        """Return the rows of hands that are full."""
        for share, hand in enumerate(self._hands):
            if hand.volume >= _FULL_BYTES or len(hand.sizes) >= _FULL_RECORDS:
                yield self._row(share, hand)

    def rows(self) -> Iterator[Row]:
        """Return everything that is not in a row yet."""
        for share, hand in enumerate(self._hands):
            if hand.sizes:
                yield self._row(share, hand)

    def _row(self, share: int, hand: _Hand) -> Row:
        row = (
            share, self._generation, hand.offsets[0], array("q", hand.offsets).tobytes(),
            array("I", hand.sizes).tobytes(), b"".join(hand.pieces),
        )  # fmt: skip
        hand.offsets, hand.sizes, hand.pieces, hand.volume = [], [], [], 0
        return row


def unknown_text(record: UnknownRecord) -> str:
    """Say which record this release does not know."""
    return (
        f"a record of type {record.type_number}, version {record.version}, which this release does not know: use the release "
        "that wrote it, or a later one"
    )
