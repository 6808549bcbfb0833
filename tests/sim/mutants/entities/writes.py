"""Bugs of transactions of entities: what conditions are compared with, what is written, and who owns it."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import Offset
from metadata_log.format.records import Entity, MetadataRecord, Owner, RemoveEntity
from metadata_log.image.entity_delta import EntityDelta
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers import broker_commands, registrations
from quorum.controller.entities import client_entities, sessions
from quorum.controller.entities.transact import Surroundings, _Work, transact
from quorum.controller.protocol.commands import Command, CommandReply
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.entity_commands import OperationResult, PutEntity, Transact, TransactReply
from quorum.controller.protocol.request_outcomes import is_done
from quorum.runtime.active import decisions
from quorum.runtime.active.decisions import Deciding, Prepared
from quorum.runtime.image.state_machine import StateMachine
from tests.sim.mutants.patching import Mutant, patched

_staged = Deciding._staged
_owner_of = _Work._owner_of
_proposed: property = inspect.getattr_static(StateMachine, "proposed")


@contextmanager
def _compared_with_the_committed() -> Iterator[None]:
    """`proposed` is asked for right before each decision, by the node that decides."""
    committed: list[MetadataImage] = []

    def proposed(self: StateMachine) -> MetadataImage:
        committed[:] = [self.committed]
        image: MetadataImage = _proposed.__get__(self)
        return image

    def by_committed(image: MetadataImage, command: Transact, around: Surroundings) -> Decision:
        for index, condition in enumerate(command.conditions):
            found = committed[0].entity(*condition.entity)
            if not condition.holds(found):
                return transact(image, Transact(command.conditions[index : index + 1], command.operations), around)
        return transact(image, Transact((), command.operations), around)

    with patched(StateMachine, "proposed", property(proposed)), patched(client_entities, "transact", by_committed):
        yield


def _only_the_first_condition(image: MetadataImage, command: Transact, around: Surroundings) -> Decision:
    return transact(image, Transact(command.conditions[:1], command.operations), around)


def _where_the_batch_begins(self: OperationResult, base_offset: Offset) -> OperationResult:
    return self if self.place < 0 else self._replace(version=base_offset, place=-1)


def _in_two_batches(self: Deciding, decision: Decision, records: Sequence[MetadataRecord]) -> Prepared:
    of_entities = [each for each in records if isinstance(each, Entity | RemoveEntity)]
    if len(of_entities) < 2 or not isinstance(decision.reply, TransactReply):
        return _staged(self, decision, records)
    middle = [*records].index(of_entities[1])
    self._write(_staged(self, decision, records[:middle]))
    return _staged(self, decision, records[middle:])


def _a_failure_is_done_too(command: Command, reply: CommandReply) -> bool:
    return is_done(command, reply) or isinstance(reply, TransactReply)


def _nobody(self: _Work, index: int, put: PutEntity, old: Entity | None) -> Owner | None:
    return None if put.keep_owner and old is not None else _owner_of(self, index, put, old)


def _leave_it_open(self: _Work, owner: Owner | None, reason: str) -> None:
    return None


def _whoever_it_is(self: _Work, index: int, owner: Owner) -> None:
    return None


def _give_to_anybody(self: EntityDelta, owner: Owner, key: EntityName) -> None:
    return None


def _nothing_is_removed(image: MetadataImage, owner: Owner) -> tuple[RemoveEntity, ...]:
    return ()


def _whatever_it_owns(self: EntityDelta, owner: Owner) -> None:
    return None


@contextmanager
def _owner_not_looked_at() -> Iterator[None]:
    with patched(_Work, "_check_live", _whoever_it_is), patched(EntityDelta, "_check_owner", _give_to_anybody):
        yield


@contextmanager
def _ends_without_removals(*modules: object) -> Iterator[None]:
    """Replay does not look, either."""
    with ExitStack() as stack:
        stack.enter_context(patched(EntityDelta, "_check_owns_nothing", _whatever_it_owns))
        for module in modules:
            stack.enter_context(patched(module, "removals", _nothing_is_removed))
        yield


WRITES: dict[str, Mutant] = {
    "compared-with-the-committed": Mutant(
        "the conditions of a transaction are compared with the committed entities, not with those of the log's end",
        _compared_with_the_committed,
    ),
    "one-condition-compared": Mutant(
        "of the conditions of a transaction only the first is looked at",
        lambda: patched(client_entities, "transact", _only_the_first_condition),
    ),
    "version-of-the-batch": Mutant(
        "a client is told the offset of the batch as the version of each entity that it has written",
        lambda: patched(OperationResult, "placed", _where_the_batch_begins),
    ),
    "transaction-in-two-batches": Mutant(
        "the writes of a transaction are in two batches, and the second may be lost alone",
        lambda: patched(Deciding, "_staged", _in_two_batches),
    ),
    "failed-condition-remembered": Mutant(
        "a transaction whose condition failed is remembered as done",
        lambda: patched(decisions, "is_done", _a_failure_is_done_too),
    ),
    "kept-owner-forgotten": Mutant(
        "a put that keeps the owner leaves the entity without an owner",
        lambda: patched(_Work, "_owner_of", _nobody),
    ),
    "ttl-session-kept": Mutant(
        "an entity with a time to live is written without one, and the session of its own goes on",
        lambda: patched(_Work, "_end_hidden", _leave_it_open),
    ),
    "owner-not-looked-at": Mutant(
        "an entity is given to a session that has ended, and replay does not look, either",
        _owner_not_looked_at,
    ),
    "fence-keeps-entities": Mutant(
        "a broker is fenced, and its entities stay; replay does not look, either",
        lambda: _ends_without_removals(broker_commands, registrations),
    ),
    "expiry-keeps-entities": Mutant(
        "the session of a client ends, and its entities stay; replay does not look, either",
        lambda: _ends_without_removals(sessions),
    ),
}
