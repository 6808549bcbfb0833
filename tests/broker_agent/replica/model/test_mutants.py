"""Planted bugs: each breaks a law of the model cluster within a few seeds. A bug that no seed finds is a hole in the laws."""

from collections.abc import Callable

import pytest

from broker_agent.replica import follower, leader
from broker_agent.replica.divergence import Diverged, Valid, Verdict
from broker_agent.replica.follower import PartitionFetch, PartitionFollower
from broker_agent.replica.follower_progress import FollowerProgress
from broker_agent.replica.isr import IsrAnswer, IsrState, ProposeIsr
from broker_agent.replica.leader import PartitionLeader, ReplicaFetch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, Offset
from metadata_log.format.log_shape import LogShape
from tests.broker_agent.replica.model.model_cluster import Broker, ModelCluster
from tests.broker_agent.replica.model.toy_controller import ToyController

SEEDS = 150
STEPS = 2_000

Plant = Callable[[pytest.MonkeyPatch], None]


def committed_isr_only(patch: pytest.MonkeyPatch) -> None:
    """The high watermark ignores a proposed member."""
    patch.setattr(IsrState, "maximal", property(lambda self: self.committed))


def growth_below_the_epochs_start(patch: pytest.MonkeyPatch) -> None:
    """A follower joins at the new leader's high watermark, which may be lower than the old leader's."""
    patch.setattr(PartitionLeader, "_is_in_sync", lambda self, of: of.end is not None and of.end >= self.high_watermark)


def high_watermark_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """A follower takes the leader's high watermark up to its end, flushed or not."""

    def advance(self: PartitionFollower) -> follower.FollowerEffects:
        self.high_watermark = max(self.high_watermark, min(self.shape.end, self.leader_high_watermark))
        return []

    patch.setattr(PartitionFollower, "_advance", advance)


def late_answers_count(patch: pytest.MonkeyPatch) -> None:
    """A follower takes answers for a place that it does not ask for any more."""
    patch.setattr(PartitionFollower, "_awaits", lambda self, asked: True)


def truncation_by_offset(patch: pytest.MonkeyPatch) -> None:
    """The leader compares offsets only: a follower that is not longer than the leader agrees with the leader."""

    def judge(shape: LogShape, offset: Offset, last_fetched_epoch: int) -> Verdict:
        return Valid() if offset <= shape.end else Diverged(shape.end_and_epoch)

    patch.setattr(leader, "judge_fetch", judge)


def truncation_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A new follower drops all above its high watermark, as Kafka did before KIP-101."""
    follow = Broker._follow

    def cut(self: Broker, leader_id: NodeId, leader_epoch: int, known: Offset) -> None:
        boundaries = [0, *(each.end_offset for each in self.log.batches)]
        self.log.truncate(max(end for end in boundaries if end <= known))
        follow(self, leader_id, leader_epoch, self.log.end)

    patch.setattr(Broker, "_follow", cut)


def shrink_before_the_answer(patch: pytest.MonkeyPatch) -> None:
    """A member that the leader proposes to remove does not count any more."""
    propose = IsrState.propose

    def at_once(self: IsrState, members: frozenset[NodeId], epochs: dict[NodeId, int | None]) -> ProposeIsr:
        proposal = propose(self, members, epochs)
        self.committed &= members
        return proposal

    patch.setattr(IsrState, "propose", at_once)


def no_min_isr(patch: pytest.MonkeyPatch) -> None:
    """The high watermark moves whatever the size of the ISR."""
    patch.setattr(PartitionLeader, "min_isr", 1)


def the_leaders_unflushed_end(patch: pytest.MonkeyPatch) -> None:
    """The leader counts records that its own disk may lose."""
    changed = PartitionLeader.log_changed

    def unflushed(self: PartitionLeader, shape: LogShape, now_ms: int) -> leader.LeaderEffects:
        return changed(self, shape._replace(flushed_end=shape.end), now_ms)

    patch.setattr(PartitionLeader, "log_changed", unflushed)


def fetching_is_keeping_up(patch: pytest.MonkeyPatch) -> None:
    """A member stays in the ISR while it fetches, however little it gets."""

    def recent(self: FollowerProgress, leader_end: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.last_fetch_ms is None or now_ms - self.last_fetch_ms <= lag_time_max_ms

    patch.setattr(FollowerProgress, "is_caught_up", recent)


def any_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """A leader takes the fetches of an earlier leader epoch for acknowledgements."""

    def known(self: PartitionLeader, fetch: ReplicaFetch) -> ErrorCode:
        return ErrorCode.NONE if fetch.broker_id in self.followers else ErrorCode.UNKNOWN_LEADER_EPOCH

    patch.setattr(PartitionLeader, "_refusal_of_fetch", known)
    patch.setattr(leader, "judge_fetch", lambda *_: Valid())


def proposals_without_epochs(patch: pytest.MonkeyPatch) -> None:
    """A proposal names no state of the partition, so a late one is written over newer states."""
    alter = ToyController.alter

    def blind(self: ToyController, sender: NodeId, proposal: ProposeIsr) -> IsrAnswer:
        now = self.now.partition
        newest = ProposeIsr(now.leader_epoch, now.partition_epoch, proposal.isr)
        return alter(self, sender, newest)

    patch.setattr(ToyController, "alter", blind)


def fetch_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """A follower acknowledges records that its disk may lose."""

    def early(self: PartitionFollower) -> bool:
        return self.stopped is None and not self.awaits_metadata

    def fetch(self: PartitionFollower) -> PartitionFetch:
        return PartitionFetch(self.shape.end, self.leader_epoch, self.shape.last_epoch)

    patch.setattr(PartitionFollower, "is_active", property(early))
    patch.setattr(PartitionFollower, "next_fetch", fetch)


MUTANTS: dict[Plant, str] = {
    committed_isr_only: "in sync",
    growth_below_the_epochs_start: "in sync",
    shrink_before_the_answer: "in sync",
    proposals_without_epochs: "",
    truncation_to_the_high_watermark: "in sync",
    truncation_by_offset: "",
    any_leader_epoch: "",
    no_min_isr: "min ISR",
    the_leaders_unflushed_end: "",
    fetch_before_the_flush: "",
    high_watermark_before_the_flush: "on disk",
    late_answers_count: "no stop",
    fetching_is_keeping_up: "no laggard",
}
"""Mutant -> the law that it breaks; empty if the seed decides which of several laws it breaks first."""


def found_by(seeds: range) -> str:
    """The first broken law, or the first mistake that the log noticed; empty if all seeds pass."""
    for seed in seeds:
        try:
            ModelCluster(seed).run(STEPS).heal()
        except AssertionError as e:
            return str(e)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "law"), [pytest.param(*each, id=each[0].__name__) for each in MUTANTS.items()])
def test_a_planted_bug_breaks_a_law(plant: Plant, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws have teeth."""
    plant(monkeypatch)
    told = found_by(range(SEEDS))
    assert told
    assert told.startswith(law)
