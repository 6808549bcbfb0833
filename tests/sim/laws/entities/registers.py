"""The laws of transactions of entities (E1): a transaction happens if its conditions hold where it stands, and then whole.

The judge is the committed log. The state before the batch of a transaction says whether the conditions held, whatever the leader
believed that it was. Example:

    1. ("reg", "1") has the version 40. Clients e0 and e1 both ask for a put on the condition that the version is 40.
    2. The put of e0 is committed at 52. The put of e1 must not be in the log: at its place the version is 52.
    3. The answer to e1 names the condition that failed, and the version 52, as of an offset above 52.
"""

from typing import NamedTuple

from metadata_log.format.entity_names import EntityName
from metadata_log.format.ids import Offset
from metadata_log.format.records import Entity
from quorum.controller.protocol.entity_commands import (
    Condition,
    DeleteEntity,
    DeleteTopic,
    PutEntity,
    Transact,
    TransactReply,
)
from quorum.controller.protocol.topic_commands import NewTopic
from tests.sim.history import Step
from tests.sim.laws.broken import hold
from tests.sim.laws.entities.known import KnownEntities, Touched


def tag_of(value: bytes) -> bytes:
    """The tag at the beginning of a value."""
    return value.partition(b" ")[0]


class _Done(NamedTuple):
    """A transaction that is committed."""

    end: Offset
    versions: dict[EntityName, Offset]


