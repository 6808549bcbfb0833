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
  5. Controller 1 led epoch 4 and appended [120, 130) alone; controllers 2 and 3 have committed [120, 140) of epoch 5 since. For
     the logs of 2 and 3 the end is 140. The log of controller 1 has another tail, which it will cut: 120.

The proof counts headers: a chain stands for all history below. The audit checks the bytes.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

from metadata_log.disk.failures import FileTooLarge
from metadata_log.format.batch import BatchHead
from metadata_log.format.codec import decode_batch
from metadata_log.format.election_state import FILE_BYTES_MAX, FILE_NAME, unpack
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Epoch, Offset, OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Voters
from metadata_log.store.segment import SEGMENT_HEADER_BYTES
from snapshots.format import BOOTSTRAP_END
from snapshots.history.log_files import FilesChanged, LogFiles, Spot
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


class _Proof(NamedTuple):
    """A proven end, and the log that has all records below."""

    committed: Committed
    log: NodeLog | None


class _Tail(NamedTuple):
    """The newest batches of one voter's log, above what is proven otherwise."""

    log: NodeLog
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
    """Return how far the records of the first of `logs`, all of one cluster, are committed. The others help to prove it.

    Raises:
        LogFormatError: a file that the proof needs cannot be read.
    """
    return committed_ends(logs)[0]


def committed_ends(logs: Iterable[NodeLog]) -> tuple[Committed, ...]:
    """Return how far the records of each of `logs` are committed. A log that only lags has the end of the others.

    Raises:
        LogFormatError: a file that the proof needs cannot be read, or the logs are of different clusters.
    """
    named = tuple(logs)
    clusters = sorted({log.identity.cluster_id for log in named if log.identity is not None})
    if len(clusters) > 1:
        raise LogFormatError(
            f"the directories belong to different clusters, {' and '.join(clusters)}; name directories of one cluster, also "
            "with --beside"
        )
    own = [max(_alone(log), default=_NOTHING, key=_end_of) for log in named]
    alone = max(own, default=_NOTHING, key=_end_of)
    tails = [tail for log in named if (tail := _tail(log, alone.committed.end)) is not None]
    proof = _by_majority(tails, alone.committed) or alone
    return tuple(_proven_for(log, each.committed.end, proof) for log, each in zip(named, own, strict=True))


_NOTHING: Final = _Proof(
    Committed(0, "no snapshot, no log of a broker, and no majority of voters proves anything"), None
)


def _end_of(proof: _Proof) -> Offset:
    return proof.committed.end


def _alone(log: NodeLog) -> Iterator[_Proof]:
    """Return what one directory proves by itself. A snapshot that cannot be read proves nothing, and the audit reports it."""
    for end in reversed(log.snapshots):
        try:
            chain = read_meta(log.directory, end).chain
        except (LogFormatError, FileNotFoundError):
            continue
        if _leads_to(log, end.offset, chain):
            yield _Proof(Committed(end.offset, f"{log.node} has written a snapshot at {end.offset}"), log)
            break
    if log.identity is not None and log.identity.role == "broker" and log.durable_end is not None:
        yield _Proof(Committed(log.durable_end, f"{log.node} was given these records"), log)


def _leads_to(log: NodeLog, end: Offset, chain: bytes) -> bool:
    """Return True if the log has this chain at `end`, or is too damaged below to tell: then the job finds the damage.

    A node can have a snapshot that its log does not lead to. Example: an old leader has records alone, fetches a snapshot of the
    next leader, and is killed before it resets its log.
    """
    noted = [(log.start.start.offset, log.start.chain)] if log.start else []
    noted += [(log.flushed.end, log.flushed.chain)] if log.flushed else []
    if (end, chain) in noted or not log.segments:
        return True
    reached = 0
    for reached, found in _boundaries(log, end - 1, end):
        if reached == end:
            return found == chain
    return reached < min(end, log.durable_end or 0)


