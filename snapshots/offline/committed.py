"""How far the records of some logs are committed, as the files prove it. The jobs that tell a history read no further.

The end of a log may be a tail that the cluster never agreed on. Three things prove the records below an offset:

    majority    a majority of the voter set at the offset holds the same batch there, and no log has a batch of a later epoch
    snapshot    a controller writes a snapshot only when its end is committed
    broker      a broker is given committed records only

Example. Controllers 1, 2 and 3; each has a snapshot at 80.
  1. Controller 1 leads epoch 4. The logs end at 130, 120 and 90. Two of three voters hold [0, 120), so 120 is committed.
  2. The log of controller 2 is not there. One of three voters holds more than [0, 90), so 90 is committed: all of epoch 4.
  3. Controller 1 leads epoch 5 now, and its log alone has a record of epoch 5, at 130. What the three logs hold of epoch 4 may
     still be replaced by another leader (Raft 5.4.2, figure 8). Only the snapshots prove anything: 80.
  4. The log of controller 2 is not there, and controller 3 has voted in epoch 6. A leader of epoch 6 may exist whose log nobody
     has named: 80, too.

The proof counts headers: a chain stands for all history below. The audit checks the bytes.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from metadata_log.disk.failures import FileTooLarge
from metadata_log.format.batch import BatchHead
from metadata_log.format.codec import decode_batch
from metadata_log.format.election_state import FILE_BYTES_MAX, FILE_NAME, unpack
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Voters
from snapshots.format import BOOTSTRAP_END
from snapshots.history.log_files import FilesChanged, LogFiles
from snapshots.offline.inputs import METADATA_DIRECTORY, NodeLog
from snapshots.offline.readonly import ReadOnlyDirectory
from snapshots.reader import read_meta

HEADS_MAX: Final = 100_000
"""Maximum number of batches of each log, the newest ones, that are compared."""
_Boundary: TypeAlias = tuple[Offset, bytes]
"""The end of a batch, and the chain there."""


class Committed(NamedTuple):
    """The proven end of the committed records."""

    end: Offset
    """All records below are committed. 0: nothing is proven."""
    proof: str
    """The reason, for people."""


class _Tail(NamedTuple):
    """The newest batches of one voter's log, above what is proven otherwise."""

    voter: ReplicaKey
    heads: tuple[BatchHead, ...]
    voters: tuple[tuple[Offset, Voters], ...]
    """The voter sets in these batches, each with the end of its batch; the first one is that below them, if it is known."""
    epoch: Epoch
    """The newest epoch that the controller has heard of."""

    def voters_at(self, end: Offset) -> Voters | None:
        """Return the voter set that holds just below `end`."""
        found = [each for at, each in self.voters if at <= end]
        return found[-1] if found else None


def committed_end(logs: Iterable[NodeLog]) -> Committed:
    """Return how far `logs`, of one cluster, are proven to be committed.

    Raises:
        LogFormatError: a file that the proof needs cannot be read.
    """
    named = tuple(logs)
    proven = max((found for log in named for found in _alone(log)), default=_NOTHING, key=lambda each: each.end)
    tails = [tail for log in named if (tail := _tail(log, proven.end)) is not None]
    return _by_majority(tails, proven) or proven


_NOTHING: Final = Committed(0, "no snapshot, no log of a broker, and no majority of voters proves anything")


def _alone(log: NodeLog) -> Iterator[Committed]:
    """Return what one directory proves by itself."""
    if log.snapshots:
        end = log.snapshots[-1].offset
        yield Committed(end, f"{log.node} has written a snapshot at {end}")
    if log.identity is not None and log.identity.role == "broker" and log.durable_end is not None:
        yield Committed(log.durable_end, f"{log.node} was given these records")


def _by_majority(tails: list[_Tail], proven: Committed) -> Committed | None:
    """Return the highest end of a batch of the newest epoch that a majority holds; None if there is none above `proven`."""
    newest = max((head.epoch for tail in tails for head in tail.heads[-1:]), default=0)
    holders: dict[_Boundary, set[ReplicaKey]] = defaultdict(set)
    for tail in tails:
        for head in tail.heads:
            if head.epoch == newest:
                holders[head.end_offset, head.chain].add(tail.voter)
    for tail in sorted(tails, key=lambda each: each.heads[-1].end_offset if each.heads else 0, reverse=True):
        for head in reversed(tail.heads):
            if head.epoch < newest or head.end_offset <= proven.end:
                break
            voters = tail.voters_at(head.end_offset)
            if voters is None:
                continue
            keys = {ReplicaKey(each.node_id, each.directory_id) for each in voters.voters}
            holding = holders[head.end_offset, head.chain] & keys
            are_all_here = keys <= {each.voter for each in tails}
            heard = max(each.epoch for each in tails)
            if 2 * len(holding) > len(keys) and (are_all_here or heard <= newest):
                return Committed(head.end_offset, f"{len(holding)} of {len(keys)} voters hold these records")
    return None


def _tail(log: NodeLog, above: Offset) -> _Tail | None:
    """Return the newest batches of a controller's log above `above`; None if its owner is unknown, or is no controller."""
    if log.identity is None or log.identity.role != "controller":
        return None
    heads: deque[BatchHead] = deque(maxlen=HEADS_MAX)
    voters = list(_voters_below(log, above))
    end = log.durable_end
    files = LogFiles(log.directory)
    try:
        start = files.start_of(above)
        for spot, head in () if start is None or end is None else files.heads(start, end):
            heads.append(head)
            if head.is_control:
                voters += [
                    (head.end_offset, each) for each in decode_batch(files.batch_at(spot)) if isinstance(each, Voters)
                ]
    except FilesChanged as e:
        raise LogFormatError(f"{log.path}: {e}; ask again") from e
    key = ReplicaKey(log.identity.node_id, log.identity.directory_id)
    return _Tail(key, tuple(heads), tuple(voters), _heard_epoch(log))


def _voters_below(log: NodeLog, above: Offset) -> Iterator[tuple[Offset, Voters]]:
    """Return the voter set at the newest snapshot at or below `above`, or that of the bootstrap checkpoint."""
    ends: list[OffsetAndEpoch] = [BOOTSTRAP_END] if log.has_bootstrap else []
    ends += [end for end in log.snapshots if end.offset <= above]
    if ends:
        yield ends[-1].offset, read_meta(log.directory, ends[-1]).voters


def _heard_epoch(log: NodeLog) -> Epoch:
    """Return the epoch in `quorum-state`. A directory without the file has heard of no epoch, and has voted in none."""
    data = ReadOnlyDirectory(log.path.removesuffix(f"/{METADATA_DIRECTORY}"))
    if not data.exists(FILE_NAME):
        return 0
    where = f"{data.path_text}/{FILE_NAME}"
    try:
        return unpack(data.read(FILE_NAME, FILE_BYTES_MAX), where).epoch
    except FileTooLarge as e:
        raise LogFormatError(f"{where}: {e}") from e
