"""Nodes with a past: random histories with elections, transactions, skips, marks and trims, and the dumb twin of a read."""

import random
from collections.abc import Sequence
from pathlib import Path

from metadata_log.disk.files import Directory
from metadata_log.format.batch import Batch
from metadata_log.format.records import PartitionChange, SkippedBatch, Topic
from metadata_log.image.metadata_image import EMPTY_IMAGE, MetadataImage
from metadata_log.image.replay import Replay
from metadata_log.image.skips import dropped_range, open_transaction, skips_in
from metadata_log.store.log_config import LogConfig
from snapshots.history.wanted import Wanted
from snapshots.policy import RetentionPolicy
from tests.snapshots.nodes import Node

CONFIG = LogConfig(segment_bytes=3 << 10, tail_bytes=1 << 10, archive_max_bytes=1 << 30, archive_max_age_ms=1 << 40)


class PastNode(Node):
    """A node that remembers all its batches, also those that its files have lost."""

    def __init__(self, path: Path, seed: int, *, directory: Directory | None = None) -> None:
        super().__init__(path, seed, config=CONFIG, directory=directory)
        self.batches: list[Batch] = []

    def remember(self) -> None:
        """Takes note of the new batches."""
        since = self.batches[-1].end_offset if self.batches else 0
        if since < self.journal.shape.end:
            self.batches += self.journal.read(since, 1 << 30)

    def skip_a_batch(self) -> None:
        """A batch that no node can apply, a few batches behind it, and the skip."""
        self.write_out()
        at = self.journal.shape.end
        before = self.image
        self.log_records(
            Topic(f"stray-{at}", at.to_bytes(16, "big")), PartitionChange(b"nobody".ljust(16), 0, leader=1)
        )
        self.image = before
        self.work(2)
        self.write_out()
        later = self.journal.read(at, 1 << 30)
        self.remember()
        begun = open_transaction([each for each in self.batches if each.end_offset <= at])
        dropped = dropped_range(later[0], begun, later[1:])
        self.log_records(SkippedBatch(at, later[0].epoch, later[0].chain, *dropped))

    def live_on(self, dice: random.Random, turns: int) -> None:
        """Lives, and lets retention drop snapshots and segments now and then."""
        for _ in range(turns):
            match dice.randrange(7):
                case 0:
                    self.elect(dice.choice((1, 2, 3)))
                case 1:
                    self.transaction(commit=dice.random() < 0.7)
                case 2:
                    self.mark()
                    self.remember()
                    if dice.random() < 0.6:
                        self.trim(dice)
                case 3:
                    self.skip_a_batch()
                case _:
                    self.work(dice.randint(1, 6))
            self.write_out()
            self.remember()
        self.journal.flush()

    def trim(self, dice: random.Random) -> None:
        """Keeps the newest one to three snapshots, and the log above the oldest of them; the archive loses some segments."""
        keep = min(dice.randint(1, 3), len(self.store.list()))
        newest = self.store.list()[-keep].end
        for info in self.store.list()[:-keep]:
            self.store.drop([info.end])
        self.journal.drop_prefix(newest)
        for _ in range(dice.choice((0, 0, 1, 3))):
            self.journal.drop_oldest_archived()


def twin(batches: Sequence[Batch], wanted: Wanted) -> MetadataImage:
    """The replay of all batches at or below the position, told of all skips in the log: what a read has to show."""
    replay = Replay(EMPTY_IMAGE)
    replay.learn(skips_in(batches))
    replay.apply([each for each in batches if wanted.takes(each)])
    return replay.image


__all__ = ["CONFIG", "PastNode", "RetentionPolicy", "twin"]
