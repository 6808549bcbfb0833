"""A full disk: votes are still written, nothing else is promised, and when there is room again the node goes on by itself."""

import pytest

from metadata_log.disk.ballast import BALLAST_BYTES, BALLAST_NAME
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import SUPPORTED, Endpoint, Topic, Voter
from metadata_log.store.archive import ARCHIVE_NAME
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from quorum.core.download import INSTALLS_MAX, NO_ROOM_REST_MS
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumChangeResponse,
    RegisterControllerRequest,
    VoteRequest,
    VoteResponse,
)
from quorum.core.protocol.problem import ProblemCode
from quorum.core.roles import Why
from quorum.runtime.disk import election_file
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.disk.space import RETRY_MS
from quorum.runtime.protocol.jobs import LoadSnapshotJob
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered, unanswered
from quorum.runtime.protocol.requests import Refused, SnapshotMarked
from quorum.runtime.protocol.world import Answer, RaftRequest, SnapshotWanted
from snapshots.format import genesis
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

CONFIG = NodeConfig(log=LogConfig(segment_bytes=2048, tail_bytes=700))


def leader_of_one() -> LoneNode:
    lone = LoneNode(formatted_disk(voters_of([1])), CONFIG)
    lone.run_until_idle()
    assert lone.node.active.on
    return lone


def write(lone: LoneNode, reason: str = "r" * 400) -> Answer:
    """A snapshot mark: a record in the log, and a snapshot when it is committed."""
    reply_to = lone.new_reply_to()
    lone.turn(SnapshotWanted(reason, reply_to, lone.now_ms + 1_000))
    lone.run_until_idle()
    return lone.answers[reply_to]


def disk_of(lone: LoneNode) -> MemoryDirectory:
    directory = lone.node._directory
    assert isinstance(directory, MemoryDirectory)
    return directory


def wait(lone: LoneNode, wait_ms: int = 4 * RETRY_MS) -> None:
    """Time passes, and every deadline is kept."""
    end_ms = lone.now_ms + wait_ms
    while (due_ms := lone.node.next_deadline_ms()) is not None and due_ms <= end_ms:
        lone.now_ms = max(lone.now_ms, due_ms)
        lone.turn()
        lone.run_until_idle()
    lone.now_ms = end_ms


def check_recovered(lone: LoneNode) -> None:
    """There is room: the node leads again, writes, and holds its ballast; the next start finds all of it."""
    disk = disk_of(lone)
    wait(lone)
    assert lone.stopped is None
    assert disk.exists(BALLAST_NAME)
    assert not lone.node.disk.status().is_full
    assert lone.node.active.on
    assert isinstance(write(lone), SnapshotMarked)
    lone.node.check_invariants()
    shape = lone.node.log.shape
    again = LoneNode(disk.kill(), CONFIG)
    assert again.node.log.chain_at(shape.end) == shape.chain


def test_room_for_a_vote_is_taken_in_good_times() -> None:
    lone = leader_of_one()
    assert len(disk_of(lone).read(BALLAST_NAME, 2 * BALLAST_BYTES)) == BALLAST_BYTES


def test_a_full_leader_refuses_and_steps_down_and_comes_back() -> None:
    lone = leader_of_one()
    disk = disk_of(lone)
    disk.limit_space(disk.used_bytes)
    answers = [write(lone) for _ in range(10)]
    refused = next(each for each in answers if isinstance(each, Refused))
    assert refused.code is ErrorCode.STORAGE_ERROR
    assert not lone.node.core.is_leading
    resigned = next(each for each in lone.node.core.take_transitions() if each.why is Why.UNFIT)
    assert "the disk is full" in resigned.why.value, "no operator looks for damage"
    assert not disk.exists(BALLAST_NAME)
    assert lone.node.disk.status().is_full
    assert lone.problems == {ProblemCode.DISK_FULL: "the disk is full"} and ProblemCode.DISK_FULL.blocks_ready
    wait(lone, 20_000)
    assert not lone.node.core.is_leading, "it could not even write the first record of its epoch"
    disk.limit_space(None)
    check_recovered(lone)


