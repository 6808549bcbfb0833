"""The file `high-watermarks` of a log directory: the high watermark of each replica, written every few seconds.

    0          8        12                     12 + 28 n
    | metaqhw1 | count  | topic id (16), partition (4), offset (8) | ... | CRC-32C (4) |

A replica that starts again knows its log, and not which records are committed. The file tells a lower limit. Example:
  1. Replica 2 follows, and has the records 0 to 99. The high watermark is 90, and the file says 80.
  2. Broker 2 starts again and leads. It begins with the high watermark 80, so consumers read on below 80 at once.
  3. The followers fetch, and the high watermark goes on to 90 and above. Without the file, consumers would wait for that.

An old file is true, because a high watermark goes back only after an unclean election. A follower that truncates its log below
its high watermark writes the file first. A lost or damaged file costs no record: high watermarks then begin at
the start of the log.
"""

import struct
from collections.abc import Mapping
from typing import Final

import google_crc32c

from broker_agent.replica.log_directory import ReplicaPlace
from metadata_log.disk.files import Directory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OFFSET_MAX, Offset

HIGH_WATERMARKS_NAME: Final = "high-watermarks"
REPLICAS_MAX: Final = 1_000_000
"""Maximum number of replicas in one file."""

_MAGIC: Final = b"metaqhw1"
_HEAD: Final = struct.Struct(">8sI")
_ROW: Final = struct.Struct(">16sIQ")
_CRC_BYTES: Final = 4
_PARTITION_MAX: Final = (1 << 31) - 1


def write_high_watermarks(directory: Directory, high_watermarks: Mapping[ReplicaPlace, Offset]) -> None:
    """Replace the file, durably and in one step.

    Raises:
        OSError: the disk is full or broken; the old file is there.
    """
    assert len(high_watermarks) <= REPLICAS_MAX
    rows = [_ROW.pack(place.topic_id, place.partition, offset) for place, offset in high_watermarks.items()]
    data = b"".join((_HEAD.pack(_MAGIC, len(rows)), *rows))
    crc: int = google_crc32c.value(data)
    directory.write_atomic(HIGH_WATERMARKS_NAME, data + crc.to_bytes(_CRC_BYTES, "big"))


def read_high_watermarks(directory: Directory) -> dict[ReplicaPlace, Offset]:
    """Return what `write_high_watermarks` wrote last; nothing if there is no file.

    Raises:
        LogFormatError: the file is damaged. The caller may go on without it.
    """
    try:
        data = directory.read(HIGH_WATERMARKS_NAME, _HEAD.size + REPLICAS_MAX * _ROW.size + _CRC_BYTES)
    except FileNotFoundError:
        return {}
    where = f"{directory.path_text}/{HIGH_WATERMARKS_NAME}"
    if len(data) < _HEAD.size + _CRC_BYTES:
        raise LogFormatError(f"{where}: only {len(data)} bytes; high watermarks begin at the start of the logs")
    magic, count = _HEAD.unpack_from(data)
    end = len(data) - _CRC_BYTES
    crc: int = google_crc32c.value(data[:end])
    if magic != _MAGIC or end != _HEAD.size + count * _ROW.size or crc != int.from_bytes(data[end:], "big"):
        raise LogFormatError(f"{where}: damaged; high watermarks begin at the start of the logs")
    rows = _ROW.iter_unpack(data[_HEAD.size : end])
    found = {ReplicaPlace(topic_id, partition): offset for topic_id, partition, offset in rows}
    if any(place.partition > _PARTITION_MAX or offset > OFFSET_MAX for place, offset in found.items()):
        raise LogFormatError(f"{where}: a number beyond its range; high watermarks begin at the start of the logs")
    return found
