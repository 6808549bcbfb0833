"""One of Kafka's logs as a directory of ours, up to the end that the files prove to be committed."""

from collections.abc import Iterable
from typing import Final

from metadata_log.disk.files import Directory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from snapshots.offline.kafka.log_files import KafkaLog, find_kafka_log
from snapshots.offline.kafka.scan import scan_log
from snapshots.offline.kafka.transcribe.own_log import write_own_log
from snapshots.offline.kafka.transcribe.records import Transcriber
from snapshots.offline.kafka_audit.committed import committed_end
from snapshots.offline.kafka_audit.walk import walk

_DIFFER: Final = ("history-differs", "two-leaders")
_TAIL: Final = "divergent-tail"


class CannotProve(LogFormatError):
    """Nothing proves that a record is committed. Nothing was written; the message says what to do."""


def transcribe(directories: Iterable[Directory], target: Directory, *, uncommitted: bool) -> str:
    """Write the log of the first directory into `target`; the others prove what is committed. Return the proof.

    Raises:
        CannotProve: nothing is proven, or the logs contradict each other.
        LogFormatError: a directory has no log, or the first log is damaged.
        OSError, FlushFailed: the disk failed.
    """
    logs = [find_kafka_log(directory) for directory in directories]
    until, proof = None, "not asked for"
    if not uncommitted:
        named = [log._replace(node=f"{log.node} in {log.directory.path_text}") for log in logs]
        walked = walk(named)
        differing = [finding for finding in walked.findings if finding.rule in _DIFFER]
        if differing:
            raise CannotProve(
                f"the logs contradict each other at offset {differing[0].offset}: {differing[0].detail}; nothing was written. "
                "`quorum-offline audit` lists all that is wrong"
            )
        end, proof = committed_end(named, walked)
        # The log may have another tail than the logs that prove the end: a leader that stopped, before it cuts what it had alone.
        tails = [each.offset or 0 for each in walked.findings if each.rule == _TAIL and each.node == named[0].node]
        until = _last_end(logs[0], min([end, *tails]))
        if not until:
            raise CannotProve(
                f"no record of {logs[0].node} is proven to be committed: {proof}; name the directories of other controllers with "
                "--beside, or accept the risk with --uncommitted"
            )
    write_own_log(logs[0], target, until, Transcriber(with_reasons=True))
    return proof


def _last_end(log: KafkaLog, limit: Offset) -> Offset:
    """Return the end of the last batch of a log at or below `limit`; 0 if there is none."""
    found = 0
    for scanned in scan_log(log, 0, limit):
        if scanned.batch is not None and scanned.error is None and scanned.batch.end_offset <= limit:
            found = scanned.batch.end_offset
    return found
