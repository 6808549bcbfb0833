"""The laws of log directories (M18): no partition is led by a replica whose directory its broker does not have.

    in an online directory   the leader's recorded directory is in its broker's registration, in every image
    kept out                 a replica in an offline directory enters no ISR
    lost is not safe         with ELR, a replica in a directory that has left the registration is in no ISR and no ELR

A replica without a directory is online. The observer knows from the brokers which directories have ever failed.

Example: 1. Broker 101 leads orders-0 from directory A, and reports that A has failed. 2. A controller that takes A out of the
registration first, and moves the leadership later, breaks M18 InOnlineDirectory.
"""

from metadata_log.format.ids import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY, NodeId, Uuid
from metadata_log.format.partition_state import DIRECTORIES, ELR, ISR, LEADER, REPLICAS, PartitionState
from metadata_log.format.records import BrokerRegistrationChange, Partition, PartitionChange, RegisterBroker
from metadata_log.image.log_directories import offline_replicas
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.partitions.election_rules import keeps_elr
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold


class DirectoryLaws:
    """Checks every committed batch."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._failed: set[Uuid] = {LOST_DIRECTORY}

    def fails(self, directory: Uuid) -> None:
        """Notes that a directory has failed. Its broker may report that at any later time."""
        self._failed.add(directory)

    def may_be_lost(self, state: PartitionState, broker_id: NodeId) -> bool:
        """True if the broker's replica is in a directory that has failed once."""
        if not state[DIRECTORIES] or broker_id not in state[REPLICAS]:
            return False
        return state[DIRECTORIES][state[REPLICAS].index(broker_id)] in self._failed

    def committed(self, step: Step) -> None:
        """One more batch is committed."""
        for record in step.records:
            match record:
                case PartitionChange(topic_id, partition) | Partition(topic_id, partition):
                    self._coverage["replica assigned to a directory"] += bool(record.directories)
                    self._check(step, topic_id, partition)
                case RegisterBroker(broker_id):
                    self._check_all(step, broker_id)
                case BrokerRegistrationChange(broker_id) if record.log_dirs is not None:
                    self._coverage["log directory lost"] += 1
                    self._check_all(step, broker_id)
                    self._check_safe(step, broker_id)
                case _:
                    pass

    def _check_all(self, step: Step, broker_id: NodeId) -> None:
        for topic_id in step.after.topics_of_broker(broker_id):
            for partition in step.after.topics_by_id[topic_id].partitions_on(broker_id):
                self._check(step, topic_id, partition)

    def _check(self, step: Step, topic_id: Uuid, partition: int) -> None:
        before, after = _state(step.before, topic_id, partition), _state(step.after, topic_id, partition)
        if after is None or not after[DIRECTORIES]:
            return
        where = f"{step.after.topics_by_id[topic_id].name}-{partition} at {step.batch.end_offset}"
        offline = offline_replicas(step.after.brokers, after[REPLICAS], after[DIRECTORIES])
        self._coverage["replica in an offline directory"] += bool(offline)
        leader = after[LEADER]
        text = f"{where} is led by {leader}; its directories are {after[DIRECTORIES]}"
        hold(leader == NO_LEADER or leader not in offline, "M18 InOnlineDirectory", text)
        if before is not None:
            entered = set(after[ISR]) - {*before[ISR], *before[ELR]}
            hold(
                entered.isdisjoint(offline), "M18 KeptOut", f"{where}: {entered} entered the ISR; offline are {offline}"
            )

    def _check_safe(self, step: Step, broker_id: NodeId) -> None:
        """A directory has left the registration."""
        if not keeps_elr(step.after):
            return
        kept = {UNASSIGNED_DIRECTORY, *step.after.brokers[broker_id].log_dirs}
        for topic_id in step.after.topics_of_broker(broker_id):
            topic = step.after.topics_by_id[topic_id]
            for partition in topic.partitions_on(broker_id):
                state = topic.state(partition)
                assert state is not None
                if state[DIRECTORIES] and state[DIRECTORIES][state[REPLICAS].index(broker_id)] not in kept:
                    is_out = broker_id not in state[ISR] and broker_id not in state[ELR]
                    text = f"{topic.name}-{partition}: b{broker_id} has lost the replica, and is in {state[ISR]} or {state[ELR]}"
                    hold(is_out, "M18 LostIsNotSafe", text)


def _state(image: MetadataImage, topic_id: Uuid, partition: int) -> PartitionState | None:
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.state(partition)
