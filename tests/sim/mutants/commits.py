"""Bugs of the commit rule, of replication, of reads and of answers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.fetch_size import PartialBatch
from metadata_log.format.ids import Epoch, NodeId, Offset
from metadata_log.format.log_shape import LogShape
from metadata_log.format.records import MetadataRecord
from quorum.controller.protocol.commands import CommandReply, RegisterBrokerReply
from quorum.controller.protocol.decision import Decision
from quorum.core import fetch_service, follower, leader
from quorum.core.protocol import high_watermark
from quorum.core.protocol.divergence import Valid, Verdict, judge_fetch
from quorum.core.protocol.messages import FetchRequest, FetchResponse
from quorum.core.protocol.progress import ReplicaProgress
from quorum.core.protocol.reads import ReadRounds
from quorum.core.quorum_state import QuorumState
from quorum.core.roles import Follower, Leader
from quorum.runtime.active import active_controller, answers
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.active.answers import Answers, Deferred, DeferredAnswers
from quorum.runtime.active.decisions import Deciding, Prepared
from quorum.runtime.local_reads import LocalReads
from quorum.runtime.node import Node
from quorum.runtime.protocol.requests import ReadView, Refused
from quorum.runtime.protocol.world import LocalRead, ReplyTo
from tests.sim.mutants.patching import Mutant, patched

# --- what a leader counts --------------------------------------------------------------------------------------------

_heard_fetch = ReplicaProgress.heard_fetch
_majority_end = high_watermark.majority_end


def _count_itself_before_flush(state: QuorumState, leadership: Leader) -> Iterator[Offset | None]:
    for voter in state.latest_voters.keys:
        yield state.shape.end if voter == state.me else leadership.replicas[voter].end_offset


def _commit_older_epoch(
    ends: Iterable[Offset | None], voter_count: int, *, epoch_start_offset: Offset, current: Offset | None
) -> Offset | None:
    end = high_watermark.majority_end(ends, voter_count)
    return end if end is not None and (current is None or end > current) else None


def _commit_at_epoch_start(
    ends: Iterable[Offset | None], voter_count: int, *, epoch_start_offset: Offset, current: Offset | None
) -> Offset | None:
    end = _majority_end(ends, voter_count)
    return end if end is not None and end >= epoch_start_offset and (current is None or end > current) else None


def _one_short_of_a_majority(ends: Iterable[Offset | None], voter_count: int) -> Offset | None:
    known = sorted((end for end in ends if end is not None), reverse=True)
    return known[max(0, voter_count // 2 - 1)] if len(known) >= max(1, voter_count // 2) else None


def _count_before_judging(self: ReplicaProgress, request: FetchRequest, leader_end: Offset, now_ms: int) -> None:
    _heard_fetch(self, request, leader_end, now_ms)
    self.acknowledged(min(request.fetch_offset, leader_end))


def _judge_by_offset(
    shape: LogShape, *, fetch_offset: Offset, last_fetched_epoch: Epoch, chain: bytes, chain_at_offset: bytes | None
) -> Verdict:
    if chain_at_offset is not None and shape.start.offset < fetch_offset:
        return Valid()
    return judge_fetch(
        shape,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        chain=chain,
        chain_at_offset=chain_at_offset,
    )


_answer = Decision.answer


def _answer_one_too_low(self: Decision, offset: Offset, base_offset: Offset | None = None) -> CommandReply:
    answer = _answer(self, offset, base_offset)
    return answer if isinstance(self.reply, RegisterBrokerReply) else replace(answer, offset=offset - 1)


_staged = Deciding._staged
_settle = ActiveController.settle


def _append_one_by_one(self: Deciding, decision: Decision, records: Sequence[MetadataRecord]) -> Prepared:
    for record in records[:-1]:
        self._write(_staged(self, decision, [record]))
    return _staged(self, decision, records[-1:])


def _take_back_what_takes_long(self: ActiveController, now_ms: int, wall_ms: int) -> None:
    _settle(self, now_ms, wall_ms)
    until_ms = self.answers.next_deadline_ms()
    if until_ms is not None and until_ms - now_ms < 600:
        self._log.truncate(self._state.applied)


# --- what a follower believes ----------------------------------------------------------------------------------------

_fetch_request = follower._fetch_request
_on_fetch_response = follower.on_fetch_response


def _believe_watermark_unverified(
    state: QuorumState, source: NodeId, request: FetchRequest, response: FetchResponse
) -> None:
    _on_fetch_response(state, source, request, response)
    known = response.high_watermark
    if (
        isinstance(state.role, Follower)
        and state.role.leader_id == source
        and response.epoch == state.epoch
        and known is not None
    ):
        state.raise_high_watermark(min(known, state.shape.end))


def _commit_target_unflushed(self: Node) -> Offset:
    return min(self.core.high_watermark or 0, self.log.shape.end)


def _may_fetch_unflushed(state: QuorumState) -> bool:
    return (
        not state.shutting_down
        and state.fetch.in_flight is None
        and not state.awaiting_log
        and isinstance(state.role, Follower)
    )


def _fetch_from_the_end(state: QuorumState, read_token: int, partial: PartialBatch | None) -> FetchRequest:
    flushed = state.shape
    state.shape = flushed._replace(flushed_end=flushed.end, flushed_chain=flushed.chain)
    try:
        return _fetch_request(state, read_token, partial)
    finally:
        state.shape = flushed


@contextmanager
def _acknowledge_unflushed() -> Iterator[None]:
    with patched(follower, "may_fetch", _may_fetch_unflushed), patched(follower, "_fetch_request", _fetch_from_the_end):
        yield


# --- reads and answers -----------------------------------------------------------------------------------------------

_wait_confirmed = Answers.wait_confirmed
_confirm, _echoed = ReadRounds.confirm, ReplicaProgress.echoed


def _read_at_once(
    self: Answers, reply_to: ReplyTo, reply: answers.Pending, deadline_ms: int, *, wrote: bool = False
) -> None:
    if reply is not None:
        _wait_confirmed(self, reply_to, reply, deadline_ms, wrote=wrote)
        return
    view = ReadView(self._state.applied, self._state.committed, self._controller, self._time.now_ms)
    self._world.reply(reply_to, view)


def _read_locally_at_once(self: LocalReads, event: LocalRead, now_ms: int) -> None:
    self._world.reply(event.reply_to, self._view(now_ms))


def _confirm_by_an_old_echo(self: ReadRounds, echoes: int) -> int | None:
    if self.mark is None or echoes < self.mark:
        return None
    self.mark = None
    return self.token


def _confirm_whoever_waits(self: ReadRounds, echoes: int) -> int | None:
    if self.waiting is not None and self.mark is not None and echoes > self.mark:
        self.token, self.waiting = self.waiting, None
    return _confirm(self, echoes)


def _followed_when_heard(self: ReplicaProgress, read_token: int) -> None:
    confirmed_ms = self.confirmed_ms
    _echoed(self, read_token)
    if self.confirmed_ms != confirmed_ms:
        self.confirmed_ms = self.last_fetch_ms


def _refuse_for_good(why: str) -> Refused:
    return Refused(ErrorCode.NOT_READY, f"{why}: nothing was done")


@contextmanager
def _report_as_refused() -> Iterator[None]:
    with (
        patched(active_controller, "unknown_outcome", _refuse_for_good),
        patched(answers, "unknown_outcome", _refuse_for_good),
    ):
        yield


def _answer_before_commit(self: DeferredAnswers, applied: Offset) -> Iterator[Deferred]:
    for deferred in list(self._queue):
        if not deferred.done and (deferred.wrote or deferred.offset <= applied) and deferred.token <= self._confirmed:
            self._queue.remove(deferred)
            deferred.done = True
            yield deferred


def _patch(target: object, name: str, replacement: object) -> Callable[[], AbstractContextManager[None]]:
    return lambda: patched(target, name, replacement)


COMMITS: dict[str, Mutant] = {
    "leader-counts-itself-before-fsync": Mutant(
        "a leader counts itself by its appended end, not by its flushed end",
        _patch(leader, "_ends", _count_itself_before_flush),
    ),
    "commit-of-older-epoch": Mutant(
        "a majority's end is committed whatever epoch its last record is of (Raft 5.4.2)",
        _patch(leader, "leader_high_watermark", _commit_older_epoch),
    ),
    "commit-at-epoch-start": Mutant(
        "the epoch's start itself is committed, one record short of the epoch (KAFKA-12619)",
        _patch(leader, "leader_high_watermark", _commit_at_epoch_start),
    ),
    "minority-commits": Mutant(
        "one voter too few is counted as a majority",
        _patch(high_watermark, "majority_end", _one_short_of_a_majority),
    ),
    "acknowledgement-counted-before-judged": Mutant(
        "a leader counts where a follower's log ends before it knows whether that is its own history",
        _patch(ReplicaProgress, "heard_fetch", _count_before_judging),
    ),
    "every-record-a-batch": Mutant(
        "the records of one decision are appended one by one",
        _patch(Deciding, "_staged", _append_one_by_one),
    ),
    "uncommitted-taken-back": Mutant(
        "a leader that waits long for its majority takes back its appended records",
        _patch(ActiveController, "settle", _take_back_what_takes_long),
    ),
    "acknowledged-before-fsync": Mutant(
        "a follower fetches from its unflushed end, and so acknowledges it",
        _acknowledge_unflushed,
    ),
    "divergence-not-seen": Mutant(
        "a leader takes any log that ends at one of its own batch boundaries for a prefix of its own",
        _patch(fetch_service, "judge_fetch", _judge_by_offset),
    ),
    "watermark-not-verified": Mutant(
        "a follower takes min(the leader's high watermark, its own end) of answers that have verified nothing",
        _patch(follower, "on_fetch_response", _believe_watermark_unverified),
    ),
    "applied-before-flush": Mutant(
        "a node applies what is committed elsewhere and not yet on its own disk",
        _patch(Node, "commit_target", property(_commit_target_unflushed)),
    ),
    "stale-read": Mutant(
        "a leader answers reads without asking whether it still leads",
        _patch(Answers, "wait_confirmed", _read_at_once),
    ),
    "read-proven-by-an-old-echo": Mutant(
        "a read is confirmed by what a follower has sent before it came (Raft 6.4)",
        _patch(ReadRounds, "confirm", _confirm_by_an_old_echo),
    ),
    "read-joins-the-round-in-flight": Mutant(
        "a read that comes while a round is in flight is confirmed by that round",
        _patch(ReadRounds, "confirm", _confirm_whoever_waits),
    ),
    "quorum-dated-when-heard": Mutant(
        "a majority's confirmation counts from the moment when the leader heard it, not from when it asked",
        _patch(ReplicaProgress, "echoed", _followed_when_heard),
    ),
    "answered-one-too-low": Mutant(
        "a change is answered with the offset before its own",
        _patch(Decision, "answer", _answer_one_too_low),
    ),
    "local-read-of-the-past": Mutant(
        "a node answers a local read with its own state, although the client has seen a newer one",
        _patch(LocalReads, "take", _read_locally_at_once),
    ),
    "answered-before-commit": Mutant(
        "a write is acknowledged when it is in the leader's log",
        _patch(DeferredAnswers, "ready", _answer_before_commit),
    ),
    "unknown-called-refused": Mutant(
        "an unknown outcome is reported as certainly not done",
        _report_as_refused,
    ),
}
