"""The laws of eligible leader replicas (M13; KIP-966), as far as metadata can show them.

The observer knows for each partition which replicas are *safe*: they have every record below the high watermark.

    a leader with a large enough ISR     the high watermark may move: the members of the ISR are safe, and nobody else
    a smaller ISR, or no leader          the high watermark stands: safe replicas stay safe, and new members of the ISR are too
    a process that follows a crash       its broker may have lost the end of its logs: it is safe nowhere
                                         (a broker without a data plane has nothing to lose)

*Large enough* is counted with `min.insync.replicas` and the number of replicas. The observer knows from the brokers themselves
which process ended with a controlled shutdown.

A change of `min.insync.replicas` ends the ELRs of its topics, and the end of the feature ends all ELRs. No image has the change
beside an ELR from before it.

Example: 1. orders-0 has the ISR (101, 102), and `min.insync.replicas` is 2. 2. Broker 102 is fenced: 101 and 102 are safe.
3. Broker 102 starts again after a power cut. A controller that leaves broker 102 in the ELR breaks M13 CrashedIsNotSafe.
"""

from metadata_log.format.ids import NO_LEADER, NodeId, Uuid
from metadata_log.format.partition_state import ADDING, ELR, ISR, LEADER, REMOVING, REPLICAS, PartitionState
from metadata_log.format.records import (
    NO_DATA_PLANE,
    RECOVERING,
    Config,
    Partition,
    PartitionChange,
    RegisterBroker,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.election_rules import MIN_ISR_KEY, keeps_elr, min_isr_of
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold

Place = tuple[Uuid, int]


class EligibleLaws:
    """Checks every committed batch, in order."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._safe: dict[Place, set[NodeId]] = {}
        self._clean_ends: set[tuple[NodeId, int]] = set()
        """Broker id and broker epoch of each process that ended with a controlled shutdown."""

    def ended_cleanly(self, broker_id: NodeId, broker_epoch: int) -> None:
        """Notes that a process has ended with a controlled shutdown."""
        self._clean_ends.add((broker_id, broker_epoch))

    def committed(self, step: Step) -> None:
        """Checks a newly committed batch."""
        if not keeps_elr(step.after):
            if keeps_elr(step.before):
                self._check_cleared(step, "")
            self._safe.clear()
            return
        places: set[Place] = set()
        unclean: set[Place] = set()
        for record in step.records:
            match record:
                case RegisterBroker():
                    self._on_register(record, step)
                case PartitionChange(topic_id, partition) | Partition(topic_id, partition):
                    places.add((topic_id, partition))
                    if record.leader_recovery_state == RECOVERING:
                        unclean.add((topic_id, partition))
                case Config(_, name, key) if key == MIN_ISR_KEY:
                    self._coverage["min.insync.replicas changed"] += 1
                    places.update(self._safe)
                    self._check_cleared(step, name)
                case _:
                    pass
        for place in sorted(places):
            self._check(step, place, is_unclean=place in unclean)

    def _on_register(self, record: RegisterBroker, step: Step) -> None:
        """A new process of a broker, after a crash of the last one: the broker is in no ISR and in no ELR."""
        broker_id = record.broker_id
        before = step.before.brokers.get(broker_id)
        is_new = before is not None and before.incarnation_id != record.incarnation_id
        if before is not None and before.data_plane == record.data_plane == NO_DATA_PLANE:
            return  # nobody has written records that its replicas could have lost
        if before is None or not is_new or (broker_id, before.broker_epoch) in self._clean_ends:
            self._coverage["broker registered after a clean shutdown"] += is_new
            return
        self._coverage["broker registered after a crash"] += 1
        for safe in self._safe.values():
            safe.discard(broker_id)
        for topic_id in step.after.topics_of_broker(broker_id):
            topic = step.after.topics_by_id[topic_id]
            for partition in topic.partitions_on(broker_id):
                state = topic.state(partition)
                assert state is not None
                kept = broker_id in state[ISR] or broker_id in state[ELR]
                text = f"{topic.name}-{partition}: b{broker_id} crashed, and is in {state[ISR]} or {state[ELR]}"
                hold(not kept, "M13 CrashedIsNotSafe", text)

    def _check_cleared(self, step: Step, name: str) -> None:
        """No partition of the topic has an ELR; the empty name stands for all topics. A partition without a leader keeps its safe
        replicas, as members of the ISR."""
        for topic in step.after.topics():
            if name not in ("", topic.name):
                continue
            before = step.before.topic_by_id(topic.topic_id)
            for partition, state in enumerate(topic.states()):
                where = f"{topic.name}-{partition} at {step.batch.end_offset}"
                hold(not state[ELR], "M13 ElrCleared", f"{where}: ELR {state[ELR]} is from before the change")
                old = None if before is None else before.state(partition)
                if old is not None and old[ELR]:
                    self._coverage["ELR cleared by a config or feature"] += 1
                    kept = old[LEADER] != NO_LEADER or {*old[ISR], *old[ELR]}.issubset(state[ISR])
                    hold(kept, "M13 SafeKept", f"{where}: had {old[ISR]} and {old[ELR]}; the ISR is {state[ISR]}")

    def _check(self, step: Step, place: Place, *, is_unclean: bool) -> None:
        before, after = _state(step.before, place), _state(step.after, place)
        if after is None:
            self._safe.pop(place, None)
            return
        topic = step.after.topics_by_id[place[0]]
        where = f"{topic.name}-{place[1]} at {step.batch.end_offset}"
        isr, elr, leader = after[ISR], after[ELR], after[LEADER]
        is_large_enough = len(isr) >= min(min_isr_of(step.after, topic.name), len(after[REPLICAS]))
        hold(set(isr).isdisjoint(elr), "M13 ElrApart", f"{where}: ISR {isr}, ELR {elr}")
        hold(not elr or not is_large_enough, "M13 ElrWhileSmall", f"{where}: ELR {elr} beside the ISR {isr}")
        safe = self._safe.get(place)
        if safe is None:
            safe = self._safe[place] = set(isr) if before is None else {*before[ISR], *before[ELR]}
        if is_unclean:
            safe = self._safe[place] = {leader}
        elif before is not None and leader not in (NO_LEADER, before[LEADER]):
            self._coverage["leader elected from the ELR"] += leader in before[ELR]
            is_reassigning = bool(before[ADDING] or before[REMOVING])
            is_proposed = before[LEADER] != NO_LEADER and {before[LEADER], leader} <= set(isr)
            hold(
                leader in safe or is_reassigning or is_proposed,
                "M13 SafeLeader",
                f"{where}: {leader} was elected cleanly; safe are {sorted(safe)}",
            )
        if leader != NO_LEADER and is_large_enough:
            safe = self._safe[place] = set(isr)
        safe.update(isr)
        hold(safe.issuperset(elr), "M13 ElrIsSafe", f"{where}: ELR {elr}; safe are {sorted(safe)}")


def _state(image: MetadataImage, place: Place) -> PartitionState | None:
    topic = image.topic_by_id(place[0])
    return None if topic is None else topic.state(place[1])
