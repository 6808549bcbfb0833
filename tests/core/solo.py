"""One core alone: inputs by hand, effects as a list. Log effects are carried out and reported back at once."""

import random
from typing import TypeVar

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import NodeId, ReplicaKey
from metadata_log.format.records import Endpoint
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.disk_trust import FULL, DiskTrust
from quorum.core.protocol.download import Download
from quorum.core.protocol.effects import AppendBatches, AppendControl, Effect, ElectionState, SendRequest, TruncateLog
from quorum.core.protocol.inputs import (
    Appended,
    Flushed,
    Input,
    RequestReceived,
    ResponseReceived,
    TimerFired,
    Truncated,
)
from quorum.core.protocol.messages import (
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
    place_of,
)
from quorum.core.protocol.problem import texts
from quorum.core.protocol.voters import VoterHistory
from quorum.core.raft import RaftCore
from quorum.core.roles import Role
from tests.core.cluster import directory, voters_of
from tests.core.fake_log import FakeLog

T = TypeVar("T")

NOBODY = ElectionState(0, None, None)


def key(node_id: NodeId) -> ReplicaKey:
    return ReplicaKey(node_id, directory(node_id))


def log_of(*epochs: int) -> FakeLog:
    """A log with one flushed record of each of these epochs."""
    log = FakeLog()
    for epoch in epochs:
        log.append(epoch)
    log.flush()
    return log


def only(kind: type[T], effects: list[Effect]) -> T:
    """The one effect of this kind."""
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, f"{len(found)} of {kind.__name__} in {effects}"
    return found[0]


def problem_texts(core: RaftCore) -> str:
    """The core's reported problems in one line."""
    return texts(core.problems)


def none_of(kind: type[object], effects: list[Effect]) -> bool:
    return not any(isinstance(effect, kind) for effect in effects)


