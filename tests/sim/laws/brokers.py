"""The laws of brokers: the answers to brokers, and how long brokers may serve (F1 to F7, M2, M8, and the lease).

The lease is the most important promise: when a session has ended, and the broker's partitions move to others, the
broker has already stopped serving by itself, whatever its clock, the network, and a paused controller do. Margins of a
fifth of the session and more would hide a wrongly counted lease. So each half of the promise is a law of its own, exact
to the millisecond: a broker counts its lease from *sending* the answered request; and a leader
grants no lease unless a majority has followed the leader within the quorum age.

Example:

    1. Broker 101 sends a fetch at 1,000. The controller parks the fetch and answers at 2,400 with a lease of 833.
    2. Counted from sending, the lease ended at 1,833, before its arrival.
    3. A broker counting from 2,400 breaks the law, although no session ends before 3,200.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Epoch, NodeId, Offset, Uuid
from metadata_log.format.partition_state import LEADER
from quorum.runtime.protocol.requests import FetchResult, MetadataFetch, MetadataFetched, Refused
from tests.sim.coverage import Coverage
from tests.sim.history import History
from tests.sim.laws.broken import LawBroken, hold
from tests.sim.options import Options

if TYPE_CHECKING:
    from tests.sim.nodes.brokers import SimBroker
    from tests.sim.nodes.controllers import SimController

SESSION_SLACK_MS = 2.0
QUORUM_AGE_SLACK_MS = 2.0


class _Term(NamedTuple):
    """One process's activity as controller in one epoch."""

    node_id: NodeId
    boot: int
    epoch: Epoch


