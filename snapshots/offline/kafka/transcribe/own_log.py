"""The transcription as a data directory of a controller of ours, for the jobs that read directories.

    TARGET/meta.properties                         Kafka's node and cluster
    TARGET/@metadata/ 00000000000000000225-...     the snapshot at which Kafka's log begins, if it begins above 0
                      00000000000000000225.log     segments

Nothing of it is for a controller: the chain begins with zeros, and no voter set is there. Example: Kafka's log has [225, 275)
and a snapshot at 225. The directory has the same state at 225, and the same records at the same offsets; `history` begins at 225.
"""

from metadata_log.disk.files import Directory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.ids import Offset
from metadata_log.format.records import Voters
from metadata_log.store.log import LOG_BEGINNING, Log
from snapshots.format import SnapshotMeta
from snapshots.offline.kafka.log_files import KafkaLog
from snapshots.offline.kafka.transcribe.batches import transcribed
from snapshots.offline.kafka.transcribe.records import Transcriber
from snapshots.offline.kafka.transcribe.states import NO_CHAIN, beginning_of, load_snapshot
from snapshots.writer import write_image

_DIRECTORY_ID = bytes(15) + b"\x01"


def write_own_log(log: KafkaLog, target: Directory, until: Offset | None, transcriber: Transcriber) -> None:
    """Write the transcription of a log, up to `until`, the end of a batch, into the empty directory `target`.

    Raises:
        CorruptLog: the log is damaged.
        CannotTranscribe: the log begins above 0, and no snapshot reaches its beginning.
        OSError, FlushFailed: the disk failed.
    """
    metadata, base, start, timestamp_ms = target.subdirectory("@metadata"), beginning_of(log), LOG_BEGINNING, 0
    if base is not None:
        image = load_snapshot(log.directory, base, transcriber)
        start, timestamp_ms = base.end, image.provenance.timestamp_ms
        write_image(metadata, SnapshotMeta(start, timestamp_ms, NO_CHAIN, Voters(()), 1), image)
    own = Log.open(metadata, start=start, chain=NO_CHAIN, timestamp_ms=timestamp_ms)
    try:
        for batch in transcribed(log, transcriber, NO_CHAIN, start.offset, until):
            own.append_batches([batch])
        own.flush()
    finally:
        own.close()
    write_identity(target, Identity(log.cluster_id or "kafka", log.node_id or 0, _DIRECTORY_ID, 1, "controller", b""))
