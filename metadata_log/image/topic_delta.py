"""The effects of the records of topics and partitions on an image.

A topic under change has an editor, which keeps the states of its partitions until the topic is closed: millions of partitions
are replayed without a new topic for each. All other effects are in `broker_delta` and `delta`, which build on this class.
"""

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter

from metadata_log.format.ids import EPOCH_MAX, ZERO_UUID, NodeId, Offset, Uuid, uuid_text
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.partition_state import (
    LEADER_EPOCH,
    PARTITION_EPOCH,
    REPLICAS,
    NodeIds,
    PartitionState,
    Unsound,
    intern_state,
    merge,
    misfit,
    raised,
    state_of,
    surely_sound_states,
    without_elr,
)
from metadata_log.format.records import (
    TOPIC_RESOURCE,
    ClearElr,
    EpochFloor,
    EpochsRaised,
    Partition,
    PartitionChange,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from metadata_log.image.image_editor import DeltaKind, Edits, ImageEditor, Law, Misfit
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicEditor


class TopicDelta(ImageEditor):
    """Changes to the topics of one image. The registered brokers are needed to check replicas."""

    def __init__(self, image: MetadataImage, *, kind: DeltaKind = DeltaKind.STRICT) -> None:
        super().__init__(image, kind=kind)
        self._registered: set[NodeId] = set()
        """Brokers that `_check_registered` has found. Cleared when a broker is unregistered."""

    _topic_ids: Edits[str, Uuid] = Edits("topic_ids")
    _brokers: Edits[NodeId, RegisterBroker] = Edits("brokers")

    # --- for tools that remember the effects of changes ---

    def partition_count(self, topic_id: Uuid) -> int:
        """Return how many partitions a topic has after the records so far; 0 if there is no such topic."""
        topic = self._open.get(topic_id) or self._topics.get(topic_id)
        return 0 if topic is None else topic.partition_count

    def partition_state(self, topic_id: Uuid, partition: int) -> PartitionState | None:
        """Return a partition's state after the records so far; None if there is no such partition."""
        topic = self._open.get(topic_id) or self._topics.get(topic_id)
        return None if topic is None else topic.state(partition)

    def put_state(self, topic_id: Uuid, partition: int, state: PartitionState) -> None:
        """Give an existing partition a state that is known to be the effect of the next changes of this partition."""
        editor = self._open_topic(topic_id)
        old = editor.state(partition)
        assert old is not None, (topic_id, partition)
        editor.change(partition, state, old)

    # --- the records ---

    def _topic(self, record: Topic, offset: Offset) -> None:
        if not record.name or record.topic_id == ZERO_UUID:
            raise Misfit(f"topic {record.name!r} with id {uuid_text(record.topic_id)}")
        if record.name in self._topic_ids:
            raise Misfit(f"topic {record.name!r} exists", Law.TOPIC_NAME)
        if record.topic_id in self._topics or record.topic_id in self._open:
            raise Misfit(f"topic id {uuid_text(record.topic_id)} is taken", Law.TOPIC_ID)
        if self._kind is DeltaKind.LOADING:
            # A snapshot has its topics one after the other. The previous topic is complete, so close its editor, which
            # needs more memory than the topic.
            for topic_id in [*self._open]:
                self._close_topic(topic_id)
        self._topic_ids[record.name] = record.topic_id
        self._open[record.topic_id] = editor = TopicEditor(record.name, record.topic_id, None)
        self._digest += editor.digest
        self._record_count += 1
        self.changed.topic_created(record.topic_id)

    def _remove_topic(self, record: RemoveTopic, offset: Offset) -> None:
        """Remove the topic with its configs and labels."""
        if self._kind is DeltaKind.FOLDING and self._topic_ids.get(record.name) is None:
            self._drop_settings(record.name)
            return
        if self._topic_ids.get(record.name) != record.topic_id:
            raise Misfit(f"there is no topic {record.name!r} with id {uuid_text(record.topic_id)}", Law.NOTHING)
        self._open_topic(record.topic_id)
        self._close_topic(record.topic_id)
        topic = self._topics.get(record.topic_id)
        assert topic is not None
        del self._topics[record.topic_id]
        del self._topic_ids[record.name]
        self._digest -= topic.digest
        self._record_count -= 1 + topic.partition_count
        self._partition_count -= topic.partition_count
        self._drop_settings(record.name)
        self.changed.topic_deleted(record.topic_id, record.name)

    def _drop_settings(self, name: str) -> None:
        self._drop_configs((TOPIC_RESOURCE, name))
        self._drop_labels((TOPIC_RESOURCE, name))

    def _check_registered(self, broker_ids: NodeIds, known: NodeIds) -> None:
        """Check that brokers which a partition newly names are registered (M7). A broker named before may have been
        unregistered since.
        """
        if self._kind is not DeltaKind.STRICT:
            return
        for broker_id in broker_ids:
            if broker_id not in known and broker_id not in self._registered:
                if broker_id not in self._brokers:
                    raise Misfit(f"broker {broker_id} is not registered", Law.BROKER)
                self._registered.add(broker_id)

    def _partition(self, record: Partition, offset: Offset) -> None:
        # The topic is nearly always open: this saves a call for each of millions of partitions.
        editor = self._open.get(record.topic_id) or self._open_topic(record.topic_id)
        if record.partition != editor.partition_count:
            raise _not_next(editor, record.partition)
        try:
            state = state_of(record)
        except Unsound as e:
            raise Misfit(f"partition {editor.name}-{record.partition}: {e}", Law.PARTITION) from None
        if not self._registered.issuperset(state[REPLICAS]):
            self._check_registered(state[REPLICAS], ())
        editor.append(state)
        self._partition_count += 1
        self._record_count += 1

    def _new_partitions(self, records: Sequence[Partition]) -> bool:
        """Add partitions of one topic in one step: a third of the work of `_partition` for each. If one of them might not fit, do
        nothing and return False: `_partition` knows which one does not fit, and why.
        """
        topic_id = records[0].topic_id
        if topic_id not in self._open and topic_id not in self._topics:
            return False
        editor = self._open_topic(topic_id)
        first = editor.partition_count
        if [record.partition for record in records] != [*range(first, first + len(records))]:
            return False
        states = surely_sound_states(records)
        if states is None or not self._are_registered({*chain.from_iterable(map(itemgetter(REPLICAS), states))}):
            return False
        editor.append_all(states)
        self._partition_count += len(states)
        self._record_count += len(states)
        return True

    def _are_registered(self, broker_ids: set[NodeId]) -> bool:
        unseen = broker_ids - self._registered
        found = {broker_id for broker_id in unseen if broker_id in self._brokers}
        self._registered |= found
        return found == unseen

    def _extend(self, run: PartitionRun) -> None:
        """Add partitions of a snapshot."""
        assert self._kind is DeltaKind.LOADING, "the log has no runs"
        editor = self._open.get(run.topic_id) or self._open_topic(run.topic_id)
        if run.first != editor.partition_count:
            raise _not_next(editor, run.first)
        editor.extend(run)
        self._partition_count += len(run.states)
        self._record_count += len(run.states)

    def _change_partition(self, record: PartitionChange, offset: Offset) -> None:
        editor = self._open_topic(record.topic_id)
        old = editor.state(record.partition)
        if old is None:
            raise Misfit(f"topic {editor.name!r} has no partition {record.partition}", Law.NOTHING)
        editor.change(record.partition, self._state_after(old, record, editor.name), old)

    def _state_after(self, old: PartitionState, record: PartitionChange, topic: str) -> PartitionState:
        new = merge(old, record)
        why = misfit(new)
        if why is not None:
            raise Misfit(f"partition {topic}-{record.partition}: {why}", Law.PARTITION)
        if record.replicas is not None:
            self._check_registered(new[REPLICAS], old[REPLICAS])
        return new

    def _raise_epochs(self, record: EpochsRaised, offset: Offset) -> None:
        editor = self._open_topic(record.topic_id)
        end = record.first + record.partition_count
        if not 0 <= record.first < end <= editor.partition_count or record.by < 1:
            raise Misfit(f"{record} does not fit topic {editor.name!r}, which has {editor.partition_count} partitions")
        steps = []
        for partition in range(record.first, end):
            old = editor.state(partition)
            assert old is not None
            new = raised(old, record.by)
            if max(new[LEADER_EPOCH], new[PARTITION_EPOCH]) > EPOCH_MAX:
                raise Misfit(
                    f"partition {editor.name}-{partition}: {record.by} more epochs, and {EPOCH_MAX} is the last"
                )
            steps.append((partition, intern_state(new), old))
        for step in steps:
            editor.change(*step)

    def _epoch_floor(self, record: EpochFloor, offset: Offset) -> None:
        old = self._single("epoch_floor")
        if not 0 < record.floor <= EPOCH_MAX or record.generation < 1:
            raise Misfit(f"{record}: the floor is from 1 to {EPOCH_MAX}, the generation at least 1")
        if old is not None and (record.generation <= old.generation or record.floor <= old.floor):
            raise Misfit(f"{record} is not above the one before: {old}", Law.BACKWARDS)
        self._put_single("epoch_floor", record)
        self.changed.others = True

    def _clear_elr(self, record: ClearElr, offset: Offset) -> None:
        """Clear eligible leader replicas, as release 0.1.0 does. Only partitions that have some are changed."""
        if record.topic_id is not None:
            topic_ids = [record.topic_id]
        elif record.topic_name is not None:
            topic_id = self._topic_ids.get(record.topic_name)
            if topic_id is None and self._kind is not DeltaKind.FOLDING:
                raise Misfit(f"there is no topic {record.topic_name!r}", Law.NOTHING)
            topic_ids = [] if topic_id is None else [topic_id]
        else:
            topic_ids = [topic.topic_id for topic in self.image.topics_by_id.unordered_values()]
            topic_ids = [each for each in {*topic_ids, *self._open} if each in self._topics or each in self._open]
        for topic_id in topic_ids:
            editor = self._open_topic(topic_id)
            for partition in range(editor.partition_count):
                old = editor.state(partition)
                assert old is not None
                new = without_elr(old)
                if new is not old:
                    editor.change(partition, intern_state(new), old)


def _not_next(editor: TopicEditor, partition: int) -> Misfit:
    return Misfit(
        f"partition {partition} of topic {editor.name!r} is not the next; the topic has {editor.partition_count}"
    )
