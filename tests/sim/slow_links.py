"""L8: behind a slow link a follower and a broker catch up on an idle cluster, and cost nobody anything meanwhile.

Nobody writes for a while, and links become slow. Then, while a follower is down, so much is written that no link of that speed
carries it within one request's timeout: eight batches, each of which alone is too large, and small ones between. Then nobody
writes, and the follower is started behind its slow link. It must not campaign, the leader must stay, the broker must not be
fenced, and both must come to the end.

*No broker knows a speed when the links become slow.* A broker believes what it has learned of a link for `KNOWN_MS`, and a fetch
that left in the last moment of that time asks for a large piece and then waits for news. So the quiet lasts until that fetch is
over too, by the slowest clock. Example: with 10 s of belief, fetches of 666 + 333 ms and clocks that lose 4 %, the quiet lasts
11.5 s after the last answer.

The law excepts a link that becomes slow under a fetch that waits. The broker loses that fetch, for which a session has room.

A broker that loses its controller asks all controllers in turn, as a real broker does. Counter-example: a snapshot is deleted
while broker 101 downloads it. Broker 101 asks any controller, four times the dead one, and its session ends.

A slow link carries a smallest piece in a quarter of a request's timeout: 256 kbit/s for pieces of 4 KiB and 500 ms.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_agent.session.lifecycle import BrokerState
from metadata_log.format.fetch_size import KNOWN_MS
from metadata_log.format.ids import Offset
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.core.roles import Role
from quorum.runtime.protocol.world import Submission
from tests.sim.laws import LawBroken, hold

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.nodes.brokers import SimBroker
    from tests.sim.nodes.controllers import SimController

LAW = "L8 SlowLinks"
LARGE_BATCHES = 8
LARGE_PIECES = 5
"""So many smallest pieces a large batch is at least: five quarters of a request's timeout."""
SMALL_BETWEEN = 1
"""So many small batches follow each large one. A small batch comes quickly, and says nothing about the link."""
PARTITION_BYTES = 24
"""At least, in the log."""
SMALL_WRITES = 10
WRITING_MS = 20_000
QUIET_MS = 1_000.0
DETOURS = 8
"""So many times as long as the bytes alone take may the way take: parts that are not full, round trips, flushes."""


def speed_of_slow_link(smallest_piece: int, request_timeout_ms: int) -> float:
    """Bytes a second."""
    return smallest_piece / (request_timeout_ms / 4) * 1_000


