"""Downloading a snapshot piece by piece, once the leader's log no longer holds the next records (KIP-630).

    UseSnapshot --> FetchSnapshot(position) --> WriteSnapshotChunk --> ... --> InstallSnapshot --> SnapshotInstalled

A snapshot is large, so a download must survive interruptions. All nodes write the same bytes for the same offset, so
the downloaded part (`InstallState.part`) stays valid under any leader. A download continues after a broken connection,
an election, or a restart; after a restart the runtime reports the size of the `.part` file. The node verifies the whole
file before using it.

Example:

    1. Follower 3 was away; leader 1's log starts at 500. Leader 1 answers its fetch with "use snapshot 500".
    2. Follower 3 has downloaded 6 MiB of 9 when leader 1 dies. Node 2 becomes leader.
    3. Node 2 also offers snapshot 500, and follower 3 continues at 6 MiB.
    4. The file is complete: follower 3 verifies and installs it, and fetches records from 500 on.

A file which fails verification is fetched once more at once, from its beginning: a crash may have left a torn piece. A
third attempt follows after a delay, and all further attempts follow after `BAD_FILE_REST_MS` each, because the leader's
own file may be bad and repeated fetches alone repair nothing. The node keeps voting, reports the problem
(`unloadable`), and accepts any newer snapshot at once. The node never gives up: with one of three controllers down,
this node alone may stand between the leader and its next commit, so no newer snapshot would appear; and the leader may
repair its file, or send the bytes from sound memory again.

A full disk is another matter. The node downloads the snapshot again after a rest, as often as needed, because an idle
cluster may never write another snapshot.

Loading a snapshot into an image takes long. Meanwhile the follower keeps asking for the position at the end of the
file. The follower so learns that its leader is alive, and the leader counts the follower as making progress, for
`progress.INSTALL_MS_MAX`. Otherwise two of three voters could lose their leader because one of them installs a
snapshot.
"""

from dataclasses import replace

from metadata_log.format.ids import OffsetAndEpoch
from quorum.core.protocol.download import Download
from quorum.core.protocol.effects import InstallSnapshot, WriteSnapshotChunk
from quorum.core.protocol.messages import FetchSnapshotRequest, FetchSnapshotResponse
from quorum.core.quorum_state import QuorumState, SafetyViolated
from quorum.core.roles import Follower

INSTALLS_MAX = 3
"""How many times a node fetches a snapshot which fails to load before resting and reporting the problem."""
BAD_FILE_REST_MS = 10_000
"""How long a node rests before each further attempt at a snapshot which failed to load."""
NO_ROOM_REST_MS = 5_000
"""How long a node rests after a full disk. The failed file is deleted, so the disk may have room again at once; without
a rest the leader would send nothing but snapshots."""


def request_for(state: QuorumState, download: Download) -> FetchSnapshotRequest:
    max_bytes = min(state.fetch.pieces.next(state.now_ms), state.config.snapshot_chunk_bytes)
    return FetchSnapshotRequest(
        state.fetch_key, state.epoch, state.fetch.next_number(), download.snapshot, download.position, max_bytes
    )


def begin(state: QuorumState, role: Follower, snapshot: OffsetAndEpoch) -> None:
    """Begins or continues the download of `snapshot`, the only thing the leader can offer.

    Raises:
        SafetyViolated: the snapshot would take back committed records.
    """
    if state.known_high_watermark is not None and snapshot.offset < state.known_high_watermark:
        raise SafetyViolated(
            f"the leader offered snapshot {snapshot}, below the high watermark {state.known_high_watermark}; it was not installed"
        )
    if state.install.is_put_off(snapshot, state.now_ms):
        state.fetch.wait_until(state.now_ms + state.config.fetch_wait_ms)
        return
    state.update_role(replace(role, download=state.install.resume(snapshot)))


def take_chunk(state: QuorumState, role: Follower, download: Download, response: FetchSnapshotResponse) -> None:
    """Writes a chunk; after the last chunk, begins the installation."""
    position = download.position + len(response.data)
    same_file = response.position == download.position and download.size in (None, response.size)
    stands_still = not response.data and position != response.size
    if not same_file or stands_still or not 0 < position <= response.size:
        drop(state, role)
        return state.fetch.back_off(state.now_ms)
    if response.data:
        state.effects.append(WriteSnapshotChunk(download.snapshot, download.position, response.data))
    part = Download(download.snapshot, position, response.size)
    state.install.received(part)
    if position < response.size:
        state.fetch.piece_came(len(response.data), state.now_ms)
        state.update_role(replace(role, download=part))
    else:
        state.update_role(replace(role, download=None))
        state.install.complete()
        state.begin_log_change()
        state.fetch.wait_until(state.now_ms + state.config.fetch_wait_ms)
        state.effects.append(InstallSnapshot(download.snapshot))
    return None


def drop(state: QuorumState, role: Follower) -> None:
    """Discards the download: the leader has another file. The next fetch will name it."""
    state.install.drop()
    state.update_role(replace(role, download=None))


def on_still_there(state: QuorumState, role: Follower) -> None:
    """Notes the leader's answer during an installation."""
    state.update_role(role)
    state.fetch.wait_until(state.now_ms + state.config.fetch_wait_ms)


def on_installed(state: QuorumState) -> None:
    _over(state)
    state.install.succeeded()


def _over(state: QuorumState) -> None:
    """Clears the installation, and lets the next fetch leave at once, without waiting for the question in flight."""
    state.install.clear()
    state.fetch.abandon(state.now_ms)
    if isinstance(state.role, Follower):
        state.update_role(
            replace(state.role, download=None)
        )  # the file may have been deleted with the failed installation


def on_install_failed(state: QuorumState, snapshot: OffsetAndEpoch, reason: str, *, is_damaged: bool) -> None:
    """Schedules the next attempt: at once, after a delay, or after a rest.

    Only a damaged file (`is_damaged`) counts as a failure.
    """
    _over(state)
    if not is_damaged:
        state.install.put_off_until(state.now_ms + NO_ROOM_REST_MS, snapshot, reason)
        return
    times = state.install.note_failure(snapshot, reason)
    if times >= INSTALLS_MAX:
        state.install.put_off_until(state.now_ms + BAD_FILE_REST_MS, snapshot, reason)
    if times > 1:
        state.fetch.wait_until(state.now_ms + state.config.fetch_timeout_ms // 2)


def unloadable(state: QuorumState) -> str:
    """The problem of a leader's snapshot fetched too often without loading, in one sentence; empty: no problem."""
    snapshot, times, reason = state.install.failed
    if times < INSTALLS_MAX:
        return ""
    return f"snapshot {snapshot} of node {state.leader_id} was fetched {times} times and cannot be loaded: {reason}"


def not_kept(state: QuorumState) -> str:
    """The problem of a snapshot which could not be stored on this node's disk, in one sentence; empty: no problem."""
    until_ms, put_off, reason = state.install.put_off
    if state.now_ms >= until_ms or unloadable(state):
        return ""
    return f"snapshot {put_off} of node {state.leader_id} could not be stored and will be fetched again: {reason}"