class Solo:
    """Node 1 of voters 1..n. `wait` moves `now_ms`."""

    def __init__(
        self,
        *,
        epochs: tuple[int, ...] = (),
        election: ElectionState = NOBODY,
        voters: int = 3,
        me: ReplicaKey = key(1),  # noqa: B008 -- a value
        seed: int = 0,
        disk_trust: DiskTrust = FULL,
        part: Download | None = None,
        log: FakeLog | None = None,
        watermark_linger_ms: int = 0,
        auto_join: bool = False,
        endpoints: tuple[Endpoint, ...] = (),
        also_ask: tuple[NodeId, ...] = (),
    ) -> None:
        self.log = log or log_of(*epochs)
        self.now_ms = 1000
        self.auto_flush = True
        self.reply_to = 0
        self.config = RaftConfig(watermark_linger_ms=watermark_linger_ms, auto_join=auto_join, also_ask=also_ask)
        self.core = RaftCore(
            me=me,
            config=self.config,
            election=election,
            shape=self.log.shape(),
            voters=VoterHistory(voters_of(*range(1, voters + 1)), self.log.voter_records()),
            rng=random.Random(seed),
            now_ms=self.now_ms,
            my_endpoints=endpoints,
            disk_trust=disk_trust,
            part=part,
        )
        self.started = self._perform(self.core.start(self.now_ms))

    def role(self) -> Role:
        """The role now. A type checker takes the attribute `core.role` for unchanged between two asserts."""
        return self.core.role

    def step(self, event: Input) -> list[Effect]:
        return self._perform(self.core.step(event, self.now_ms))

    def _perform(self, effects: list[Effect]) -> list[Effect]:
        """The effects in the order of their execution, with nested effects in their places."""
        done: list[Effect] = []
        for effect in effects:
            done.append(effect)
            end = self.log.end
            match effect:
                case AppendBatches(batches=batches):
                    self.log.append_batches(batches)
                    done += self._appended(end)
                case AppendControl(epoch=epoch, record=record):
                    self.log.append(epoch, record)
                    done += self._appended(end)
                case TruncateLog(end=cut):
                    self.log.truncate(cut)
                    done += self.step(Truncated(self.log.shape()))
                case _:
                    pass
        self.core.check_invariants()
        return done

    def _appended(self, end: int) -> list[Effect]:
        done = self.step(Appended(self.log.shape(), self.log.voter_records(end)))
        return done + (self.flush() if self.auto_flush else [])

    def append(self) -> list[Effect]:
        """Appends a record of the leader's epoch."""
        end = self.log.end
        self.log.append(self.core.epoch)
        return self._appended(end)

    def flush(self) -> list[Effect]:
        self.log.flush()
        return self.step(Flushed(self.log.shape()))

    def request(self, request: Request) -> list[Effect]:
        self.reply_to += 1
        place = place_of(request)
        chain = None if place is None else self.log.chain_at(place)
        return self.step(RequestReceived(request, self.reply_to, chain))

    def respond(self, source: NodeId, request: Request, response: Response) -> list[Effect]:
        return self.step(ResponseReceived(source, request, response))

    def wait(self, duration_ms: int) -> list[Effect]:
        """Lets time pass, and fires every timer on the way."""
        end_ms = self.now_ms + duration_ms
        done: list[Effect] = []
        while (deadline_ms := self.core.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            done += self.step(TimerFired())
        self.now_ms = end_ms
        return done

    # --- shortcuts --------------------------------------------------------------------------------------------------

    def elect(self) -> list[Effect]:
        """Answers yes to every request until this node leads."""
        effects = self.wait(600)
        for _ in range(4):
            asked = [e for e in effects if isinstance(e, SendRequest) and isinstance(e.request, VoteRequest)]
            for effect in asked:
                request = effect.request
                assert isinstance(request, VoteRequest)
                epoch = self.core.epoch if not request.pre_vote else request.epoch
                effects = self.respond(
                    effect.destination, request, VoteResponse(ErrorCode.NONE, epoch, None, vote_granted=True)
                )
                if self.core.is_leading or any(isinstance(e, SendRequest) for e in effects):
                    break
            if self.core.is_leading:
                return effects
        raise AssertionError("not elected")

    def fetch(
        self,
        node_id: NodeId,
        offset: int | None = None,
        *,
        high_watermark: int = 0,
        read_token: int = 0,
        wait_ms: int = 150,
        generation: int = 0,
        damaged: bool = False,
        applied_offset: int = 0,
    ) -> list[Effect]:
        """A fetch of a follower with the same log, up to `offset` (None: the end)."""
        offset = self.log.end if offset is None else offset
        chain = self.log.chain_at(offset)
        assert chain is not None
        return self.request(
            FetchRequest(
                replica=ReplicaKey(node_id, directory(node_id, generation)),
                epoch=self.core.epoch,
                number=1,
                fetch_offset=offset,
                last_fetched_epoch=self.log.epoch_below(offset),
                chain=chain,
                high_watermark=high_watermark,
                max_wait_ms=wait_ms,
                max_bytes=1 << 20,
                read_token=read_token,
                damaged=damaged,
                applied_offset=applied_offset,
            )
        )

    def follow(self, leader_id: NodeId = 2) -> FetchRequest:
        """Makes this node a follower, in its epoch or the first one. Returns the node's fetch."""
        from quorum.core.protocol.messages import BeginQuorumEpochRequest

        epoch = max(self.core.epoch, 1)
        effects = self.request(BeginQuorumEpochRequest(key(leader_id), self.core.me, epoch))
        return fetch_in(effects)

    def good_answer(
        self,
        request: FetchRequest,
        *,
        batches: tuple[Batch, ...] = (),
        high_watermark: int | None = None,
        leader_id: NodeId = 2,
        successors: tuple[NodeId, ...] = (1, 3),
        read_token: int = 0,
        log_end: int = 0,
    ) -> list[Effect]:
        response = FetchResponse(
            ErrorCode.NONE,
            self.core.epoch,
            leader_id,
            request.number,
            high_watermark=high_watermark,
            batches=batches,
            successors=successors,
            read_token=read_token,
            log_end=log_end,
        )
        return self.respond(leader_id, request, response)


def fetch_in(effects: list[Effect]) -> FetchRequest:
    """The one fetch sent by `effects`."""
    found = [e.request for e in effects if isinstance(e, SendRequest) and isinstance(e.request, FetchRequest)]
    assert len(found) == 1, effects
    return found[0]
