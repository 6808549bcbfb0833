"""Snapshots with interruptions, failed verification, or a long installation: tests for `quorum.core.download`."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch
from quorum.core.download import BAD_FILE_REST_MS, INSTALLS_MAX, NO_ROOM_REST_MS
from quorum.core.protocol.download import Download
from quorum.core.protocol.effects import Effect, ElectionState, InstallSnapshot, SendRequest, WriteSnapshotChunk
from quorum.core.protocol.inputs import Failure, RequestFailed, SnapshotInstalled, SnapshotInstallFailed
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from quorum.core.protocol.progress import INSTALL_MS_MAX
from quorum.core.roles import Role
from tests.core.cluster import Cluster, voters_of
from tests.core.solo import Solo, fetch_in, key, none_of, only, problem_texts

WANTED = OffsetAndEpoch(9, 2)
SIZE = 10


def asked_in(effects: list[Effect]) -> FetchSnapshotRequest:
    found = [e.request for e in effects if isinstance(e, SendRequest) and isinstance(e.request, FetchSnapshotRequest)]
    assert len(found) == 1, effects
    return found[0]


def redirected(solo: Solo, fetch: FetchRequest, leader_id: int = 2) -> list[Effect]:
    """The leader answers: use the snapshot ending at 9."""
    return solo.respond(
        leader_id, fetch, FetchResponse(ErrorCode.NONE, solo.core.epoch, leader_id, fetch.number, snapshot=WANTED)
    )


def piece(solo: Solo, asked: FetchSnapshotRequest, count: int, leader_id: int = 2) -> list[Effect]:
    """The leader sends the next `count` bytes."""
    response = FetchSnapshotResponse(
        ErrorCode.NONE, solo.core.epoch, leader_id, asked.number, SIZE, asked.position, bytes(count)
    )
    return solo.respond(leader_id, asked, response)


def downloading(part: Download | None = None) -> tuple[Solo, FetchSnapshotRequest]:
    solo = Solo(election=ElectionState(3, None, None), part=part)
    return solo, asked_in(redirected(solo, solo.follow()))


def test_a_download_goes_on_under_another_leader() -> None:
    """All nodes write the same bytes for the same offset."""
    solo, asked = downloading()
    piece(solo, asked, 6)
    fetch = fetch_in(solo.request(BeginQuorumEpochRequest(key(3), solo.core.me, 4)))
    assert asked_in(redirected(solo, fetch, leader_id=3)).position == 6


def test_a_download_goes_on_after_a_break() -> None:
    """Only the missing piece is requested again."""
    solo, asked = downloading()
    asked = asked_in(piece(solo, asked, 6))
    solo.step(RequestFailed(2, asked, Failure.BROKEN))
    assert asked_in(solo.wait(100)).position == 6


def test_a_download_goes_on_after_a_restart() -> None:
    """The download continues after the part found by the runtime. A part of another snapshot is useless."""
    _, asked = downloading(Download(WANTED, 7))
    assert asked.position == 7
    _, asked = downloading(Download(OffsetAndEpoch(5, 1), 7))
    assert asked.position == 0


def test_a_part_that_was_whole_is_installed_without_another_byte() -> None:
    """The process died between the last piece and the rename."""
    solo, asked = downloading(Download(WANTED, SIZE))
    effects = piece(solo, asked, 0)
    assert only(InstallSnapshot, effects).snapshot == WANTED and none_of(WriteSnapshotChunk, effects)


def test_a_part_that_is_too_long_is_begun_anew() -> None:
    """The part is not of the leader's file, so the download begins again."""
    solo, asked = downloading(Download(WANTED, SIZE + 1))
    solo.respond(2, asked, FetchSnapshotResponse(ErrorCode.POSITION_OUT_OF_RANGE, 3, 2, asked.number))
    assert asked_in(redirected(solo, fetch_in(solo.wait(100)))).position == 0


def test_a_snapshot_that_cannot_be_loaded_is_not_fetched_without_a_rest() -> None:
    """The second fetch follows at once, the third after a delay, all others after a rest.

    The node keeps voting, and accepts a newer snapshot at once.
    """
    solo, asked = downloading()
    waits = []
    for _ in range(INSTALLS_MAX):
        only(InstallSnapshot, piece(solo, asked, SIZE))
        began_ms = solo.now_ms
        effects = solo.step(SnapshotInstallFailed(WANTED, "a bad footer", is_damaged=True))
        while none_of(SendRequest, effects):
            effects = solo.wait(10)
        waits.append(solo.now_ms - began_ms)
        effects = redirected(solo, fetch_in(effects))
        if not none_of(SendRequest, effects):
            asked = asked_in(effects)
    assert waits[0] == 0 < waits[1]
    assert "cannot be loaded: a bad footer" in problem_texts(solo.core)
    fetch = fetch_in(solo.wait(200))
    newer = FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, snapshot=OffsetAndEpoch(12, 2))
    assert asked_in(solo.respond(2, fetch, newer)).snapshot.offset == 12


