"""`quorum-state`: the epoch, the vote and the leader, in a single file that is always replaced as a whole.

`save` makes a vote durable: it returns after write, fsync, rename and fsync of the directory (`Directory.write_atomic`). The node
carries out `SaveElectionState` before any message about the vote. Epoch and vote share one write. Counter-example with two writes
(hashicorp/raft #661):
    1. node 1 has voted for 2 in epoch 4; now candidate 3 asks for a vote in epoch 5;
    2. node 1 writes the epoch 5, and crashes before it writes the vote for 3;
    3. node 1 restarts with epoch 5 and the old vote for 2, and would answer candidate 2 of epoch 5 with yes.
"""

from metadata_log.disk.failures import FileTooLarge, is_unreadable
from metadata_log.disk.files import Directory
from metadata_log.format.election_state import FILE_BYTES_MAX, FILE_NAME, ElectionState, ForgottenVote, pack, unpack

__all__ = ["FILE_BYTES_MAX", "FILE_NAME", "FIRST_STATE", "ForgottenVote", "load", "save"]

FIRST_STATE = ElectionState(epoch=0, voted_for=None, leader_id=None)


def save(directory: Directory, state: ElectionState) -> None:
    """Makes `state` durable before it returns."""
    directory.write_atomic(FILE_NAME, pack(state))


def load(directory: Directory) -> ElectionState | None:
    """Reads the last saved state, and makes the state durable first; None if the file does not exist.

    Counter-example without the flush of the directory:
        1. node 1 saves its vote for 2, and is killed between the rename and the fsync of the directory;
        2. node 1 restarts, reads its vote from the page cache, and repeats its answer to candidate 2;
        3. the power fails: the vote is lost, and node 1 could vote for 3 in the same epoch.

    Raises:
        FlushFailed: the process must stop.
        ForgottenVote: the file is damaged. A node that has forgotten its vote could vote twice in one epoch.
        CorruptLog: a later release has written the file.
        OSError: the disk cannot read the file. The vote is not forgotten: the next start may read the file. If the disks of a
            majority hang for a moment, no voter must give up its vote.
    """
    directory.flush()
    if not directory.exists(FILE_NAME):
        return None
    where = f"{directory.path_text}/{FILE_NAME}"
    return unpack(_read(directory, where), where)


def _read(directory: Directory, where: str) -> bytes:
    try:
        return directory.read(FILE_NAME, FILE_BYTES_MAX)
    except FileTooLarge as e:
        raise ForgottenVote(f"{where}: unreadable ({e})") from e
    except OSError as e:
        if not is_unreadable(e):
            raise
        text = f"{where}: the disk cannot read this node's vote ({e.strerror}). If it never can again, remove the file: the "
        raise OSError(
            e.errno, f"{text}node goes on under another directory id, as an observer until that is admitted"
        ) from e