def _proven_for(log: NodeLog, own_end: Offset, proof: _Proof) -> Committed:
    """Return the proven end for the records of `log`, which may have another tail than the log of the proof. `own_end`: the end
    that the directory of `log` proves by itself.
    """
    committed, other = proof
    reach = committed.end if log.durable_end is None else min(committed.end, log.durable_end)
    if other is None or other.path == log.path or reach <= own_end:
        return committed
    common = _common_end(log, other, own_end, committed.end)
    if common == reach:
        return committed
    same = f"{log.node} is known to have the same records as {other.node} up to {max(common, own_end)} only"
    return Committed(max(common, own_end), f"{committed.proof} up to {committed.end}, and {same}")


def _common_end(log: NodeLog, other: NodeLog, above: Offset, until: Offset) -> Offset:
    """Return the last offset up to `until` at which both logs have the same chain; 0 if there is none from `above` on."""
    common, theirs = 0, _boundaries(other, above, until)
    end, chain = -1, b""
    for our_end, our_chain in _boundaries(log, above, until):
        while end < our_end:
            following = next(theirs, None)
            if following is None:
                return common
            end, chain = following
        if (end, chain) == (our_end, our_chain):
            common = end
    return common


def _boundaries(log: NodeLog, above: Offset, until: Offset) -> Iterator[_Boundary]:
    """Return the ends of batches up to `until`, from the beginning of the segment with the record at `above` on."""
    with _unchanged(log):
        files = LogFiles(log.directory)
        base = files.first_below(above)
        if base is None:
            base = files.bases[0] if files.bases else None
        if base is None:
            return
        begin = Spot(base, SEGMENT_HEADER_BYTES, base)
        chain = files.chain_at(begin)
        if chain is not None:
            yield base, chain
        for _, head in files.heads(begin, until):
            yield head.end_offset, head.chain


@contextmanager
def _unchanged(log: NodeLog) -> Iterator[None]:
    """Raise a LogFormatError if the node deletes a file meanwhile."""
    try:
        yield
    except FilesChanged as e:
        raise LogFormatError(f"{log.path}: {e}; ask again") from e


def _by_majority(tails: list[_Tail], proven: Committed) -> _Proof | None:
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
                reason = f"{len(holding)} of {len(keys)} voters hold these records"
                return _Proof(Committed(head.end_offset, reason), tail.log)
    return None


def _tail(log: NodeLog, above: Offset) -> _Tail | None:
    """Return the newest batches of a controller's log above `above`; None if its owner is unknown, or is no controller."""
    if log.identity is None or log.identity.role != "controller":
        return None
    heads: deque[BatchHead] = deque(maxlen=HEADS_MAX)
    voters = list(_voters_below(log, above))
    end = log.durable_end
    with _unchanged(log):
        files = LogFiles(log.directory)
        start = files.start_of(above)
        for spot, head in () if start is None or end is None else files.heads(start, end):
            heads.append(head)
            if head.is_control:
                voters += [
                    (head.end_offset, each) for each in decode_batch(files.batch_at(spot)) if isinstance(each, Voters)
                ]
    key = ReplicaKey(log.identity.node_id, log.identity.directory_id)
    return _Tail(log, key, tuple(heads), tuple(voters), heard_epoch(log))


def _voters_below(log: NodeLog, above: Offset) -> Iterator[tuple[Offset, Voters]]:
    """Return the voter set at the newest snapshot at or below `above`, or that of the bootstrap checkpoint."""
    ends: list[OffsetAndEpoch] = [BOOTSTRAP_END] if log.has_bootstrap else []
    ends += [end for end in log.snapshots if end.offset <= above]
    if ends:
        yield ends[-1].offset, read_meta(log.directory, ends[-1]).voters


def heard_epoch(log: NodeLog) -> Epoch:
    """Return the epoch in `quorum-state`. A directory without the file has heard of no epoch, and has voted in none."""
    data = ReadOnlyDirectory(log.path.removesuffix(f"/{METADATA_DIRECTORY}"))
    if not data.exists(FILE_NAME):
        return 0
    where = f"{data.path_text}/{FILE_NAME}"
    try:
        return unpack(data.read(FILE_NAME, FILE_BYTES_MAX), where).epoch
    except FileTooLarge as e:
        raise LogFormatError(f"{where}: {e}") from e
