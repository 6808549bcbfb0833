"""Poison batches, and an operator who skips them.

A bug makes an active controller append a batch that no other replay can apply: a config, and a record that does not fit. The
controller itself takes the batch for the config alone, as a newer release might. All others stand still in front of the batch,
and so does the controller once it has restarted. The operator looks at the controllers from time to time, and asks the leader to
skip the batch; now and then the operator names a batch that everybody has applied, which must be refused.

At most one poison batch is there at a time, and no snapshot mark behind it: no skip could undo that.
"""

import random
from typing import TYPE_CHECKING

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import BROKER_RESOURCE, Config, MetadataRecord, RemoveTopic
from quorum.runtime.node import Node
from quorum.runtime.protocol.requests import BatchSkipped, Refused, SkipRequest
from quorum.runtime.protocol.world import Answer, SkipWanted, Tick
from tests.sim.laws.broken import hold

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.nodes.controllers import SimController

OPERATOR = "k0"
"""The operator's machine: the network has an address for the client there."""
LOOK_EVERY_MS = 150.0
TIMEOUT_MS = 2_000
MARK_MS = 4_000.0
"""How long a mark may be on its way."""
UNKNOWN = RemoveTopic("nobody", b"nobody".ljust(16))
WRONG_CHANCE = 0.1
FORCE_CHANCE = 0.1


class Poisoning:
    """A bug and an operator of one cluster: poison batches, and their skips."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._history = cluster.laws.history
        self._dice = random.Random(f"{cluster.seed} poisons")
        self._count = 0
        self._marked_ms = -MARK_MS

    def start(self) -> None:
        if self._cluster.options.poison_every_ms:
            self._poison_later()
            self._look_later()

    def may_mark(self) -> bool:
        """True if a client may ask for a snapshot now; the client does so at once."""
        if self._history.skips.is_waiting:
            return False
        self._marked_ms = self._cluster.now_ms
        return True

    # --- the bug ---------------------------------------------------------------------------------------------------

    def _poison_later(self) -> None:
        def act() -> None:
            if not self._cluster.is_calm:
                self._poison()
                self._poison_later()

        self._cluster.schedule(self._dice.expovariate(1 / self._cluster.options.poison_every_ms), act)

    def _poison(self) -> None:
        leaders = [each for each in self._cluster.controllers if each.node is not None and self._can_err(each.node)]
        is_marking = self._cluster.now_ms - self._marked_ms < MARK_MS
        awake = [each for each in leaders if not each.paused]
        if awake and not is_marking and not self._history.skips.is_waiting:
            self._dice.choice(awake).poison(self._append)

    @staticmethod
    def _can_err(node: Node) -> bool:
        return node.active.on and node.state.transaction is None and node.state.proposed.metadata_version >= 2

    def _append(self, node: Node, now_ms: int, wall_ms: int) -> None:
        self._count += 1
        effect = Config(BROKER_RESOURCE, "9999", "log.retention.ms", str(self._count))
        records: tuple[MetadataRecord, ...] = (effect, UNKNOWN)
        node._time.now_ms, node._time.wall_ms = now_ms, wall_ms
        staged = node.state.stage(records[:1], node.log.end)
        batch = node.log.seal(records, node.core.epoch, wall_ms)
        self._history.skips.poisoned(batch, effect)
        try:
            node._guarded(node._writer.append_proposal, batch, now_ms)
        except Refused:
            pass  # the disk is full, and the leader resigns
        else:
            if node.stopped is not None:
                return  # the disk failed under a new segment
            node.state.propose(staged, batch)
            self._cluster.coverage["poison batch"] += 1
        node.turn((Tick(),), now_ms, wall_ms)

    # --- the operator ----------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        def act() -> None:
            self._history.skips.look_at_clock(self._cluster.now_ms)
            if not self._cluster.is_idle:
                self._look()
            self._look_later()

        self._cluster.schedule(self._dice.uniform(0.5, 1.5) * LOOK_EVERY_MS, act)

    def _look(self) -> None:
        for controller in self._cluster.controllers:
            node = controller.node
            if node is None or controller.paused:
                continue
            poison = node.state.poison
            if poison is not None and node.core.is_leading:
                self._ask(controller, poison.batch, although_applied=False)
            elif poison is not None and self._dice.random() < FORCE_CHANCE:
                leader = self._cluster.controller(node.core.leader_id or 1)
                self._ask(leader, poison.batch, although_applied=True)
            elif node.core.is_leading and self._dice.random() < WRONG_CHANCE:
                self._ask_wrongly(controller, node)

    def _ask_wrongly(self, controller: "SimController", node: Node) -> None:
        """To skip a batch that this controller has applied, or may have."""
        offset = node.log.shape.start.offset
        batches = node.log.read(offset, 1 << 14) if not node.log.damage else ()
        good = [each for each in batches if not each.is_control and not self._history.skips.is_poison(each)]
        if good:
            self._ask(controller, self._dice.choice(good), although_applied=False)

    def _ask(self, target: "SimController", batch: Batch, *, although_applied: bool) -> None:
        cluster = self._cluster
        request = SkipRequest(batch.base_offset, batch.epoch, batch.chain, although_applied)

        def arrive(answer: Answer) -> None:
            if isinstance(answer, BatchSkipped):
                cluster.coverage["poison batch skipped"] += 1
                self._answered(batch, answer.offset)
            else:
                assert isinstance(answer, Refused), answer
                known = answer.code in (ErrorCode.POLICY_VIOLATION, ErrorCode.CHAIN_MISMATCH)
                cluster.coverage["skip refused"] += known

        def back(answer: Answer) -> None:
            cluster.network.carry(target.name, OPERATOR, lambda: arrive(answer))

        def make(reply_to: int, now_ms: int) -> SkipWanted:
            return SkipWanted(request, reply_to, now_ms + TIMEOUT_MS)

        cluster.network.carry(OPERATOR, target.name, lambda: target.ask(make, back, "skip"))

    def _answered(self, batch: Batch, end: Offset) -> None:
        law = "C9 SkipDropsTheBatch"
        hold(self._history.skips.is_poison(batch), law, f"the good batch at {batch.base_offset} is said to be skipped")
        hold(end <= self._history.end, law, f"said to be skipped below {end}; committed is {self._history.end}")
