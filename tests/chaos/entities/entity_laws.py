"""The simulator's laws of entities (E1, E2) over the committed log of real daemons, batch by batch.

In the simulator the values name their transactions. Here the request ids in the log do, and the recorder knows each request.
So every entity in the log was asked for, also each place in a queue; and none vanishes for no reason.
"""

from collections.abc import Iterable

from quorum_rpc.v1 import entity_pb2

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import SESSION_EXPIRED, Owner, RequestOutcome
from quorum.wire.convert.convert_entities import from_transact
from tests.chaos.operators.calls import OperatorCall
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold
from tests.sim.laws.entities.ephemerals import EphemeralLaws
from tests.sim.laws.entities.known import KnownEntities, Touched
from tests.sim.laws.entities.registers import RegisterLaws


class EntityLaws:
    """Checks every committed batch, in order. Raises LawBroken."""

    def __init__(self, calls: Iterable[OperatorCall]) -> None:
        self.seen: Offset = 0
        """The laws hold below."""
        self.ended: dict[Owner, str] = {}
        """The sessions that have ended, with the reason."""
        self._known = KnownEntities()
        self._registers = RegisterLaws(self._known)
        self._ephemerals = EphemeralLaws(self._known, Coverage())
        self._transactions: set[Uuid] = set()
        self._sessions: set[Uuid] = set()
        for call in calls:
            self._asked(call.request_id, call.ask.request)

    def _asked(self, request_id: Uuid, request: object) -> None:
        match request:
            case entity_pb2.TransactRequest() if request_id:
                self._transactions.add(request_id)
                self._registers.asked(_tag(request_id), from_transact(request))
            case entity_pb2.OpenSessionRequest():
                self._sessions.add(request.session_id)
                self._ephemerals.asked(request.session_id)

    @property
    def expired(self) -> int:
        """How many sessions have ended without a word of their clients."""
        return sum(reason == SESSION_EXPIRED for reason in self.ended.values())

    def take(self, step: Step) -> None:
        """Checks a committed batch."""
        last = step.records[-1] if step.records else None
        named = last.request_id if isinstance(last, RequestOutcome) else b""
        touched = self._known.take(step)
        if touched:
            self._check(named, step, touched)
        self.seen = step.batch.end_offset

    def _check(self, named: Uuid, step: Step, touched: Touched) -> None:
        """`named`: the request of the batch; empty, if it has none."""
        for session in touched.opened:
            hold(session.session_id in self._sessions, "C2 NoPhantom", f"{session} up to {step.end} was not asked for")
        self.ended |= {Owner(end.session_id, None, end.epoch): end.reason for end in touched.reasons}
        self._ephemerals.committed(step, touched, self._deleted(named, step, touched))

    def _deleted(self, named: Uuid, step: Step, touched: Touched) -> frozenset[EntityName]:
        """Checks the transaction of a batch, if it has one. Returns the entities that it has deleted."""
        if named in self._transactions:
            return self._registers.done(_tag(named), step, touched)
        hold(not touched.written, "C2 NoPhantom", f"{touched.written} up to {step.end} were not asked for")
        return frozenset()


def _tag(request_id: Uuid) -> bytes:
    """The name of a transaction for the laws, and for people: as in the file of the calls."""
    return request_id.hex().encode()
