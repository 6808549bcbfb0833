"""The second pass: one healthy log is transcribed and replayed strictly, and compared with all snapshots.

The transcription is dealt into one share, on this machine, with the code of the Spark job (`snapshots.offline.shares`). The
share begins with the snapshot at which the log starts, or with the level of `metadata.version` that allows every record.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from metadata_log.format.batch import Batch
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Offset, Uuid
from metadata_log.image.metadata_image import MetadataImage
from snapshots.offline.audit.batch_checks import NodeBatches
from snapshots.offline.audit.findings import Finding, error
from snapshots.offline.audit.result import Activity, bucket_ms_of, by_kind
from snapshots.offline.audit.snapshot_checks import CheckedSnapshot
from snapshots.offline.kafka.errors import KafkaFormatError
from snapshots.offline.kafka.log_files import KafkaLog, SnapshotFile
from snapshots.offline.kafka.scan import scan_log, scan_snapshot
from snapshots.offline.kafka.transcribe.batches import Transcription
from snapshots.offline.kafka.transcribe.records import Transcriber
from snapshots.offline.kafka.transcribe.states import (
    NO_CHAIN,
    CannotTranscribe,
    beginning_of,
    empty_state,
    load_snapshot,
)
from snapshots.offline.reading.activity import activity
from snapshots.offline.shares.dealing import MALFORMED, Dealer, Topics
from snapshots.offline.shares.replayed import Replayed, add_up, result_of
from snapshots.offline.shares.share import Share


class _First(dict[Uuid, int]):
    """Every topic is in the first share. Without an entry the dealer would decode a record of a partition to find its share."""

    def get(self, key: Uuid, default: object = None) -> int:
        return 0


_ONE_SHARE: Final = Topics(1, _First(), {})


class ReplayedLog(NamedTuple):
    """The strict replay of one node's log."""

    node: str
    fold: Replayed
    transcriber: Transcriber
    activity: Activity


class LoadedSnapshot(NamedTuple):
    """A snapshot of one node, and its image if the snapshot is sound."""

    checked: CheckedSnapshot
    file: str
    image: MetadataImage | None


def replay(log: KafkaLog, numbers: NodeBatches, cuts: Iterable[Offset]) -> ReplayedLog:
    """Replay the log of a node that is intact.

    Raises:
        CannotTranscribe, CorruptLog: the snapshot below the log cannot be used.
    """
    transcriber, base = Transcriber(), beginning_of(log)
    image = empty_state() if base is None else load_snapshot(log.directory, base, transcriber)
    since = image.provenance.offset
    end = numbers.end_offset
    wanted = sorted({cut for cut in cuts if since <= cut <= end} | {end})
    share = Share(0, wanted)
    for _, generation, _, *row in Dealer(_ONE_SHARE, (), since).take_canonical(image.canonical_records()):
        share.take(generation, *row)
    dealer, transcription = Dealer(_ONE_SHARE, (), since), Transcription(transcriber, NO_CHAIN)
    bucket_ms = bucket_ms_of(numbers)
    counts: Counter[tuple[str, int]] = Counter()
    for scanned in scan_log(log, since):
        batch = scanned.batch
        if batch is None:
            continue  # a torn tail
        made: list[Batch] = []
        try:
            made = transcription.pieces(batch)
        except KafkaFormatError as e:
            dealer.problem(batch.base_offset, batch.base_offset, MALFORMED, str(e))
        for each in made:
            dealer.take(each)
        counts.update(activity(made, numbers.first_ms, bucket_ms))
        for _, generation, _, *row in dealer.full_rows():
            share.take(generation, *row)
    for _, generation, _, *row in dealer.rows():
        share.take(generation, *row)
    share.finish()
    fold = add_up([result_of(share, 0)], wanted)
    return ReplayedLog(log.node, fold, transcriber, Activity(numbers.first_ms, bucket_ms, by_kind(counts)))


def load_snapshots(log: KafkaLog, transcriber: Transcriber) -> tuple[list[LoadedSnapshot], list[Finding]]:
    """Read all snapshots of a node. `transcriber` has read a healthy log, if there is one."""
    loaded, findings = [], []
    for file in log.snapshots:
        if file.end.offset == 0:
            continue  # the bootstrap checkpoint: settings of the first start, no state
        damage = _damage(log, file)
        image = None
        if damage is None:
            try:
                image = load_snapshot(log.directory, file, transcriber.beside())
            except (CannotTranscribe, CorruptLog) as e:
                damage = error("snapshot-misfit", str(e), node=log.node, file=file.name, offset=file.end.offset)
        if damage is not None:
            findings.append(damage)
        loaded.append(LoadedSnapshot(_checked(log, file, image, damage), file.name, image))
    return loaded, findings


def _damage(log: KafkaLog, file: SnapshotFile) -> Finding | None:
    for scanned in scan_snapshot(log.directory, file.name):
        if scanned.error is not None:
            return error(
                "snapshot-damaged", scanned.error, node=log.node, file=file.name, position=scanned.position,
                offset=file.end.offset,
            )  # fmt: skip
    return None


def _checked(log: KafkaLog, file: SnapshotFile, image: MetadataImage | None, damage: Finding | None) -> CheckedSnapshot:
    """Return the check in the form of our own audit. Files of one state differ in Kafka, so there is no SHA-256 to compare."""
    found: Any = (
        (0, b"", 0) if image is None else (image.provenance.timestamp_ms, image.digest_bytes, image.record_count)
    )
    timestamp_ms, digest, count = found
    rule, detail, position = (None, None, None) if damage is None else (damage.rule, damage.detail, damage.position)
    return CheckedSnapshot(
        log.node,
        file.end.offset,
        file.end.epoch,
        file.size,
        b"",
        timestamp_ms,
        b"",
        digest,
        count,
        rule,
        detail,
        position,
    )


def check_states(replayed: ReplayedLog | None, snapshots: Iterable[LoadedSnapshot]) -> list[Finding]:
    """Compare each snapshot with the state that the log makes at its end, or, where no log reaches, with the other nodes'."""
    findings, by_end = [], defaultdict[tuple[Offset, int], list[LoadedSnapshot]](list)
    for each in snapshots:
        if each.image is None:
            continue
        checked = each.checked
        state = None if replayed is None else replayed.fold.digests.get(checked.end)
        if state is None:
            by_end[checked.end, checked.epoch].append(each)
        elif state != (checked.digest, checked.records):
            detail = (
                f"{checked.records} records, digest {checked.digest.hex()[:16]}; the log makes {state[1]}, digest "
                f"{state[0].hex()[:16]}"
            )
            findings.append(error("snapshot-state", detail, node=checked.node, file=each.file, offset=checked.end))
    for copies in by_end.values():
        if len({each.checked.digest for each in copies}) > 1:
            names = ", ".join(each.checked.node for each in copies)
            findings.append(
                error(
                    "snapshot-differs",
                    f"the states of {names} differ",
                    file=copies[0].file,
                    offset=copies[0].checked.end,
                )
            )
    return findings