def test_what_is_proposed_in_the_same_turn_does_not_take_the_room_that_is_kept_for_votes() -> None:
    """The first refusal lets go of the ballast; the next proposals would fit into it."""
    lone = leader_of_one()
    disk = disk_of(lone)
    disk.limit_space(disk.used_bytes)
    while lone.node.core.is_leading:
        wanted = [SnapshotWanted("r" * 1_000, lone.new_reply_to(), lone.now_ms + 1_000) for _ in range(30)]
        lone.turn(*wanted)
        lone.run_until_idle()
    answers = [lone.answers[each.reply_to] for each in wanted]
    first = next(i for i, each in enumerate(answers) if isinstance(each, Refused))
    assert all(isinstance(each, Refused) for each in answers[first:])
    assert disk.used_bytes <= (disk._volume.space_bytes or 0) - BALLAST_BYTES


def propose(lone: LoneNode, reason: str, count: int) -> list[SnapshotWanted]:
    """One turn with `count` proposals."""
    wanted = [SnapshotWanted(reason, lone.new_reply_to(), lone.now_ms + 1_000) for _ in range(count)]
    lone.turn(*wanted)
    return wanted


def is_refused_for_room(answer: Answer | None) -> bool:
    return isinstance(answer, Refused) and answer.code is ErrorCode.STORAGE_ERROR


@pytest.mark.parametrize("room_bytes", range(0, 9_000, 1_500))
def test_the_disk_refuses_exactly_the_proposals_that_are_not_in_the_file(room_bytes: int) -> None:
    """The proposals of a turn are one write. Those before the first refusal are in the file when the turn ends."""
    lone = leader_of_one()
    disk = disk_of(lone)
    end = lone.node.log.end
    disk.limit_space(disk.used_bytes + room_bytes)
    wanted = propose(lone, "r" * 1_000, 30)
    found = Log.open(disk.kill().subdirectory(LOG_DIRECTORY), config=CONFIG.log)
    kept = found.end - end
    assert kept < len(wanted)
    assert found.end == lone.node.log.end

    lone.run_until_idle()
    assert lone.stopped is None
    refused = [is_refused_for_room(lone.answers.get(each.reply_to)) for each in wanted]
    assert refused == [False] * kept + [True] * (len(wanted) - kept)
    disk.limit_space(None)
    check_recovered(lone)


def leader_without_reserved_room() -> LoneNode:
    """The file system cannot reserve room, so the disk is full for a write, and not for the append before."""
    lone = leader_of_one()
    disk = disk_of(lone)
    disk.stop_reserving()
    while lone.node.log.end < 20 or lone.node.log._segments.active.end_position > 1_000:
        write(lone)
    disk.limit_space(disk.used_bytes)
    return lone


def test_a_turn_is_written_in_the_room_for_votes_if_no_room_could_be_reserved() -> None:
    """The proposals of the turn are in the log when the write fails, so the ballast makes room, and the leader resigns."""
    lone = leader_without_reserved_room()
    disk = disk_of(lone)
    wanted = propose(lone, "r", 2)
    assert not disk.exists(BALLAST_NAME)
    found = Log.open(disk.kill().subdirectory(LOG_DIRECTORY), config=CONFIG.log)
    assert found.end == lone.node.log.end
    lone.turn()
    assert not lone.node.core.is_leading
    lone.run_until_idle()
    assert lone.stopped is None
    assert not any(is_refused_for_room(lone.answers[each.reply_to]) for each in wanted), "both are in the log"


def test_a_turn_that_cannot_be_written_at_all_stops_the_node() -> None:
    """No caller hears of success, and no caller that nothing was done: the bytes may be on the disk."""
    lone = leader_without_reserved_room()
    disk = disk_of(lone)
    disk.remove(BALLAST_NAME)
    disk.limit_space(disk.used_bytes)
    wanted = propose(lone, "r", 1)
    assert lone.stopped is not None and "No space left" in lone.stopped
    assert wanted[0].reply_to not in lone.answers


