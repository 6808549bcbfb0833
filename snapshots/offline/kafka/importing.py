"""Import: the state of a Kafka cluster as a snapshot from which a new cluster of ours starts.

The new cluster keeps what belongs to Kafka's clients: topics with their ids, partitions, replicas and ISRs, configs, ACLs,
quotas, SCRAM users. It does not keep what belongs to Kafka's processes:

    brokers      they register with the new cluster, under the same ids. With its old registration a broker would count as one
                 that was killed, and, with eligible leader replicas (KIP-966), would leave every ISR as it returns.
    leaders      no partition has a leader, and both epochs of each partition grow by one: who leads must be registered (M3),
                 and an old leader that still runs has an old epoch. The ISR stays: it says who has the records.
    directories  a replica forgets its directory, because the new broker has other ones; `keep_directories` keeps them
    controllers  the new ones register themselves
    features     only those that both systems have

Example:
  1. orders-0 has the replicas 1, 2, 3, the ISR 2, 3 and the leader 2 at leader epoch 7.
  2. The snapshot has the same replicas and ISR, no leader, and leader epoch 8. No broker is registered.
  3. Broker 3 registers with the new cluster, and is unfenced: it leads orders-0 at leader epoch 9.

The file has an empty voter set: `quorumctl storage format --snapshot` puts the voters of the new cluster into it.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_log.disk.failures import DirectoryInUse
from metadata_log.disk.files import Directory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NO_LEADER, UNASSIGNED_DIRECTORY, Offset, OffsetAndEpoch
from metadata_log.format.records import (
    BROKER_RESOURCE,
    FEATURES,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    TOPIC_RESOURCE,
    Config,
    DelegationToken,
    FeatureLevel,
    MetadataRecord,
    Partition,
    RegisterBroker,
    RegisterController,
    Voters,
)
from snapshots.format import SnapshotMeta, snapshot_name
from snapshots.offline.kafka.log_files import KafkaLog
from snapshots.offline.kafka.transcribe.left_out import LeftOut, Tally
from snapshots.offline.kafka.transcribe.records import KAFKA_METADATA_VERSION, MIGRATING_DIRECTORY, Transcriber
from snapshots.offline.kafka.transcribe.states import newest_state
from snapshots.writer import exclusive, write_records

_KRAFT_VERSION: Final = 1
_CHAIN_PREFIX: Final = b"metaquorum import 1\x00"
_OF_REGISTRATIONS: Final = ("RegisterBrokerRecord.", "RegisterControllerRecord.")
"""Parts of records that are left out as a whole."""
_RESOURCES: Final = {8: "loggers of brokers", 16: "client metrics", 32: "groups"}

NO_LEADERS: Final = "without a leader until a member of the ISR registers; both epochs have grown by one"
FORGOTTEN: Final = "forgotten: the brokers of the new cluster say where their replicas are"
TOKENS: Final = "kept in the snapshot; no command of this release shows or uses them"
NO_FEATURE: Final = "this release has no such feature"
OTHER_LEVELS: Final = f"Kafka's levels mean other things; the new cluster has {METADATA_VERSION} {METADATA_VERSION_MAX}"
NO_RESOURCE: Final = "this release has configs of topics and brokers only"
NO_BROKERS: Final = "the brokers of the new cluster register themselves, under the same ids"
NO_CONTROLLERS: Final = "the controllers of the new cluster register themselves"


class CannotImport(LogFormatError):
    """Nothing was written. The message says why, and what to do."""


class Imported(NamedTuple):
    """The result of an import."""

    path: str
    end: OffsetAndEpoch
    base: OffsetAndEpoch | None
    """Kafka's snapshot from which the import began; None: the beginning of the log."""
    counts: dict[str, int]
    """How many records of each type the snapshot has."""
    changed: tuple[LeftOut, ...]
    """The things that are in the snapshot in another form than in Kafka."""
    left_out: tuple[LeftOut, ...]
    """The things that are not in the snapshot."""


