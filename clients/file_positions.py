"""`FilePositions`: the positions of one consumer in one file, replaced as a whole with each commit.

    {"format": 1, "crc": 3735928559, "positions": [["orders", 0, 1244, 7, "d1Zx..."], ...]}

Each position has topic, partition, offset, leader epoch (null: not known) and topic id (null: any). The CRC-32C covers the packed
list of positions. After a crash the file has either the old positions or the new ones.

    1. A consumer commits orders-0 at 100. Its machine loses power during the next commit, at 180.
    2. At the next start the file says 100 or 180, and nothing between: the consumer reads on from there.

Two programs with one file would undo each other's commits. So each commit compares the file with the content that this program
has read or written last, and refuses to replace any other content.

After a failed fsync nobody knows what the disk has, and a second fsync would succeed without a word. So the program hears of the
failure at each commit until it is started anew, and nothing more is written.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import google_crc32c

from clients.consumer.errors import PositionsUnusable
from clients.consumer.positions import StoredPosition
from clients.metadata.cluster import TopicPartition
from metadata_log.disk.failures import FileTooLarge, FlushFailed, Removed
from metadata_log.disk.files import RealDirectory
from metadata_log.format.ids import EPOCH_MAX, OFFSET_MAX, Uuid, parse_uuid, uuid_text

FORMAT: Final = 1
FILE_BYTES_MAX: Final = 64 << 20
"""Maximum size of the file: about 500,000 partitions."""
_PARTITION_MAX: Final = (1 << 31) - 1
_TOPIC_MAX: Final = 249


class FilePositions:
    """A PositionStore in the file at `path`. The directory is created if it does not exist."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._seen: bytes | None = None
        """The content of the file as this object has read or written it."""
        self._positions: dict[TopicPartition, StoredPosition] = {}
        self._failure: str | None = None
        """The failure of the disk, if the disk did not keep what was written."""

    async def load(self) -> Mapping[TopicPartition, StoredPosition]:
        """Returns the positions of the file; none if there is no file.

        Raises:
            PositionsUnusable: the file cannot be read, or is damaged. Nothing was changed.
        """
        return await asyncio.to_thread(self._load)

    async def save(self, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        """Replaces the file by one with these positions and all others of the file, durably.

        Raises:
            PositionsUnusable: the file cannot be written, or another program has changed it. The file is as it was. After a
                failed fsync the file has the old or the new positions, and each later call raises the same error.
        """
        await asyncio.to_thread(self._save, dict(positions))

    def _load(self) -> Mapping[TopicPartition, StoredPosition]:
        self._seen = self._read()
        self._positions = {} if self._seen is None else parse_positions(self._seen, str(self.path))
        return dict(self._positions)

    def _read(self) -> bytes | None:
        if not self.path.parent.is_dir():
            return None
        try:
            return RealDirectory(self.path.parent).read(self.path.name, FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        except (OSError, FileTooLarge) as e:
            text = f"the positions in {self.path} cannot be read: {e}. Nothing was changed"
            raise PositionsUnusable(text) from e

    def _save(self, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        if self._failure is not None:
            raise PositionsUnusable(self._failure)
        if self._read() != self._seen:
            text = f"{self.path} was changed by another program, so no position was written. Give each consumer its own file"
            raise PositionsUnusable(text)
        whole = {**self._positions, **positions}
        data = pack_positions(whole)
        if len(data) > FILE_BYTES_MAX:
            raise PositionsUnusable(
                f"{self.path} would have {len(data)} bytes, more than {FILE_BYTES_MAX}; not written"
            )
        try:
            RealDirectory(self.path.parent).write_atomic(self.path.name, data)
        except OSError as e:
            text = f"the positions cannot be written to {self.path}: {e}. The old positions hold"
            raise PositionsUnusable(text) from e
        except FlushFailed as e:
            why = "its directory was removed or replaced" if isinstance(e, Removed) else e.__cause__ or e
            self._failure = (
                f"the disk did not keep the positions in {self.path}: {why}. The file may have the old or the new positions, and "
                "no more are written. Check the disk, and start this program again"
            )
            raise PositionsUnusable(self._failure) from e
        self._seen, self._positions = data, whole


def pack_positions(positions: Mapping[TopicPartition, StoredPosition]) -> bytes:
    """Returns the content of a file with these positions, one on each line."""
    rows = [
        [key.topic, key.partition, at.offset, at.epoch, None if at.topic_id is None else uuid_text(at.topic_id)]
        for key, at in sorted(positions.items())
    ]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{{"format": {FORMAT}, "crc": {_crc(rows)}, "positions": [\n{lines}\n]}}\n'.encode()


def parse_positions(data: bytes, name: str) -> dict[TopicPartition, StoredPosition]:
    """Returns the positions of a file with the content `data`. `name` is for errors.

    Raises:
        PositionsUnusable: the content is damaged, or of a later format.
    """
    advice = "Nothing was changed. Move the file away, and the consumer begins where auto_offset_reset says"
    try:
        whole = json.loads(data)
        if not isinstance(whole, dict) or whole.get("format") != FORMAT:
            raise ValueError(f"it is no file of positions of format {FORMAT}")
        rows = whole.get("positions")
        if not isinstance(rows, list) or whole.get("crc") != _crc(rows):
            raise ValueError("the checksum does not match")
        return dict(_position(row) for row in rows)
    except (ValueError, RecursionError) as e:
        raise PositionsUnusable(f"{name} is damaged: {e}. {advice}") from e


def _crc(rows: list[Any]) -> int:
    return int(google_crc32c.value(json.dumps(rows, ensure_ascii=True).encode()))


def _position(row: Any) -> tuple[TopicPartition, StoredPosition]:
    if not isinstance(row, list) or len(row) != 5:
        raise ValueError(f"{row!r:.80} is no position")
    topic, partition, offset, epoch, topic_id = row
    if not (isinstance(topic, str) and 0 < len(topic) <= _TOPIC_MAX):
        raise ValueError(f"{topic!r:.80} is no topic")
    _check_number(partition, _PARTITION_MAX)
    _check_number(offset, OFFSET_MAX)
    if epoch is not None:
        _check_number(epoch, EPOCH_MAX)
    known: Uuid | None = None
    if topic_id is not None:
        if not isinstance(topic_id, str):
            raise ValueError(f"{topic_id!r:.80} is no topic id")
        known = parse_uuid(topic_id)
    return TopicPartition(topic, partition), StoredPosition(offset, epoch, known)


def _check_number(value: Any, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.80} is no number from 0 to {most}")