@pytest.mark.parametrize("ack_when_committed", [False, True])
def test_a_voter_that_there_was_no_room_for_is_not_said_to_be_added(ack_when_committed: bool) -> None:
    """The new set was refused by the disk: neither "in force" nor "may have happened" would be true."""
    lone = leader_of_one()
    newcomer = ReplicaKey(2, directory_id(2))
    lone.turn(RaftRequest(RegisterControllerRequest(newcomer, (), SUPPORTED), lone.new_reply_to()))
    lone.run_until_idle()
    shape, epoch = lone.node.log.shape, lone.node.core.epoch
    fetch = FetchRequest(newcomer, epoch, 1, shape.end, epoch, shape.chain, 0, 0, 1)
    lone.turn(RaftRequest(fetch, lone.new_reply_to()))
    voter = Voter(*newcomer, (Endpoint("CONTROLLER", "two", 9_091),))
    disk = disk_of(lone)
    disk.limit_space(disk.used_bytes)
    wanted = [SnapshotWanted("r" * 1_000, lone.new_reply_to(), lone.now_ms + 1_000) for _ in range(30)]
    asked = lone.new_reply_to()
    lone.turn(*wanted, RaftRequest(AddVoterRequest(voter, ack_when_committed, 1_000), asked))
    lone.run_until_idle()

    answer = lone.answers[asked]
    assert isinstance(answer, QuorumChangeResponse)
    assert (answer.error, answer.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None), answer
    assert "nothing was done" in answer.message
    assert not lone.node.core.voters.contains(newcomer)
    disk.limit_space(None)
    check_recovered(lone)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_disk_may_be_full_at_any_write(part: int) -> None:
    """Every few bytes of room: the node never stops, and afterwards everything that was acknowledged is there."""
    for room in range(part * 40, 4_000, 160):
        lone = leader_of_one()
        disk = disk_of(lone)
        disk.limit_space(disk.used_bytes + room)
        acknowledged = 0
        for _ in range(8):
            answer = write(lone)
            acknowledged = answer.offset if isinstance(answer, SnapshotMarked) else acknowledged
            wait(lone, 300)
        assert lone.stopped is None, room
        lone.node.check_invariants()
        assert lone.node.log.shape.flushed_end >= acknowledged
        disk.limit_space(None)
        check_recovered(lone)
        assert lone.node.log.shape.flushed_end >= acknowledged
        assert not [name for name in disk.subdirectory(LOG_DIRECTORY).names() if name.endswith(".part")]


def test_the_archive_goes_before_anything_is_refused() -> None:
    lone = leader_of_one()
    metadata = disk_of(lone).subdirectory(LOG_DIRECTORY)
    archive = metadata.subdirectory(ARCHIVE_NAME)
    for base in (0, 7, 20):
        archive.write_atomic(f"{base:020d}.log", bytes(2_500))
    disk = disk_of(lone)
    disk.limit_space(disk.used_bytes)
    for _ in range(6):
        assert isinstance(write(lone), SnapshotMarked)
    assert archive.names() in (
        ["00000000000000000007.log", "00000000000000000020.log"],
        ["00000000000000000020.log"],
        [],
    )
    assert not lone.node.disk.status().is_full


# --- a follower ----------------------------------------------------------------------------------------------------

EPOCH = 3
VOTERS = voters_of([1, 2, 3])
LEADER = ReplicaKey(2, directory_id(2))
ME = ReplicaKey(1, directory_id(1))


def follower() -> LoneNode:
    lone = LoneNode(formatted_disk(VOTERS), CONFIG)
    lone.turn(RaftRequest(BeginQuorumEpochRequest(LEADER, ME, EPOCH), lone.new_reply_to()))
    lone.run_until_idle()
    return lone