def import_log(
    log: KafkaLog, out: Directory, until: Offset | None = None, *, keep_directories: bool = False
) -> Imported:
    """Write the state at the end of a log, or at `until`, as a snapshot into `out`.

    Raises:
        CannotImport: the log is empty, or `out` has such a snapshot, or another import writes into it.
        LogFormatError: the log or its snapshot is damaged, or its records do not make a state.
        OSError, FlushFailed: the disk failed. Nothing is left.
    """
    transcriber = Transcriber()
    state = newest_state(log, transcriber, until)
    image = state.image
    end = image.provenance.end
    if end.offset == 0:
        raise CannotImport(f"{log.directory.path_text}: the log has no records; nothing was written")
    name = snapshot_name(end)
    if out.exists(name):
        raise CannotImport(f"{out.path_text}/{name} exists; nothing was written. Choose another directory")
    form = _Form(keep_directories)
    records = [*form.records(image.canonical_records())]
    chain = hashlib.sha256(_CHAIN_PREFIX + image.digest_bytes).digest()
    meta = SnapshotMeta(end, image.provenance.timestamp_ms, chain, Voters(()), _KRAFT_VERSION)
    try:
        with exclusive(out):  # two imports would write one part file
            write_records(out, meta, records)
    except DirectoryInUse:
        raise CannotImport(
            f"another import writes into {out.path_text}; nothing was written. Wait for its end, and run this again"
        ) from None
    counts = Counter(type(record).__name__ for record in records)
    left = (each for each in transcriber.left.list() if not each.what.startswith(_OF_REGISTRATIONS))
    left_out = (*left, *form.left.list())
    return Imported(f"{out.path_text}/{name}", end, state.base, dict(counts), form.changed.list(), left_out)


class _Form:
    """Makes the records of the new cluster's state from those of Kafka's state, in the same order."""

    def __init__(self, keep_directories: bool) -> None:
        self._keep_directories = keep_directories
        self.changed = Tally()
        self.left = Tally()
        self._place = 0

    def records(self, records: Iterator[MetadataRecord]) -> Iterator[MetadataRecord]:
        for self._place, record in enumerate(records):
            match record:
                case FeatureLevel():
                    if self._has_feature(record):
                        yield record
                case RegisterController():
                    self.left.add("registrations of controllers", self._place, NO_CONTROLLERS)
                case Config(resource_type=kind) if kind not in (TOPIC_RESOURCE, BROKER_RESOURCE):
                    what = _RESOURCES.get(kind, f"resources of type {kind}")
                    self.left.add(f"configs of {what}", self._place, NO_RESOURCE)
                case RegisterBroker():
                    self.left.add("registrations of brokers", self._place, NO_BROKERS)
                case Partition():
                    yield self._partition(record)
                case _:
                    if isinstance(record, DelegationToken):
                        self.changed.add("delegation tokens", self._place, TOKENS)
                    yield record

    def _has_feature(self, record: FeatureLevel) -> bool:
        known = FEATURES.get(record.name)
        if known is not None and record.level <= known.max_level:
            return True
        if record.name == KAFKA_METADATA_VERSION:
            self.left.add(f"feature {METADATA_VERSION} {record.level}", self._place, OTHER_LEVELS)
        else:
            self.left.add(f"feature {record.name} {record.level}", self._place, NO_FEATURE)
        return False

    def _partition(self, record: Partition) -> Partition:
        self.changed.add("leaders of partitions", self._place, NO_LEADERS)
        directories = record.directories if self._keep_directories else ()
        if not self._keep_directories and any(each not in _UNSAID for each in record.directories):
            self.changed.add("directories of replicas", self._place, FORGOTTEN)
        return record._replace(
            leader=NO_LEADER,
            leader_epoch=record.leader_epoch + 1,
            partition_epoch=record.partition_epoch + 1,
            directories=tuple(UNASSIGNED_DIRECTORY if each in _UNSAID else each for each in directories),
        )


_UNSAID: Final = (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)
"""Ids that name no directory."""