class RegisterLaws:
    """Checks every committed transaction, and every answer to one."""

    def __init__(self, known: KnownEntities) -> None:
        self._known = known
        self._asked: dict[bytes, Transact] = {}
        self._done: dict[bytes, _Done] = {}
        self._never: set[bytes] = set()

    def asked(self, tag: bytes, command: Transact) -> None:
        """Notes a transaction that a client will ask for. Its puts have `tag` in their values."""
        self._asked[tag] = command

    # --- the log ---------------------------------------------------------------------------------------------------

    def committed(self, step: Step, touched: Touched) -> frozenset[EntityName]:
        """Checks a newly committed batch. Returns the entities that a client has deleted in it."""
        tags = {tag_of(entity.value) for entity in touched.written}
        if not tags:
            return frozenset()
        hold(len(tags) == 1, "E1 Whole", f"one batch up to {step.end} has the writes of {tags}")
        return self.done(tags.pop(), step, touched)

    def done(self, tag: bytes, step: Step, touched: Touched) -> frozenset[EntityName]:
        """Checks the batch of the transaction `tag`. Returns the entities that it has deleted."""
        command = self._asked.get(tag)
        assert command is not None, f"nobody has asked for {tag!r}"
        hold(tag not in self._done, "C3 AtMostOnce", f"{tag!r} was done again up to {step.end}")
        hold(tag not in self._never, "C2 NoPhantom", f"{tag!r} was refused, and is committed up to {step.end}")
        for condition in command.conditions:
            found = touched.before.get(condition.entity, self._known.now.get(condition.entity))
            text = f"{tag!r} is committed up to {step.end}; {condition} does not hold for {found}"
            hold(holds(condition, found), "E1 CompareAndSet", text)
        self._check_whole(tag, command, step, touched)
        versions = {(entity.kind, entity.name): entity.version for entity in touched.written}
        self._done[tag] = _Done(step.end, versions)
        return frozenset(each.entity for each in command.operations if isinstance(each, DeleteEntity))

    def _check_whole(self, tag: bytes, command: Transact, step: Step, touched: Touched) -> None:
        """Every operation is in the batch, and no other."""
        text = f"{tag!r}, committed up to {step.end}"
        written = {(entity.kind, entity.name): entity for entity in touched.written}
        puts = {each.entity: each for each in command.operations if isinstance(each, PutEntity)}
        hold(written.keys() == puts.keys(), "E1 Whole", f"{text} writes {sorted(written)}; asked were {sorted(puts)}")
        for name, put in puts.items():
            old, new = touched.before[name], written[name]
            hold(new.value == put.value, "E1 Whole", f"{text} writes {new}; asked was {put}")
            kept = None if old is None else old.owner
            if put.ttl_ms:
                own = new.owner is not None and new.owner in self._known.sessions
                hold(own, "E1 Whole", f"{text} writes {new}, with a time to live; its session is not open")
            else:
                owner = kept if put.keep_owner else put.owner
                hold(new.owner == owner, "E1 Whole", f"{text} gives {name} to {new.owner}; asked was {put}")
            hold(not put.keep_owner or old is not None, "E1 Whole", f"{text} keeps the owner of {name}, which is new")
        for each in command.operations:
            if isinstance(each, DeleteEntity):
                gone = each.entity not in self._known.now
                hold(gone, "E1 Whole", f"{text} does not delete {each.entity}")
            elif isinstance(each, NewTopic):
                created = step.before.topic(each.name) is None and step.after.topic(each.name) is not None
                hold(created, "E1 Whole", f"{text} does not create the topic {each.name}")
            elif isinstance(each, DeleteTopic):
                hold(step.after.topic(each.name) is None, "E1 Whole", f"{text} does not delete the topic {each.name}")

    # --- answers ---------------------------------------------------------------------------------------------------

    def answered(self, tag: bytes, reply: TransactReply, *, is_final: bool) -> None:
        """Checks an answer: a success is in the log as it says, and the failed condition did not hold as of the answer's offset.

        `is_final`: no copy of the request is on its way, so a transaction that has failed is never done.
        """
        command = self._asked[tag]
        if reply.failed is not None:
            done = self._done.get(tag)
            hold(done is None or done.end > reply.offset, "C3 ExactlyOnce", f"{tag!r} failed, because it had been done")
            if is_final:
                self.never(tag)
            index, said = reply.failed
            found = [self._known.before(condition.entity, reply.offset) for condition in command.conditions]
            text = f"{tag!r} failed as of {reply.offset}"
            held = [holds(condition, each) for condition, each in zip(command.conditions, found, strict=True)]
            hold(not held[index], "E1 CompareAndSet", f"{text}; {command.conditions[index]} held for {found[index]}")
            hold(all(held[:index]), "E1 CompareAndSet", f"{text} at condition {index}; an earlier one did not hold")
            same = _identity(said) == _identity(found[index])
            hold(same, "E1 CompareAndSet", f"{text}, with {said}; there is {found[index]}")
            return
        done = self._done.get(tag)
        hold(done is not None, "C1 NoLostAck", f"{tag!r} was acknowledged at {reply.offset}, and is not there")
        assert done is not None
        hold(done.end <= reply.offset, "C1 NoLostAck", f"{tag!r} ends at {done.end}, acknowledged at {reply.offset}")
        hold(len(reply.operations) == len(command.operations), "C1 Answered", f"{tag!r}: {reply}")
        for operation, result in zip(command.operations, reply.operations, strict=True):
            if isinstance(operation, PutEntity):
                right = done.versions[operation.entity]
                hold(result.version == right, "E1 Version", f"{tag!r} was told {result.version}; it wrote {right}")

    def never(self, tag: bytes) -> None:
        """Notes that a transaction was refused for good, or that a condition failed."""
        hold(tag not in self._done, "C2 NoPhantom", f"{tag!r} was refused, and is committed")
        self._never.add(tag)


def holds(condition: Condition, found: Entity | None) -> bool:
    """As `Condition.holds`, which a mutant may change."""
    if condition.exists is not None:
        return condition.exists == (found is not None)
    if found is None:
        return False
    if condition.version is not None:
        return found.version == condition.version
    if condition.version_at_most is not None:
        return found.version <= condition.version_at_most
    return found.value == condition.value


def _identity(entity: Entity | None) -> tuple[Offset, Offset] | None:
    return None if entity is None else (entity.created, entity.version)