class SlowLinks:
    """The last chapter of some runs; everything is well when it begins."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def run(self) -> None:
        """Raises LawBroken if somebody does not catch up, or costs the others something."""
        cluster = self._cluster
        if cluster.options.transaction_slice < ControllerConfig().transaction_slice_records:
            return  # the topics of this chapter would be hundreds of small batches, and no large piece
        leader = next(each for each in cluster.controllers if each.node is not None and each.node.active.on)
        followers = [each for each in cluster.controllers if self._may_be_away(each, leader)]
        brokers = [each for each in cluster.brokers.values() if each.may_serve() and not each.stopping]
        if not followers or not brokers:
            return
        follower, broker = followers[0], brokers[0]
        self._rest_until_no_speed_is_known()
        cluster.is_idle = False
        if not self._takes_new_topics(leader):
            return
        cluster.faults.stop((follower,))
        follower.crash(power_cut=False)
        piece = cluster.options.piece_bytes_min
        cluster.network.narrow(
            broker.name, speed_of_slow_link(piece, cluster.options.session_config().request_timeout_ms)
        )
        below = leader.log.end
        self._write_much(leader, piece)
        speed = speed_of_slow_link(piece, follower.config.raft.request_timeout_ms)
        cluster.network.narrow(follower.name, speed)
        follower.boot_up()
        self._watch(follower, broker, leader, DETOURS * 1_000 * self._bytes_to_carry(leader, below) / speed + QUIET_MS)
        cluster.coverage["caught up over a slow link"] += 1
        cluster.network.widen()

    @staticmethod
    def _takes_new_topics(leader: "SimController") -> bool:
        """False if an operator has fenced or drained every broker, perhaps in a request that the rest has brought to its end."""
        assert leader.node is not None
        image = leader.node.state.proposed
        return any(not each.fenced and each.broker_id not in image.broker_modes for each in image.brokers.values())

    @staticmethod
    def _may_be_away(controller: "SimController", leader: "SimController") -> bool:
        if controller is leader or controller.node is None or controller.core.role is not Role.FOLLOWER:
            return False
        is_voter = leader.core.voters.contains(controller.key)
        return is_voter and leader.core.keeps_majority_without((controller.node_id,)) is True

    def _write_much(self, leader: "SimController", piece: int) -> None:
        cluster = self._cluster
        writes = cluster.acknowledged_writes() + SMALL_WRITES
        for number in range(LARGE_BATCHES):
            self._ask(leader, NewTopic(f"large-{number}", LARGE_PIECES * piece // PARTITION_BYTES, 1))
            for small in range(SMALL_BETWEEN):
                self._ask(leader, NewTopic(f"small-{number}-{small}", 1, 1))
        self._until(lambda: cluster.acknowledged_writes() >= writes, WRITING_MS)
        self._rest(QUIET_MS)
        self._until(leader.log_is_applied, WRITING_MS)

    @staticmethod
    def _ask(leader: "SimController", topic: NewTopic) -> None:
        leader.ask(
            lambda reply_to, now_ms: Submission(CreateTopics((topic,)), reply_to, now_ms + WRITING_MS),
            lambda answer: None,
            "CreateTopics",
        )

    def _rest(self, for_ms: float) -> None:
        """From now on nobody writes; so much time passes."""
        self._cluster.is_idle, until_ms = True, self._cluster.now_ms + for_ms
        while self._cluster.now_ms <= until_ms:
            self._cluster.next()

    def _rest_until_no_speed_is_known(self) -> None:
        """The messages on their way arrive; then the brokers learn nothing, until the last fetch for a large piece is over."""
        options = self._cluster.options
        session = options.session_config()
        fetch_ms = session.max_wait_ms + session.request_timeout_ms
        self._rest(QUIET_MS)
        self._rest((KNOWN_MS + fetch_ms) / (1.0 - options.clock_drift))

    def _bytes_to_carry(self, leader: "SimController", below: Offset) -> int:
        snapshot, history = leader.log.shape.snapshot, self._cluster.laws.history
        assert leader.node is not None
        size = 0
        if snapshot is not None and snapshot.offset > 0:
            size, _ = leader.node.snapshotter.store.read_chunk(snapshot, 0, 1)
        log = history.data(below, history.end)
        hold(
            len(log) > LARGE_BATCHES * LARGE_PIECES * self._cluster.options.piece_bytes_min,
            LAW,
            "too little was written",
        )
        return size + len(log)

    def _watch(self, follower: "SimController", broker: "SimBroker", leader: "SimController", within_ms: float) -> None:
        goal, epoch = leader.log.end, leader.core.epoch

        def over() -> bool:
            hold(leader.is_up and leader.core.is_leading and leader.core.epoch == epoch, LAW, "the leader is gone")
            hold(follower.is_up and follower.core.role is Role.FOLLOWER, LAW, f"{follower.name} does not follow")
            hold(broker.session.state is BrokerState.ONLINE, LAW, f"{broker.name}: {broker.session.reason}")
            assert follower.node is not None
            return follower.node.state.applied >= goal and broker.session.position.offset >= goal and broker.may_serve()

        try:
            self._until(over, within_ms)
        except TimeoutError as e:
            where = (
                f"{follower.name} ends at {follower.log.end}, {broker.name} stands at {broker.session.position.offset}"
            )
            raise LawBroken(LAW, f"after {within_ms:.0f} ms {where}; the log ends at {goal}") from e

    def _until(self, is_over: Callable[[], bool], within_ms: float) -> None:
        deadline_ms = self._cluster.now_ms + within_ms
        while not is_over():
            if self._cluster.now_ms > deadline_ms:
                raise TimeoutError
            self._cluster.next()