class BrokerLaws:
    """Checks every fetch, every answer, and every broker after each of its events."""

    def __init__(
        self,
        history: History,
        options: Options,
        coverage: Coverage,
        brokers: "Mapping[NodeId, SimBroker]",
        followed_until_ms: "Callable[[SimController, float], float]",
    ) -> None:
        """Builds the laws.

        `followed_until_ms` returns the last time at which a majority is known to have followed a leader.
        """
        self._history = history
        self._options = options
        self._coverage = coverage
        self._brokers = brokers
        self._followed_until_ms = followed_until_ms
        self._positions: dict[tuple[NodeId, Uuid], Offset] = {}
        self._watermarks: dict[tuple[NodeId, Uuid], Offset] = {}
        self._applied: dict[tuple[NodeId, int], Offset] = {}
        self._plain: set[tuple[NodeId, int]] = set()
        self._wishes: set[tuple[NodeId, int]] = set()
        """Brokers (id, epoch) which asked to be fenced after having been Online, or reported their last directory as offline."""
        self._named: set[NodeId] = set()
        """Brokers that an operator has ever asked to fence. The fence may come at any later time, while the broker is heard."""
        self._heard: dict[tuple[_Term, NodeId, int], float] = {}
        self._active_since: dict[_Term, float] = {}
        self._proposed_fenced: dict[_Term, dict[NodeId, tuple[int, bool]]] = {}
        self._led_away: dict[tuple[NodeId, int], Offset] = {}
        self._leased_until: dict[tuple[NodeId, Uuid], int] = {}
        """Until when, by its own clock, each broker process may trust the leases received so far."""
        self._stale: tuple[MetadataFetch, int | None] | None = None

    def may_be_fenced(self, broker_id: NodeId) -> None:
        """Notes that an operator asks to fence the broker."""
        self._named.add(broker_id)

    def has_applied(self, broker_id: NodeId, broker_epoch: int) -> Offset:
        """The furthest offset ever applied by the broker under this epoch."""
        return self._applied.get((broker_id, broker_epoch), 0)

    # --- brokers themselves ----------------------------------------------------------------------------------------

    def observe(self, broker: "SimBroker") -> None:
        """Called after an event at a running broker."""
        session, image = broker.session, broker.store.image
        session.check_invariants()
        name, offset, key = broker.name, image.provenance.offset, (broker.broker_id, broker.incarnation_id)
        hold(offset <= self._history.end, "F1 Prefix", f"{name} applied {offset}; committed is {self._history.end}")
        before = self._positions.get(key, 0)
        hold(offset >= before, "F3 Monotone", f"{name} went back from {before} to {offset}")
        if offset != before:
            self._positions[key] = offset
            known = self._history.agrees(offset, image.digest_bytes)
            hold(known, "F6 Equivalence", f"{name} at {offset} has another state than the history")
        seen = self._watermarks.get(key, 0)
        hold(session.high_watermark >= seen, "F3 Monotone", f"{name} saw {seen}, then {session.high_watermark}")
        self._watermarks[key] = session.high_watermark
        leased_until_ms = self._leased_until.get(key, 0)
        if session.lease_until_ms > leased_until_ms:
            late = f"{name} believes its lease until {session.lease_until_ms}, by its own clock"
            raise LawBroken("L LeaseFromSending", f"{late}; counted from sending it is over at {leased_until_ms}")
        if session.broker_epoch is not None:
            place = broker.broker_id, session.broker_epoch
            self._applied[place] = max(self._applied.get(place, 0), session.position.offset)
            self._check_lease(broker)

    def store_reset(self, broker: "SimBroker", reason: str) -> None:
        """A broker drops its store only for damage found at its start, and never on a controller's word."""
        raise LawBroken("F6 Equivalence", f"{broker.name} had to drop its store: {reason}")

    def lease_arrives(self, broker: "SimBroker", sent_ms: int, lease_ms: int) -> None:
        """Notes a lease received in answer to a request sent at `sent_ms` of the broker's own clock."""
        key = broker.broker_id, broker.incarnation_id
        self._leased_until[key] = max(self._leased_until.get(key, 0), sent_ms + lease_ms)

    # --- fetches ---------------------------------------------------------------------------------------------------

    def about_to_take(self, controller: "SimController", fetch: MetadataFetch, now_ms: float) -> None:
        """Called before the controller processes `fetch`."""
        self._stale = None
        node = controller.node
        if node is None or not node.active.on:
            return
        term = self._term(controller)
        registered = node.state.proposed.brokers.get(fetch.broker_id)
        key = fetch.broker_id, fetch.broker_epoch
        if registered is None or (registered.broker_epoch, registered.incarnation_id) != (key[1], fetch.incarnation_id):
            standing = node.active.controller.standing(node.state.proposed, fetch.broker_id)
            self._stale = fetch, standing.last_contact_ms
            self._coverage["stale broker fetch"] += 1
            return
        if fetch.broker_id not in node.active.controller._brokers.views._barred:
            self._heard[term, *key] = now_ms  # a fetch after the begin of the broker's fencing comes too late
        if set(registered.log_dirs) <= set(fetch.offline_log_dirs):
            self._wishes.add(
                key
            )  # without a log directory the broker has no replica: this report asks for a fence, too
        if not fetch.wants_fence and not fetch.wants_shut_down:
            self._plain.add(key)
        elif key in self._plain or fetch.wants_shut_down:
            self._wishes.add(key)

    def forget_stale(self) -> None:
        """Several events are processed at once: the cause of a refreshed session is unknown."""
        self._stale = None

    def answered(
        self, controller: "SimController", fetch: MetadataFetch, answer: MetadataFetched | Refused, now_ms: float
    ) -> None:
        """Called before the answer to `fetch` leaves."""
        if isinstance(answer, Refused):
            hold(answer.code is not ErrorCode.CHAIN_MISMATCH, "R6 LogMatching", f"{controller.name}: {answer.message}")
            return
        who = f"{controller.name} to b{fetch.broker_id} at {fetch.offset}"
        if answer.lease_ms > 0:
            self._check_leader_was_heard(controller, who, now_ms)
        if answer.standing is not None and answer.standing.should_shut_down:
            self._check_may_go(fetch.broker_id, who)
        self._coverage[f"fetch answer: {answer.result.value}"] += 1
        match answer.result:
            case FetchResult.DIVERGED:
                # A deposed leader without the newest commits may claim a divergence. The broker knows a later epoch and
                # must ignore the claim: `store_reset` checks the broker.
                hold(
                    answer.controller_epoch < self._history.epoch,
                    "F1 Prefix",
                    f"{who}: its committed history is said to diverge at {answer.diverging}",
                )
            case FetchResult.USE_SNAPSHOT:
                assert answer.snapshot is not None
                hold(
                    fetch.offset < answer.snapshot.offset <= self._history.end,
                    "F5 Resumable",
                    f"{who}: {answer.snapshot}",
                )
            case FetchResult.BATCHES:
                self._check_batches(fetch, answer, who)
            case FetchResult.NOT_READY:
                pass

    def _check_leader_was_heard(self, controller: "SimController", who: str, now_ms: float) -> None:
        """A deposed leader grants no lease to a broker which the next leader may fence."""
        limit_ms = controller.config.quorum_age_ms * (1 + self._options.clock_drift) + QUORUM_AGE_SLACK_MS
        silent_ms = now_ms - self._followed_until_ms(controller, now_ms)
        hold(silent_ms <= limit_ms, "L LeaseOfLeader", f"{who}: a lease, {silent_ms:.0f} ms after a majority followed")

    def _check_may_go(self, broker_id: NodeId, who: str) -> None:
        """A broker allowed to shut down leads no partition, by committed records: its process may end at once."""
        image = self._history.image
        broker = image.brokers.get(broker_id)
        hold(broker is None or broker.fenced, "M3 GoesWhenFenced", f"{who}: may go; it is {broker}")
        for topic in (image.topics_by_id[topic_id] for topic_id in image.topics_of_broker(broker_id)):
            states = ((each, topic.state(each)) for each in topic.partitions_on(broker_id))
            led = [each for each, state in states if state is not None and state[LEADER] == broker_id]
            hold(not led, "M3 GoesWhenFenced", f"{who}: may go; it leads {led} of {topic.name}")

    def _check_batches(self, fetch: MetadataFetch, answer: MetadataFetched, who: str) -> None:
        """An answer holds exactly the history from the requested offset to the claimed end, in whole batches."""
        history, end = self._history, answer.end_offset
        hold(end <= history.end, "F1 Prefix", f"{who}: {end} is not committed")
        data = self._begun(fetch, answer, who) + b"".join(batch.data for batch in answer.batches)
        hold(fetch.offset <= end and data == history.data(fetch.offset, end), "F5 Resumable", f"{who}: not [.., {end})")
        if fetch.offset and answer.batches:
            hold(answer.previous_chain == history.chain_at(fetch.offset), "F2 NoGap", f"{who}: another chain")
        if answer.digest:
            hold(history.agrees(answer.digest_offset, answer.digest), "F6 Equivalence", f"{who}: digest at {end}")

    def _begun(self, fetch: MetadataFetch, answer: MetadataFetched, who: str) -> bytes:
        """The batch sent in parts, once the last part is sent.

        The parts follow each other without gaps, and are of this batch.
        """
        part = answer.part
        if part is None:
            return b""
        self._coverage["part of a batch given to a broker"] += 1
        batch = self._history.batch_at(fetch.offset)
        held = fetch.part_position
        hold(
            part.position == held and not answer.batches, "F4 Unsplit", f"{who}: bytes from {part.position}, not {held}"
        )
        of_batch = batch.data[part.position : part.position + len(part.data)]
        hold(part.is_sound and part.data == of_batch, "F4 Unsplit", f"{who}: other bytes than the batch has")
        return batch.data if part.is_last else b""

    # --- sessions --------------------------------------------------------------------------------------------------

    def observe_controller(self, controller: "SimController", now_ms: float) -> None:
        """Called after an event at a running controller: M2 and M8."""
        node = controller.node
        assert node is not None
        if not node.active.on:
            return
        term = self._term(controller)
        self._active_since.setdefault(term, now_ms)
        proposed = node.state.proposed
        if self._stale is not None:
            fetch, before_ms = self._stale
            self._stale = None
            registered = proposed.brokers.get(fetch.broker_id)
            if registered is None or registered.broker_epoch != fetch.broker_epoch:
                after_ms = node.active.controller.standing(proposed, fetch.broker_id).last_contact_ms
                unmoved = after_ms == before_ms or after_ms is None
                hold(unmoved, "M2 StaleEpoch", f"b{fetch.broker_id}@{fetch.broker_epoch} refreshed a later session")
        known = self._proposed_fenced.setdefault(term, {})
        sessions = node.active.controller._brokers.sessions
        for broker_id, broker in proposed.brokers.items():
            was = known.get(broker_id)
            known[broker_id] = broker.broker_epoch, broker.fenced
            if not broker.fenced and sessions.of(broker_id, broker.broker_epoch) is None:
                raise LawBroken("M8 Tracked", f"c{term.node_id} would not notice that b{broker_id} is silent")
            if broker.fenced and was == (broker.broker_epoch, False) and not broker.dead:
                self._check_silent(term, broker_id, broker.broker_epoch, now_ms)

    def _check_silent(self, term: _Term, broker_id: NodeId, broker_epoch: int, now_ms: float) -> None:
        """M8: a broker fenced without its own request was silent for a whole session, by this controller's clock."""
        if (broker_id, broker_epoch) in self._wishes or broker_id in self._named:
            return
        heard_ms = self._heard.get((term, broker_id, broker_epoch), 0.0)
        silent_ms = now_ms - max(heard_ms, self._active_since[term])
        session_ms = self._options.session_timeout_ms / (1 + self._options.clock_drift) - SESSION_SLACK_MS
        hold(
            silent_ms >= session_ms,
            "M8 FullSession",
            f"c{term.node_id} fences b{broker_id} after {silent_ms:.0f} ms; its session is {session_ms:.0f} ms",
        )

    def led_away(self, broker_id: NodeId, broker_epoch: int, end: Offset) -> None:
        """Notes that a batch ending at `end` gave the broker's leaderships to others, without the broker's request."""
        if (broker_id, broker_epoch) in self._wishes or broker_id in self._named:
            return
        self._coverage["leaders moved when a session ended"] += 1
        self._led_away[broker_id, broker_epoch] = end
        self._check_lease(self._brokers[broker_id])

    def led_away_at(self, broker_id: NodeId, broker_epoch: int | None) -> Offset:
        """Where the leaderships of the broker's process were given to others, because it was silent; 0: nowhere."""
        return 0 if broker_epoch is None else self._led_away.get((broker_id, broker_epoch), 0)

    def _check_lease(self, broker: "SimBroker") -> None:
        """No broker serves partitions already led by others without knowing it."""
        session, plane = broker.session, broker.dying.data_plane
        if plane is not None and broker.dying.serves():
            end = self._led_away.get((broker.broker_id, plane.broker_epoch), 0)
            hold(
                plane.offset >= end,
                "L Lease",
                f"{broker.name} lost its leaders at {end}, and the data plane beside it still serves",
            )
        if not broker.is_up or session.broker_epoch is None:
            return
        end = self._led_away.get((broker.broker_id, session.broker_epoch), 0)
        hold(
            session.position.offset >= end or not broker.may_serve(),
            "L Lease",
            f"{broker.name}, silent for a session, lost its leaders at {end}; at {session.position.offset} it still serves",
        )

    @staticmethod
    def _term(controller: "SimController") -> _Term:
        return _Term(controller.node_id, controller.boot, controller.core.epoch)
