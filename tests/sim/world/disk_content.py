"""The content of one file of the tests' disk. A power cut leaves each sector in any version that it had since the last flush."""

from random import Random
from typing import Final

SECTOR_BYTES: Final = 512


class Content:
    """The content of a file: as programs see it, as it is durable, and the changes in between."""

    def __init__(self) -> None:
        self.current = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """(position, data) of a write, or (size, None) of a truncation or extension, oldest first."""
        self.lies = False
        """A flush has failed: `durable` may lack what was written before it, although nothing is pending."""
        self.is_removed = False
        """It has no name any more."""

    def change(self, position: int, data: bytes | None) -> None:
        self.pending.append((position, data))
        _apply(self.current, position, data)

    def flush(self) -> None:
        for position, data in self.pending:
            _apply(self.durable, position, data)  # cheaper than a copy of the whole file
        self.pending.clear()

    def fail_flush(self) -> None:
        """The pages are clean now, and not on the disk; only the sizes, which are the file system's, still may be."""
        self.pending = [change for change in self.pending if change[1] is None]
        self.lies = True

    @property
    def is_durable(self) -> bool:
        return not self.pending and (not self.lies or self.durable == self.current)

    def after_power_cut(self, rng: Random) -> "Content":
        """Any version of each sector, and any of the sizes, since the last flush."""
        version = bytearray(self.durable)
        sizes = [len(version)]
        sectors: dict[int, list[bytes]] = {}
        for position, data in self.pending:
            before = len(version)
            _apply(version, position, data)
            sizes.append(len(version))
            first, end = (position, before) if data is None else (min(position, before), position + len(data))
            for sector in range(first // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES):
                versions = sectors.setdefault(sector, [_sector(self.durable, sector)])
                content = _sector(version, sector)
                if content != versions[-1]:
                    versions.append(content)
        size = rng.choice(sizes)
        result = bytearray(self.durable).ljust(max(sizes), b"\x00")
        for sector, versions in sectors.items():
            at = sector * SECTOR_BYTES
            result[at : at + SECTOR_BYTES] = rng.choice(versions)
        survivor = Content()
        survivor.durable[:] = survivor.current[:] = result[:size]
        return survivor


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        if position < len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def sectors_of(position: int, stop: int) -> range:
    """The sectors that [position, stop) touches."""
    return range(position // SECTOR_BYTES, (stop + SECTOR_BYTES - 1) // SECTOR_BYTES) if position < stop else range(0)


def _sector(content: bytearray, sector: int) -> bytes:
    return bytes(content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\x00")
