"""The laws of request ids: each request takes effect once, and a request possibly forgotten is refused (C3).

The log remembers done requests for a limited time. The *horizon* marks the end of this memory
(`quorum.controller.protocol.request_outcomes`). The laws remember all requests. So the laws detect a horizon too low by
one at once, and also a request decided although it may have been done before and forgotten, whether it had been or not.

Example:

    1. The outcome at offset 40 has just been forgotten: the horizon is 41.
    2. Client 1 had seen offset 40 when it first sent a request. This request may be the forgotten one: it is refused.
    3. Client 2 had seen offset 41 when it first sent a request. This request must not be refused.

A decision in several batches is judged by the horizon at its beginning. The leader decides then that the request is new, and a
repetition waits for the end. So the request stays new, although other requests may be done and forgotten in between. Example:

    1. Client 1 has seen offset 60. It asks leader 1 to drain broker 7. The horizon is 41, and leader 1 appends the first slice.
    2. Leader 1 does other requests between the slices: the horizon is 70. The last slice, with the outcome, is right.
    3. Leader 1 dies before the last slice, and client 1 asks leader 2. Leader 2 must refuse the request: 60 is below 70.
"""

from typing import TYPE_CHECKING

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, Offset, Uuid
from metadata_log.format.records import PartitionChange, RequestOutcome, Topic
from quorum.controller.partitions.target_replicas import target_of
from quorum.controller.protocol.commands import Command, FenceBroker
from quorum.controller.protocol.election_commands import ElectLeaders
from quorum.controller.protocol.entity_commands import Transact
from quorum.controller.protocol.feature_commands import UpdateFeatures
from quorum.controller.protocol.mode_commands import DrainBroker
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignments, Reassignment
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import Answer
from tests.sim.history import Step
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.nodes.controllers import SimController

SLICED = (ElectLeaders, FenceBroker, DrainBroker, UpdateFeatures)
"""Commands with steps between which the leader decides other requests. Between the slices of a transaction it decides none."""


class RequestLaws:
    """Checks every request reaching a controller, and every committed batch, in order."""

    def __init__(self) -> None:
        self._done: set[Uuid] = set()
        """All requests ever done, including those forgotten by the log."""
        self._remembered: dict[Uuid, Offset] = {}
        """The requests remembered by the log, and the offsets of their outcomes."""
        self._forgotten_below: Offset = 0
        """The minimum horizon: one past the newest forgotten outcome."""
        self._seen: dict[Uuid, Offset] = {}
        """By request: the offset seen by the client when it first sent the request."""
        self._began: dict[Uuid, dict[Epoch, Offset]] = {}
        """By request that may be done in several steps, and epoch: the minimum horizon when the request first arrived."""
        self._creating: dict[str, Uuid] = {}
        """By topic created by one request at most: the request."""
        self._moving: dict[Uuid, frozenset[Reassignment]] = {}
        """By request that reassigns: the targets that it asks for."""
        self._moved: set[str] = set()
        """The topics that such requests name. Their client sends no request without an id, and no other client reassigns them."""

    def asked(self, command: Command, identity: RequestIdentity, epoch: Epoch) -> None:
        """Notes a request with an id at a controller, which is in `epoch`."""
        self._seen[identity.request_id] = identity.client_high_watermark
        if isinstance(command, SLICED):
            self._began.setdefault(identity.request_id, {}).setdefault(epoch, self._forgotten_below)
        if isinstance(command, CreateTopics):
            self._creating |= {topic.name: identity.request_id for topic in command.topics}
        if isinstance(command, Transact):
            new = [each.name for each in command.operations if isinstance(each, NewTopic)]
            self._creating |= dict.fromkeys(new, identity.request_id)
        if isinstance(command, AlterPartitionReassignments):
            self._moving[identity.request_id] = frozenset(command.partitions)
            self._moved |= {each.topic for each in command.partitions}

    def answered(self, controller: "SimController", identity: RequestIdentity, answer: Answer) -> None:
        """Called before the answer to a request leaves."""
        if isinstance(answer, Refused) and answer.code is ErrorCode.REQUEST_ID_EXPIRED:
            assert controller.node is not None
            seen, horizon = identity.client_high_watermark, controller.node.state.proposed.request_horizon
            unknown = f"request {identity.request_id.hex()} is refused as forgotten"
            hold(seen < horizon, "C3 KnownToBeNew", f"{unknown}; its client had seen {seen}, the horizon is {horizon}")

    def committed(self, step: Step) -> None:
        """Checks a newly committed batch."""
        if not step.records:
            return
        last = step.records[-1]
        done = last.request_id if isinstance(last, RequestOutcome) else None
        for record in step.records:
            if isinstance(record, Topic) and record.name in self._creating:
                remembered = self._creating[record.name] == done
                hold(
                    remembered,
                    "C3 WithItsEffect",
                    f"topic {record.name} was created, and that is not remembered with it",
                )
        if self._moving:
            self._check_reassigned(step, frozenset() if done is None else self._moving.get(done, frozenset()))
        if done is not None:
            self._check_done(done, step.end - 1, step.batch.epoch)
            self._forget(step)

    def _check_reassigned(self, step: Step, asked: frozenset[Reassignment]) -> None:
        """A partition gets another target only together with the outcome of a request that has asked for it. So a large request
        takes effect as a whole."""
        for record in step.records:
            if not isinstance(record, PartitionChange) or (record.replicas, record.removing_replicas) == (None, None):
                continue
            topics = step.before.topic_by_id(record.topic_id), step.after.topic_by_id(record.topic_id)
            before, after = (None if topic is None else topic.state(record.partition) for topic in topics)
            if topics[0] is None or before is None or after is None or target_of(before) == target_of(after):
                continue
            name, target = topics[0].name, target_of(after)
            if name not in self._moved:
                continue
            remembered = not asked.isdisjoint(
                Reassignment(name, record.partition, replicas) for replicas in (target, None)
            )
            text = f"{name}-{record.partition} gets the target {target}, and that is not remembered with it"
            hold(remembered, "C3 WithItsEffect", text)

    def _check_done(self, request_id: Uuid, at: Offset, epoch: Epoch) -> None:
        request, seen = f"request {request_id.hex()}", self._seen[request_id]
        hold(request_id not in self._done, "C3 ExactlyOnce", f"{request} was done again at {at}")
        horizon = self._horizon_at_begin(request_id, epoch)
        text = f"{request} was done at {at}; its client had seen {seen}, and it may be below {horizon}"
        hold(seen >= horizon, "C3 NobodyKnows", text)
        self._done.add(request_id)
        self._remembered[request_id] = at

    def _horizon_at_begin(self, request_id: Uuid, epoch: Epoch) -> Offset:
        """The minimum horizon when the leader of `epoch` began the request. A node may be elected in the turn that takes the
        request, so the request may have arrived in an earlier epoch."""
        began = {each: below for each, below in self._began.get(request_id, {}).items() if each <= epoch}
        return began[max(began)] if began else self._forgotten_below

    def _forget(self, step: Step) -> None:
        for request_id in [each for each in self._remembered if step.after.request_outcome(each) is None]:
            self._forgotten_below = max(self._forgotten_below, self._remembered.pop(request_id) + 1)
        horizon = step.after.request_horizon
        right = horizon == self._forgotten_below
        hold(right, "C3 Horizon", f"below {self._forgotten_below} requests are forgotten; the horizon is {horizon}")
