"""The bundle that the parts of a node share, built once by the node.

Example: a client's request reaches a node after the node has lost its leadership.
    1. `Node` hands the request to `Leadership`, which reads `core.is_leading` from the bundle: False;
    2. `Leadership` answers through `world.reply` of the same bundle;
    3. another part finds that the node must not lead, and calls `resign`: the core takes the input `Resign`, and the node
       carries out the effects before `resign` returns.
"""

from collections.abc import Callable
from dataclasses import dataclass

from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import ReplicaKey
from metadata_log.store.log import Log
from quorum.core.protocol import inputs as raft
from quorum.core.raft import RaftCore
from quorum.runtime.image.snapshotter import Snapshotter
from quorum.runtime.image.state_machine import StateMachine
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.world import World


@dataclass(slots=True)
class TurnTime:
    """The time of the present turn. The node sets it when a turn begins, so all parts see one time."""

    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that every part of one node works on. One owner changes each object; the other parts read the object."""

    me: ReplicaKey
    generation: int
    """The cluster's generation. `quorum recover` begins a new one."""
    config: NodeConfig
    log: Log
    state: StateMachine
    snapshotter: Snapshotter
    core: RaftCore
    world: World
    time: TurnTime
    found_damage: Callable[[CorruptLog], None]
    """Notes damage of the log on this node's disk; the repair begins by itself. Raises CorruptLog: no repair is possible."""
    step: Callable[[raft.Input], None]
    """Gives the core an input, and carries out the effects in order before it returns.

    A part calls `step` in the middle of its work: to hand over a message, to confirm a read, to resign, or to go on with the
    core's new state. The parts that write the log (`LogWriter`, `Applier`) return their inputs instead, and the node gives the
    inputs to the core.
    """

    def resign(self) -> None:
        """Ends the node's leadership in the present epoch; without effect on a node that does not lead."""
        self.step(raft.Resign(self.core.epoch))
