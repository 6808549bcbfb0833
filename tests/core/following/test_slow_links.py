"""A follower behind a slow link: it catches up, and its leader stays in office meanwhile."""

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import BatchPart
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Config
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.effects import AppendBatches, ElectionState, SendRequest
from quorum.core.protocol.inputs import Failure, RequestFailed
from quorum.core.protocol.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    VoteRequest,
    VoteResponse,
)
from quorum.core.protocol.progress import ReplicaProgress
from quorum.core.roles import Role
from tests.core.cluster import Cluster, Node
from tests.core.following.slow_link import SlowLink
from tests.core.solo import Solo, fetch_in, key, only

KBIT = 125
SPEEDS = (256 * KBIT, 1_000 * KBIT, 12_000 * KBIT)
SIZE = 300_000


def value_of(count: int) -> Config:
    """A record of about `count` bytes."""
    return Config(2, "t", "k", "v" * count)


class Behind:
    """Node `follower` of three was down, and returns over a slow link, without writes meanwhile."""

    def __init__(self, bytes_per_s: int, records: list[int], *, snapshot: int = 0) -> None:
        self.cluster = Cluster(3).boot_all()
        self.leader = self.cluster.elect()
        self.cluster.run(500)
        self.follower: Node = next(node for node in self.cluster.nodes.values() if node is not self.leader)
        self.cluster.crash(self.follower.id, breaking=False, refusing=False)
        for count in records:
            self.leader.append(self.leader.up.epoch, value_of(count))
        self.cluster.run(500)
        if snapshot:
            self.cluster.snapshot_bytes, self.cluster.chunk_bytes = snapshot, 1 << 20
            self.leader.take_snapshot(self.leader.high_watermark)
        self.epoch = self.leader.up.epoch
        self.link = self.cluster.links[self.follower.id] = SlowLink(bytes_per_s)
        self.follower.boot_up()

    def catches_up(self, within_ms: int) -> bool:
        """The follower follows the whole time."""

        def over() -> bool:
            assert self.follower.up.role is Role.FOLLOWER, f"it campaigns: {self.follower.describe()}"
            return self.follower.log.end == self.leader.log.end

        caught_up = self.cluster.run(within_ms, until=over)
        return caught_up and self.leader.up.is_leading and self.leader.up.epoch == self.epoch


