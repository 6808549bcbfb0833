"""Fetching a snapshot, piece by piece, where what comes next is gone from the leader's log (KIP-630).

    UseSnapshot --> FetchSnapshot(position) --> WriteSnapshotChunk --> ... --> InstallSnapshot --> SnapshotInstalled

It is large, so it must not begin anew for every little thing. All nodes write the same bytes at the same offset, so what
is here already (`state.part`) is good whoever leads next: a download goes on where it was after a break, an election, or a
restart, of which the runtime says how much of a `.part` file it has found. The whole is verified before anything stands on it.

A file that does not verify is fetched once more from its beginning at once (the crash that interrupted it may have left a
torn piece), then after a while, then only once in `BAD_FILE_REST_MS`: the leader's own file may be bad, and fetching it without a
rest mends nothing. The node goes on voting, says so (`unloadable`), and takes the next snapshot that the leader offers at once.
It never gives up: of three controllers one is down, and this one alone stands between the leader and its next commit, so there
will be no other snapshot; and the leader may have mended its file, or have sent it from a memory that is sound again.

What there was no room for is not such a file, and an idle cluster may never make another: it is fetched anew, as often as it
takes, but not without a rest.

Reading a snapshot into an image takes long. Meanwhile the follower asks on, at the position that is the end of the file:
so it knows that its leader is there, and its leader that it is, which for `progress.INSTALL_MS_MAX` counts as getting
further. Otherwise two of three could lose a leader because one of them is being brought up to date.
"""

from dataclasses import replace

from metadata_log.format.ids import OffsetAndEpoch
from quorum.core.protocol.effects import InstallSnapshot, WriteSnapshotChunk
from quorum.core.protocol.messages import FetchSnapshotRequest, FetchSnapshotResponse
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Download, Follower

INSTALLS_MAX = 3
"""So often is one snapshot fetched that cannot be loaded, before the node rests and says so."""
BAD_FILE_REST_MS = 10_000
"""So long is the rest before each further attempt at a snapshot that could not be loaded."""
NO_ROOM_REST_MS = 5_000
"""What was written is gone and there may be room for as much again: without a rest the leader would send nothing else."""


def request_for(state: QuorumState, download: Download) -> FetchSnapshotRequest:
    max_bytes = min(state.pieces.next(state.now_ms), state.config.snapshot_chunk_bytes)
    return FetchSnapshotRequest(
        state.fetch_key, state.epoch, state.next_number(), download.snapshot, download.position, max_bytes
    )


def begin(state: QuorumState, role: Follower, snapshot: OffsetAndEpoch) -> None:
    """The leader has nothing else for this node than `snapshot`.

    Raises:
        SafetyViolated: if that would take back what is committed.
    """
    if state.known_high_watermark is not None and snapshot.offset < state.known_high_watermark:
        raise SafetyViolated(
            f"told to install snapshot {snapshot}, below the high watermark {state.known_high_watermark}"
        )
    until_ms, put_off, _ = state.put_off
    if snapshot == put_off and state.now_ms < until_ms:
        state.retry_at_ms = state.now_ms + state.config.fetch_wait_ms
        return
    part = state.part if state.part is not None and state.part.snapshot == snapshot else Download(snapshot)
    state.role = replace(role, download=part)


def take_chunk(state: QuorumState, role: Follower, download: Download, response: FetchSnapshotResponse) -> None:
    """A piece has come; the last one of them is followed by the installation."""
    position = download.position + len(response.data)
    same_file = response.position == download.position and download.size in (None, response.size)
    stands_still = not response.data and position != response.size
    if not same_file or stands_still or not 0 < position <= response.size:
        drop(state, role)
        return state.back_off()
    if response.data:
        state.effects.append(WriteSnapshotChunk(download.snapshot, download.position, response.data))
    state.part = Download(download.snapshot, position, response.size)
    if position < response.size:
        state.piece_came(len(response.data))
        state.role = replace(role, download=state.part)
    else:
        state.role = replace(role, download=None)
        state.installing, state.part = state.part, None
        state.awaiting_log = True
        state.retry_at_ms = state.now_ms + state.config.fetch_wait_ms
        state.effects.append(InstallSnapshot(download.snapshot))
    return None


def drop(state: QuorumState, role: Follower) -> None:
    """It is another file than the one that was begun: a fetch will say which."""
    state.role, state.part = replace(role, download=None), None


def on_still_there(state: QuorumState, role: Follower) -> None:
    """The leader has heard that the installation goes on."""
    state.role = role
    state.retry_at_ms = state.now_ms + state.config.fetch_wait_ms


def on_installed(state: QuorumState) -> None:
    _over(state)
    state.failed_install = (None, 0, "")


def _over(state: QuorumState) -> None:
    """The next fetch leaves at once, whatever became of the question whether the leader is still there."""
    state.installing = state.part = state.in_flight = None
    if isinstance(state.role, Follower):
        state.role = replace(state.role, download=None)  # its file may be gone with what has failed
    state.retry_at_ms = state.now_ms


def on_install_failed(state: QuorumState, snapshot: OffsetAndEpoch, reason: str, *, is_damaged: bool) -> None:
    """The second time it is begun at once, then only after a while, or a rest; only a file that `is_damaged` counts."""
    _over(state)
    if not is_damaged:
        state.put_off = (state.now_ms + NO_ROOM_REST_MS, snapshot, reason)
        return
    failed, times, _ = state.failed_install
    times = times + 1 if failed == snapshot else 1
    state.failed_install = (snapshot, times, reason)
    if times >= INSTALLS_MAX:
        state.put_off = (state.now_ms + BAD_FILE_REST_MS, snapshot, reason)
    if times > 1:
        state.retry_at_ms = state.now_ms + state.config.fetch_timeout_ms // 2


def unloadable(state: QuorumState) -> str:
    """That the leader's snapshot was fetched too often without being loaded, in one sentence; empty: it was not."""
    snapshot, times, reason = state.failed_install
    if times < INSTALLS_MAX:
        return ""
    return f"snapshot {snapshot} of node {state.leader_id} was fetched {times} times and cannot be loaded: {reason}"


def not_kept(state: QuorumState) -> str:
    """That the leader's snapshot could not be stored on this disk, in one sentence; empty: it could."""
    until_ms, put_off, reason = state.put_off
    if state.now_ms >= until_ms or unloadable(state):
        return ""
    return f"snapshot {put_off} of node {state.leader_id} could not be stored, and is fetched again: {reason}"
