"""A simulated client that gives its requests ids, and sends each again until it is answered (C3).

Its messages may be lost, repeated and late as any other's; several copies of a request may be under way at once, at several
controllers. All the same each takes effect once, and whoever is answered is told the same.
"""

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.entity_commands import TransactReply
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.runtime.protocol.requests import ReadView, Refused
from quorum.runtime.protocol.world import Answer, LocalRead, Submission
from tests.sim.nodes.clients import TIMEOUT_MS, OnAnswer, SimClient

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

ATTEMPTS_MAX = 12
PAUSE_MS = 150.0
LOCAL_READ_CHANCE = 0.1


@dataclass
class _Request:
    command: Command
    identity: RequestIdentity
    on_answer: OnAnswer
    floor: Offset
    attempts: int = 0
    answer: Answer | None = None
    given_up: bool = field(default=False)


class RetryingClient(SimClient):
    """As `SimClient`, but it does not take silence for an answer."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name, repeats=True)
        self._happens_once = True
        self._seen: Offset = 0
        """The highest offset that it was told of."""

    def act(self) -> None:
        if self._rng.random() < LOCAL_READ_CHANCE:
            self._read_locally()
        else:
            super().act()

    # --- changes ---------------------------------------------------------------------------------------------------

    def submit(self, command: Command, on_answer: OnAnswer) -> None:
        identity = RequestIdentity(self._rng.randbytes(16), sha256(repr(command).encode()).digest(), "k", self._seen)
        self._attempt(_Request(command, identity, on_answer, self.cluster.laws.clients.floor))

    def _attempt(self, request: _Request) -> None:
        if request.answer is not None or request.given_up or request.attempts >= ATTEMPTS_MAX:
            return
        request.attempts += 1
        if request.attempts == 2:
            self.cluster.coverage["request sent again"] += 1
        self._send(
            lambda reply_to, now_ms: Submission(request.command, reply_to, now_ms + TIMEOUT_MS, request.identity),
            lambda answer, _: self._answered(request, answer),
            f"{type(request.command).__name__} {request.attempts}",
        )
        self.cluster.schedule(self._rng.uniform(PAUSE_MS, TIMEOUT_MS), lambda: self._attempt(request))

    def _answered(self, request: _Request, answer: Answer) -> None:
        if isinstance(answer, Refused):
            self._refused(request, answer)
        elif request.answer is None:
            assert isinstance(answer, CommandReply)
            self._see(answer.offset)
            self.answers += 1
            self.cluster.coverage["acknowledged write"] += 1
            request.answer = answer
            request.on_answer(answer, request.floor)
        elif self._is_done(request, request.answer) and self._is_done(request, answer):
            self.cluster.coverage["answered again"] += 1
            self.cluster.laws.clients.same_answer(_told(request.answer), _told(answer))

    @staticmethod
    def _is_done(request: _Request, answer: Answer) -> bool:
        """A refusal, a validation or a failed condition is not remembered: the next copy may find another cluster."""
        if getattr(request.command, "validate_only", False) or getattr(answer, "failed", None) is not None:
            return False
        results = getattr(answer, "results", ())
        return not results or any(result.error is ErrorCode.NONE for result in results)

    def _refused(self, request: _Request, refused: Refused) -> None:
        match refused.code:
            case ErrorCode.NOT_CONTROLLER | ErrorCode.NOT_READY | ErrorCode.REQUEST_TIMED_OUT:
                self.cluster.schedule(self._rng.uniform(1.0, PAUSE_MS), lambda: self._attempt(request))
            case ErrorCode.REQUEST_ID_EXPIRED:
                # Another copy of it may have been done and forgotten: with a new id, or another offset, it might be done twice.
                self.cluster.coverage["request id expired"] += 1
                request.given_up = True
            case _:
                request.given_up = True
                if request.answer is None:
                    request.on_answer(refused, request.floor)

    def _see(self, offset: Offset) -> None:
        self._seen = max(self._seen, offset)

    # --- reads of one node -----------------------------------------------------------------------------------------

    def _read_locally(self) -> None:
        at_least = self._seen

        def answered(answer: Answer, _: Offset) -> None:
            if isinstance(answer, ReadView):
                self._see(answer.as_of_offset)
                self.cluster.coverage["local read"] += 1
                self.cluster.laws.clients.read_locally(answer.as_of_offset, answer.image, at_least)

        self._send(lambda reply_to, now_ms: LocalRead(at_least, reply_to, now_ms + TIMEOUT_MS), answered, "local read")


def _told(answer: Answer) -> Answer:
    """What the client is told: the number of records stays at the controller."""
    return replace(answer, record_count=0) if isinstance(answer, TransactReply) else answer
