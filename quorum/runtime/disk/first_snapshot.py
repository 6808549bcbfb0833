"""The state with which a new cluster begins: a snapshot that was imported from another system.

A new cluster begins with an empty log. With an import it begins with a log that starts at the end of a snapshot, as after a
download. `quorum-offline import` makes the file without voters, because the new cluster does not exist yet. Each first controller
is formatted with the same file, and puts the same voters into it, so all of them have the same bytes. Example:
    1. The import ends at 275@6. Controllers 1, 2 and 3 are formatted with it, and with the same initial controllers.
    2. Each has `00000000000000000275-0000000006.checkpoint`, byte for byte the same, and an empty log.
    3. Each starts: the log begins at 275. They elect a leader in epoch 7 or later.
If controller 3 was formatted without the file, its log begins at 0: it downloads the snapshot from the leader. A format that was
killed is done again with the same file.

The chain at the snapshot's end comes from the cluster's id and voters and from the state, so the logs of two clusters never mix.
"""

import hashlib
from itertools import takewhile
from pathlib import Path
from typing import Final

from metadata_log.disk.files import Directory
from metadata_log.disk.read_only import LocalDirectory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    FeatureLevel,
    Voters,
)
from quorum.runtime.disk import election_file
from snapshots.format import BOOTSTRAP_END, SnapshotMeta, parse_name, part_name, snapshot_name
from snapshots.reader import SnapshotContents, read_runs, read_snapshot
from snapshots.store import BOOTSTRAP_KRAFT_VERSION, SnapshotStore
from snapshots.writer import write_records

_CHAIN_PREFIX: Final = b"metaquorum first snapshot 1\x00"


class CannotBegin(ValueError):
    """The file cannot be the first state of a cluster. Nothing was written."""


class FirstSnapshot:
    """An imported snapshot, verified as a whole."""

    def __init__(self, path: Path) -> None:
        """Read and verify the file.

        Raises:
            CannotBegin: the file is no imported snapshot, is damaged, or is of a later release.
            OSError: the disk cannot read the file.
        """
        parsed = parse_name(path.name)
        if parsed is None or parsed[1] or parsed[0] == BOOTSTRAP_END:
            raise CannotBegin(
                f"{path} does not have the name of a snapshot; keep the name that `quorum-offline import` gave it. Nothing was "
                "written"
            )
        self._directory, self._end = LocalDirectory(path.parent), parsed[0]
        try:
            self._contents = read_snapshot(self._directory, self._end)
            _check(path, self._contents)
        except LogFormatError as e:
            raise CannotBegin(f"{e}; import it again. Nothing was written") from e

    def is_all_of(self, names: list[str], log: Directory) -> bool:
        """True if the files `names` in `log` hold this state, with any voters, or the beginning of it, and nothing else."""
        name = snapshot_name(self._end)
        if not set(names) <= {name, part_name(self._end)}:
            return False
        try:
            return name not in names or read_snapshot(log, self._end).digest == self._contents.digest
        except LogFormatError:
            return False

    def write(self, directory: Directory, store: SnapshotStore, genesis: bytes, voters: Voters) -> None:
        """Make this the first state of the controller in `directory`, durably.

        Raises:
            LogFormatError: the file has changed since it was verified.
            OSError, FlushFailed: the disk failed.
        """
        contents = self._contents
        chain = hashlib.sha256(_CHAIN_PREFIX + genesis + contents.digest).digest()
        meta = SnapshotMeta(self._end, contents.meta.timestamp_ms, chain, voters, BOOTSTRAP_KRAFT_VERSION)
        # With a snapshot the directory does not look new at the first start, and a missing vote would be a lost vote.
        election_file.save(directory, election_file.FIRST_STATE)
        store.drop([self._end])  # a killed format may have left this state with other voters, and would win
        write_records(store.directory, meta, read_runs(self._directory, self._end))


def _check(path: Path, contents: SnapshotContents) -> None:
    if contents.meta.voters.voters:
        raise CannotBegin(
            f"{path} is a snapshot of a running cluster, with {len(contents.meta.voters.voters)} voters: only a file of "
            "`quorum-offline import` can begin a new cluster. Nothing was written"
        )
    features = takewhile(lambda record: isinstance(record, FeatureLevel), contents.records)
    level = next(
        (each.level for each in features if isinstance(each, FeatureLevel) and each.name == METADATA_VERSION), 0
    )
    if not METADATA_VERSION_MIN <= level <= METADATA_VERSION_MAX:
        raise CannotBegin(
            f"{path} has {METADATA_VERSION} {level}; this release knows the levels {METADATA_VERSION_MIN} to "
            f"{METADATA_VERSION_MAX}. Nothing was written"
        )