def fetches(lone: LoneNode) -> list[FetchRequest]:
    return [request for _, request in lone.sent if isinstance(request, FetchRequest)]


def test_a_full_follower_fetches_no_more_but_votes_until_there_is_room() -> None:
    leader_log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    batches = tuple(leader_log.append([Topic("t" * 900, i.to_bytes(16, "big"))], EPOCH, 1) for i in range(4))
    lone = follower()
    disk = disk_of(lone)
    disk.limit_space(disk.used_bytes + 3_500)  # for some of them
    asked = fetches(lone)[-1]
    lone.turn(answered(2, asked, FetchResponse(ErrorCode.NONE, EPOCH, 2, asked.number, 4, batches=batches)))
    lone.run_until_idle()

    before = len(fetches(lone))
    kept = lone.node.log.shape.end
    assert lone.node.disk.status().is_full
    assert 0 < kept < 4
    assert fetches(lone)[-1] is asked, "what came could not be kept"
    assert lone.node.log.shape.flushed_end == kept, "what there is of it is durable as ever"

    candidate = ReplicaKey(3, directory_id(3))
    wait(lone, 20_000)
    for pre_vote in (True, False):
        reply_to = lone.new_reply_to()
        lone.turn(RaftRequest(VoteRequest(candidate, ME, EPOCH + 1, EPOCH, 90, pre_vote), reply_to))
        lone.run_until_idle()
        answer = lone.answers[reply_to]
        assert isinstance(answer, VoteResponse) and answer.vote_granted is not pre_vote
    saved = election_file.load(disk)
    assert saved is not None and saved.voted_for == candidate
    wait(lone, 20_000)
    assert len(fetches(lone)) == before
    assert not [one for _, one in lone.sent if isinstance(one, VoteRequest)], "it does not run"
    assert lone.stopped is None

    disk.limit_space(None)
    wait(lone)
    lone.turn(RaftRequest(BeginQuorumEpochRequest(candidate, ME, EPOCH + 1), lone.new_reply_to()))
    lone.run_until_idle()
    assert len(fetches(lone)) > before
    assert fetches(lone)[-1].fetch_offset == kept
    assert disk.exists(BALLAST_NAME)


def test_a_vote_finds_room_however_long_the_disk_has_been_full() -> None:
    """Trying again whether there is room takes the ballast back. A vote that came then found no room at all, and the node
    stopped: with two full disks of three, that was the end of the quorum."""
    leader_log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    batches = tuple(leader_log.append([Topic("t" * 900, i.to_bytes(16, "big"))], EPOCH, 1) for i in range(4))
    lone = follower()
    disk = disk_of(lone)
    disk.limit_space(disk.used_bytes)
    asked = fetches(lone)[-1]
    lone.turn(answered(2, asked, FetchResponse(ErrorCode.NONE, EPOCH, 2, asked.number, 4, batches=batches)))
    lone.run_until_idle()
    candidate = ReplicaKey(3, directory_id(3))
    wait(lone)
    assert disk.exists(BALLAST_NAME)
    for epoch in range(EPOCH + 1, EPOCH + 4):
        wait(lone)
        reply_to = lone.new_reply_to()
        lone.turn(RaftRequest(VoteRequest(candidate, ME, epoch, EPOCH, 90, pre_vote=False), reply_to))
        lone.run_until_idle()
        assert lone.stopped is None
        answer = lone.answers[reply_to]
        assert isinstance(answer, VoteResponse) and answer.vote_granted
        saved = election_file.load(disk)
        assert saved is not None and (saved.epoch, saved.voted_for) == (epoch, candidate)
        assert lone.node.disk.status().is_full