def test_a_snapshot_that_could_not_be_loaded_is_tried_again() -> None:
    """One of three controllers is down.

    No record is committed before this node has the snapshot, so no newer snapshot will appear. The leader's memory or
    file may be sound again.
    """
    solo, asked = downloading()
    effects: list[Effect] = []
    for _ in range(INSTALLS_MAX):
        piece(solo, asked, SIZE)
        effects = solo.step(SnapshotInstallFailed(WANTED, "a bad digest", is_damaged=True))
        failed_ms = solo.now_ms
        while none_of(SendRequest, effects):
            effects = solo.wait(10)
        effects = redirected(solo, fetch_in(effects))
        if not none_of(SendRequest, effects):
            asked = asked_in(effects)
    while none_of(SendRequest, effects):
        assert "cannot be loaded: a bad digest" in problem_texts(solo.core)
        assert solo.now_ms < failed_ms + 2 * BAD_FILE_REST_MS
        effects = redirected(solo, fetch_in(solo.wait(solo.config.fetch_wait_ms)))
    assert solo.now_ms >= failed_ms + BAD_FILE_REST_MS
    assert (asked_in(effects).snapshot, asked_in(effects).position) == (WANTED, 0)


def test_a_download_that_there_is_no_room_for_is_begun_anew_after_a_rest() -> None:
    """The written part is deleted, and the position with it.

    The number of attempts is unlimited: the file itself is good.
    """
    solo, asked = downloading()
    for _ in range(2 * INSTALLS_MAX):
        asked = asked_in(piece(solo, asked, SIZE // 2))
        assert asked.position > 0
        effects = solo.step(SnapshotInstallFailed(WANTED, "no room", is_damaged=False))
        failed_ms = solo.now_ms
        assert "will be fetched again: no room" in problem_texts(solo.core)
        while none_of(SendRequest, effects := redirected(solo, fetch_in(effects))):
            assert solo.now_ms < failed_ms + NO_ROOM_REST_MS
            effects = solo.wait(solo.config.fetch_wait_ms)
        assert solo.now_ms >= failed_ms + NO_ROOM_REST_MS
        asked = asked_in(effects)
        assert asked.position == 0
    assert not problem_texts(solo.core)


def test_while_a_snapshot_is_loaded_leader_and_follower_know_of_each_other() -> None:
    """The follower keeps asking at the end of the file. After the installation, it fetches the log at once."""
    solo, asked = downloading()
    piece(solo, asked, SIZE)
    for _ in range(30):
        asked = asked_in(solo.wait(solo.config.fetch_wait_ms))
        assert asked.position == SIZE
        piece(solo, asked, 0)
    assert solo.core.role is Role.FOLLOWER
    solo.wait(solo.config.fetch_wait_ms)
    solo.log.install(WANTED, bytes(32))
    effects = solo.step(SnapshotInstalled(solo.log.shape(), voters_of(1, 2, 3)))
    assert fetch_in(effects).fetch_offset == 9


def test_standing_at_one_position_is_progress_for_a_while_only() -> None:
    """A follower loading for ever, or asking for one piece for ever, does not keep a leader in office."""
    solo = Solo()
    solo.elect()
    began_ms = solo.now_ms
    while solo.core.is_leading:
        solo.request(FetchSnapshotRequest(key(2), solo.core.epoch, 1, OffsetAndEpoch(1, 1), 500, 100))
        solo.wait(100)
    assert INSTALL_MS_MAX <= solo.now_ms - began_ms <= INSTALL_MS_MAX + 2 * solo.config.check_quorum_ms


def test_a_long_installation_does_not_cost_the_leader_its_office() -> None:
    """Two of three controllers run, and one of the two loads a snapshot for five seconds."""
    cluster = Cluster(3).boot_all()
    leader = cluster.elect()
    follower, away = (node for node in cluster.nodes.values() if node is not leader)
    cluster.propose(leader.id, 3)
    cluster.run(200)
    cluster.crash(follower.id)
    cluster.propose(leader.id, 3)
    cluster.run(200)
    leader.take_snapshot(leader.high_watermark)
    cluster.install_ms = 5_000
    epoch = leader.up.epoch
    follower.boot_up()
    cluster.run(50)
    cluster.crash(away.id)
    cluster.run(8_000)
    assert leader.up.is_leading and leader.up.epoch == epoch
    assert follower.log.end == leader.log.end
