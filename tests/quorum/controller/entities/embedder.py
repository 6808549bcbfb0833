"""An embedder of a cluster without a log: shorthands for transactions and sessions."""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset, Uuid
from metadata_log.format.records import Owner
from quorum.controller.protocol.commands import Command
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.entity_commands import (
    Condition,
    DeleteEntity,
    EndExpiredSessions,
    OpenSession,
    OpenSessionReply,
    Operation,
    OperationResult,
    PutEntity,
    Transact,
    TransactReply,
)
from tests.quorum.controller.cluster import Cluster, Run

ALICE: Uuid = b"alice's session."
BOB: Uuid = b"bob's session..."
LOCK = ("lock", "backup")


class Embedder:
    """A program that is built on the cluster."""

    def __init__(self, brokers: int = 0) -> None:
        self.cluster = Cluster(brokers)

    def transact(self, *operations: Operation, conditions: tuple[Condition, ...] = ()) -> TransactReply:
        return self.cluster.ask(Transact(conditions, operations), TransactReply)

    def put(self, kind: str, name: str, value: bytes = b"v", **how: object) -> OperationResult:
        """The result of one put."""
        put = PutEntity((kind, name), value, **how)  # type: ignore[arg-type]
        return self.transact(put).operations[0]

    def delete(self, kind: str, name: str) -> OperationResult:
        return self.transact(DeleteEntity((kind, name))).operations[0]

    def open(self, session_id: Uuid = ALICE, timeout_ms: int = 9_000, name: str = "alice") -> Owner:
        """Opens a session, and returns it as an owner."""
        reply = self.cluster.ask(OpenSession(session_id, name, "CN=alice", timeout_ms), OpenSessionReply)
        return Owner(session_id, None, reply.epoch)

    def keep(self, owner: Owner) -> bool:
        """True if the session was open, and is kept alive."""
        assert owner.session_id is not None
        cluster = self.cluster
        kept = cluster.controller.keep_alive(cluster.image, owner.session_id, owner.epoch, cluster.now_ms)
        return kept is not None

    def refused(self, command: Command) -> tuple[ErrorCode, str]:
        """The code and the text with which the command is refused. Fails where the command is done."""
        before = self.cluster.image
        try:
            self.cluster.run(command)
        except ControllerError as e:
            assert self.cluster.image is before
            assert "nothing was done" in e.message, e.message
            return e.code, e.message
        raise AssertionError(f"{command} was done")

    def refused_put(self, kind: str, name: str, value: bytes = b"v", **how: object) -> ErrorCode:
        return self.refused(Transact((), (PutEntity((kind, name), value, **how),)))[0]  # type: ignore[arg-type]

    def wait(self, ms: int) -> list[Run]:
        """Lets time pass, and carries out what falls due: ends of sessions only."""
        self.cluster.now_ms += ms
        ends: list[Run] = []
        while (due := self.cluster.controller.due(self.cluster.image, self.cluster.now_ms)) is not None:
            ran = self.cluster.run(due)
            if isinstance(due, EndExpiredSessions):
                ends.append(ran)
        return ends

    def version(self, kind: str, name: str) -> Offset | None:
        found = self.cluster.image.entity(kind, name)
        return None if found is None else found.version

    def names(self, kind: str) -> list[str]:
        return [entity.name for entity in self.cluster.image.entities.values() if entity.kind == kind]