@pytest.mark.parametrize("bytes_per_s", SPEEDS)
def test_a_follower_that_is_many_batches_behind_catches_up(bytes_per_s: int) -> None:
    """300 batches of 1 KB each, and no byte is sent twice."""
    behind = Behind(bytes_per_s, [1_000] * 300)
    assert behind.catches_up(within_ms=2 * 1_000 * SIZE // bytes_per_s + 1_000)
    assert behind.link.carried < 1.2 * SIZE + 300 * 100


@pytest.mark.parametrize("bytes_per_s", SPEEDS)
def test_a_follower_that_lacks_one_large_batch_catches_up(bytes_per_s: int) -> None:
    """The batch comes in parts, and each part arrives in time."""
    behind = Behind(bytes_per_s, [SIZE])
    assert behind.catches_up(within_ms=2 * 1_000 * SIZE // bytes_per_s + 1_000)
    assert behind.link.carried < 1.1 * SIZE


@pytest.mark.parametrize("bytes_per_s", SPEEDS)
def test_a_follower_that_needs_a_snapshot_catches_up(bytes_per_s: int) -> None:
    """The snapshot comes in pieces of a size suitable for the link."""
    behind = Behind(bytes_per_s, [100] * 3, snapshot=SIZE)
    assert behind.catches_up(within_ms=2 * 1_000 * SIZE // bytes_per_s + 1_000)
    assert behind.link.carried < 1.1 * SIZE


def test_a_leader_stays_in_office_by_a_follower_that_gets_one_large_batch_in_parts() -> None:
    """Two of three nodes run, and one needs ten seconds for a batch: each received part is progress (check-quorum)."""
    behind = Behind(256 * KBIT, [SIZE])
    other = next(n for n in behind.cluster.nodes.values() if n not in (behind.leader, behind.follower))
    behind.cluster.crash(other.id, breaking=False, refusing=False)
    assert behind.catches_up(within_ms=25_000)


def test_a_part_that_is_fetched_again_and_again_is_no_progress() -> None:
    """Two followers which lose their parts and begin again do not keep a leader in office (KAFKA-15911)."""
    solo = Solo()
    solo.elect()
    solo.append()
    for _ in range(40):
        for position in (0, 100, 200):
            for follower in (2, 3):
                if solo.core.is_leading:
                    fetch_from(solo, follower, position)
            solo.wait(30)
    assert not solo.core.is_leading


def fetch_from(solo: Solo, node_id: int, part_position: int, incarnation: int = 0) -> None:
    chain = solo.log.chain_at(1)
    assert chain is not None
    solo.request(
        FetchRequest(
            replica=key(node_id),
            epoch=solo.core.epoch,
            number=1,
            fetch_offset=1,
            last_fetched_epoch=solo.log.epoch_below(1),
            chain=chain,
            high_watermark=0,
            max_wait_ms=0,
            max_bytes=4096,
            incarnation=incarnation,
            part_position=part_position,
        )
    )


def test_a_restarted_follower_may_begin_a_batch_anew() -> None:
    """The former process's parts are gone, so reaching the same position again is progress."""
    progress = ReplicaProgress(progress_ms=0)

    def heard(position: int, incarnation: int, now_ms: int) -> int:
        request = FetchRequest(key(2), 1, 1, 5, 1, b"", 0, 0, 4096, incarnation=incarnation, part_position=position)
        progress.heard_fetch(request, leader_end=9, now_ms=now_ms)
        progress.told_end = 9
        return progress.progress_ms

    assert heard(0, 7, 10) == 10  # the follower fetches from another offset
    assert heard(4096, 7, 20) == 20
    assert heard(4096, 7, 30) == 20
    assert heard(0, 8, 40) == 20
    assert heard(4096, 8, 50) == 50


# --- one follower, by hand -------------------------------------------------------------------------------------------


def follower_of_large_batch() -> tuple[Solo, FetchRequest, bytes]:
    """The follower's first fetch, and the bytes of the next batch in its leader's log."""
    solo = Solo(election=ElectionState(1, None, None))
    batch = Solo().log.append(1, value_of(10_000))
    return solo, solo.follow(), batch.data


def part_of(solo: Solo, fetch: FetchRequest, part: BatchPart) -> FetchRequest | None:
    """The leader answers with `part`. Returns the next fetch, if any."""
    answer = FetchResponse(ErrorCode.NONE, 1, 2, fetch.number, successors=(1, 3), log_end=1, part=part)
    effects = solo.respond(2, fetch, answer)
    sent = [e.request for e in effects if isinstance(e, SendRequest) and isinstance(e.request, FetchRequest)]
    return sent[0] if sent else None


def test_each_part_is_followed_by_the_next_and_the_last_by_the_append() -> None:
    """The position grows with the received bytes, and the append follows the whole batch only."""
    solo, fetch, data = follower_of_large_batch()
    assert fetch.part_position == 0 and fetch.max_bytes == 4096
    position = 0
    while position + fetch.max_bytes < len(data):
        more = part_of(solo, fetch, BatchPart(position, len(data), data[position : position + fetch.max_bytes]))
        position += fetch.max_bytes
        assert more is not None and more.part_position == position and more.fetch_offset == 0 == solo.log.end
        fetch = more
    answer = FetchResponse(
        ErrorCode.NONE, 1, 2, fetch.number, log_end=1, part=BatchPart(position, len(data), data[position:])
    )
    effects = solo.respond(2, fetch, answer)
    assert only(AppendBatches, effects).batches[0].data == data
    assert fetch_in(effects).part_position == 0


def test_a_part_counts_as_contact_with_the_leader() -> None:
    """After a part, the follower waits a whole fetch timeout for the next part."""
    solo, fetch, data = follower_of_large_batch()
    solo.wait(400)
    more = part_of(solo, fetch, BatchPart(0, len(data), data[:100]))
    assert more is not None
    solo.wait(solo.config.fetch_timeout_ms - 1)
    assert solo.core.role is Role.FOLLOWER and solo.core.leader_heard_ms == solo.now_ms - 699


def test_parts_that_do_not_make_a_batch_are_dropped_and_fetched_anew() -> None:
    """A bit has flipped in a part: the CRC differs, and nothing is appended."""
    solo, fetch, data = follower_of_large_batch()
    more = part_of(solo, fetch, BatchPart(0, len(data), b"?" + data[1:5_000]))
    assert more is not None
    assert part_of(solo, more, BatchPart(5_000, len(data), data[5_000:])) is None
    assert solo.log.end == 0
    assert fetch_in(solo.wait(100)).part_position == 0


def test_a_part_of_something_else_is_dropped() -> None:
    """The part does not begin at the end of the held bytes."""
    solo, fetch, data = follower_of_large_batch()
    more = part_of(solo, fetch, BatchPart(0, len(data), data[:4_096]))
    assert more is not None and more.part_position == 4_096
    assert part_of(solo, more, BatchPart(4_000, len(data), data[4_000:5_000])) is None
    assert fetch_in(solo.wait(100)).part_position == 0


def test_parts_are_kept_through_pre_votes_that_are_refused() -> None:
    """A link stalls for longer than the fetch timeout. The other voters still hear the leader, and refuse the pre-votes. The
    follower goes on after the part that it holds; before, it began the batch again after each stall, for ever."""
    solo, fetch, data = follower_of_large_batch()
    assert part_of(solo, fetch, BatchPart(0, len(data), data[:4_096])) is not None
    effects = solo.wait(solo.config.fetch_timeout_ms)
    asked = [e.request for e in effects if isinstance(e, SendRequest) and isinstance(e.request, VoteRequest)]
    assert solo.role() is Role.PROSPECTIVE and asked
    for request in asked:
        effects = solo.respond(
            request.receiver.node_id, request, VoteResponse(ErrorCode.NONE, 1, 2, vote_granted=False)
        )
    assert solo.role() is Role.FOLLOWER
    assert fetch_in([*effects, *solo.wait(100)]).part_position == 4_096


def test_parts_are_dropped_with_the_leader_that_gave_them() -> None:
    """The next leader's log may continue differently."""
    solo, fetch, data = follower_of_large_batch()
    more = part_of(solo, fetch, BatchPart(0, len(data), data[:4_096]))
    assert more is not None
    assert fetch_in(solo.request(BeginQuorumEpochRequest(key(3), solo.core.me, 2))).part_position == 0


def test_after_a_fetch_that_timed_out_the_smallest_piece_is_asked_for() -> None:
    """The follower keeps the held part of a batch."""
    solo, fetch, data = follower_of_large_batch()
    more = part_of(solo, fetch, BatchPart(0, len(data), data[:4_096]))
    assert more is not None and more.max_bytes == 8_192
    solo.step(RequestFailed(2, more, Failure.TIMED_OUT))
    again = fetch_in(solo.wait(100))
    assert (again.max_bytes, again.part_position) == (4_096, 4_096)


def test_a_piece_that_leaves_nothing_behind_says_nothing_of_the_link() -> None:
    """The answer may have waited at the leader for a new record."""
    solo = Solo(election=ElectionState(1, None, None))
    fetch = solo.follow()
    solo.wait(150)
    more = fetch_in(solo.good_answer(fetch, batches=(Solo().log.append(1),), log_end=1))
    assert more.max_bytes == fetch.max_bytes


def test_a_leader_of_an_earlier_release_sends_whole_batches_and_they_are_taken() -> None:
    """An earlier release does not know parts."""
    solo, fetch, _ = follower_of_large_batch()
    assert fetch.part_position == 0
    batch = Solo().log.append(1, value_of(10_000))
    assert only(AppendBatches, solo.good_answer(fetch, batches=(batch,), log_end=1)).batches == (batch,)


def test_the_timers_leave_room_for_a_piece_after_a_piece_that_was_lost() -> None:
    """A request timeout, a back-off and a second piece fit into the fetch timeout: 500 + 30 + 128 < 700."""
    config = RaftConfig()
    smallest_ms = 1_000 * config.piece_bytes_min // (256 * KBIT)
    assert config.request_timeout_ms + config.retry_backoff_ms + smallest_ms < config.fetch_timeout_ms


def test_a_snapshot_is_asked_for_by_the_same_size() -> None:
    """Log and snapshot use the same link."""
    solo = Solo(election=ElectionState(3, None, None))
    fetch = solo.follow()
    answer = FetchResponse(ErrorCode.NONE, 3, 2, fetch.number, snapshot=OffsetAndEpoch(9, 2))
    effects = solo.respond(2, fetch, answer)
    asked = only(SendRequest, effects).request
    assert isinstance(asked, FetchSnapshotRequest) and asked.max_bytes == solo.config.piece_bytes_min