def test_held_fetches_are_asked_again_when_there_is_room() -> None:
    """In the same epoch, from the same leader: nobody has to come by to wake this node up."""
    leader_log = Log.open(MemoryDirectory(), chain=genesis(CLUSTER_ID, VOTERS))
    batches = tuple(leader_log.append([Topic("t" * 900, i.to_bytes(16, "big"))], EPOCH, 1) for i in range(4))
    lone = follower()
    disk = disk_of(lone)
    disk.limit_space(disk.used_bytes + 3_500)
    asked = fetches(lone)[-1]
    lone.turn(answered(2, asked, FetchResponse(ErrorCode.NONE, EPOCH, 2, asked.number, 4, batches=batches)))
    lone.run_until_idle()
    before = len(fetches(lone))
    disk.limit_space(None)
    wait(lone, 2 * RETRY_MS)
    assert len(fetches(lone)) > before
    lone.turn(unanswered(2, fetches(lone)[-1], Failure.TIMED_OUT))
    assert lone.stopped is None


SNAPSHOT = OffsetAndEpoch(9, EPOCH)
SNAPSHOT_BYTES = 8 << 20


def lead(lone: LoneNode, wait_ms: int) -> tuple[list[FetchSnapshotRequest], list[LoadSnapshotJob]]:
    """For so long its leader has nothing for the node but a snapshot, and gives it piece by piece: for which it was asked, and
    what was installed."""
    asked: list[FetchSnapshotRequest] = []
    installed: list[LoadSnapshotJob] = []
    end_ms = lone.now_ms + wait_ms
    while lone.now_ms < end_ms:
        sent = len(lone.sent)
        match lone.sent[-1][1]:
            case FetchRequest(number=number):
                lone.respond(FetchResponse(ErrorCode.NONE, EPOCH, 2, number, snapshot=SNAPSHOT))
            case FetchSnapshotRequest(number=number, position=position, max_bytes=max_bytes) as request:
                asked.append(request)
                data = bytes(min(max_bytes, SNAPSHOT_BYTES - position))
                lone.respond(FetchSnapshotResponse(ErrorCode.NONE, EPOCH, 2, number, SNAPSHOT_BYTES, position, data))
        installed += [job for job in lone.jobs if isinstance(job, LoadSnapshotJob)]
        lone.run_until_idle()
        while len(lone.sent) == sent and lone.now_ms < end_ms:
            lone.now_ms += 10
            lone.turn()
            lone.run_until_idle()
    return asked, installed


@pytest.mark.parametrize("room_bytes", [5 << 20, SNAPSHOT_BYTES - 1], ids=["some pieces", "all but the last"])
def test_a_snapshot_that_there_was_no_room_for_is_fetched_when_there_is(room_bytes: int) -> None:
    """It is not one that cannot be loaded: no newer one may ever come, in a cluster that has nothing to do."""
    lone = follower()
    disk = disk_of(lone)
    disk.limit_space(disk.used_bytes + room_bytes)
    asked, installed = lead(lone, 20_000)
    assert not installed, "something is missing"
    begun = [each for each in asked if each.position == 0]
    assert 3 < len(begun) <= 1 + 20_000 // NO_ROOM_REST_MS, "again and again, but not without a rest"
    assert lone.stopped is None
    assert "will be fetched again: [Errno 28]" in lone.problems[ProblemCode.SNAPSHOT_NOT_KEPT]
    assert ProblemCode.SNAPSHOT_UNLOADABLE not in lone.problems

    disk.limit_space(None)
    asked, installed = lead(lone, 2 * NO_ROOM_REST_MS)
    assert {each.position for each in asked} >= {n << 20 for n in range(8)}
    assert len(installed) == INSTALLS_MAX
    assert "cannot be loaded" in lone.problems[ProblemCode.SNAPSHOT_UNLOADABLE], (
        "it is of zeros: that is another matter"
    )


def test_a_broken_disk_still_stops_the_node() -> None:
    """EIO is no shortage, and a failed fsync is never tried again."""
    lone = leader_of_one()
    disk_of(lone).fail_next_flush()
    write_reply = lone.new_reply_to()
    lone.turn(SnapshotWanted("r", write_reply, lone.now_ms + 1_000))
    lone.run_until_idle()
    assert lone.stopped is not None
