"""One topic of an image: its partitions in chunks, and an index of its brokers.

    chunks         ((state 0 .. state 63), (state 64 .. state 127), ...)      a change copies one chunk and this tuple;
                   after a load on a broker the states of a chunk may be packed (`packed_chunk`)
    index          an array: the brokers that hold replicas, ascending, and then how many each of them holds. A topic whose
                   states were loaded packed has none: its replicas are searched
    reassigning    the partitions in reassignment, ascending: nearly always none
    digest         the share of topic and partitions in the image's digest, so that deleting a topic is one subtraction

The arrays of all topics are the index from broker to topics. Example: to find the topics on broker 7, the
image does a binary search for 7 in the array of each topic. The index costs 8 bytes for each pair of topic and broker;
a dict from broker to topics would cost over 100 bytes a partition in a cluster of 1,000 brokers.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Final, TypeAlias, cast

from metadata_log.format.ids import NodeId, Uuid
from metadata_log.format.packed_states import PackedStates
from metadata_log.format.partition_runs import RUN_PARTITIONS_MAX, PartitionRun, run_length
from metadata_log.format.partition_state import (
    ADDING,
    REMOVING,
    REPLICAS,
    NodeIds,
    PartitionState,
    misfit,
    partition_of,
)
from metadata_log.format.records import MetadataRecord, Partition, Topic
from metadata_log.image.digest import MODULUS, partition_hash, partitions_hash, record_hash
from metadata_log.image.packed_chunk import ChunkEdit, PackedChunk

CHUNK_PARTITIONS: Final = 64
"""How many partitions a chunk has. Copying 64 references costs 0.3 us; with smaller chunks, copying the directory of a
large topic would cost more."""

Chunk: TypeAlias = tuple[PartitionState, ...] | PackedChunk


def _counted(replicas: Iterable[NodeIds]) -> dict[NodeId, int]:
    """Return how many of the replicas each broker holds."""
    return Counter(chain.from_iterable(replicas))


def _index_of(counts: Mapping[NodeId, int]) -> "array[int]":
    """Return the index. A broker whose last replica has moved away may have the count 0."""
    ids = sorted(counts if all(counts.values()) else [broker_id for broker_id, count in counts.items() if count])
    return array("i", [*ids, *map(counts.__getitem__, ids)])


class TopicImage:
    """One topic, immutable. Made by `TopicEditor`."""

    __slots__ = (
        "chunks",
        "digest",
        "index",
        "name",
        "partition_count",
        "reassigning",
        "topic_id",
    )

    def __init__(
        self,
        name: str,
        topic_id: Uuid,
        partition_count: int,
        chunks: tuple[Chunk, ...],
        index: "array[int] | None",
        digest: int,
        reassigning: tuple[int, ...],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count
        self.chunks = chunks
        self.index = index
        self.digest = digest
        self.reassigning = reassigning

    def state(self, partition: int) -> PartitionState | None:
        """Return the partition's state. Faster than `partition` for a reader that needs one or two fields."""
        if not 0 <= partition < self.partition_count:
            return None
        return self.chunks[partition // CHUNK_PARTITIONS][partition % CHUNK_PARTITIONS]

    def partition(self, partition: int) -> Partition | None:
        """Return the canonical record of the partition; None if the number does not exist."""
        state = self.state(partition)
        return None if state is None else partition_of(self.topic_id, partition, state)

    def states(self) -> Iterator[PartitionState]:
        """Return the states of partitions 0, 1, 2 ..."""
        for chunk in self.chunks:
            yield from chunk

    def partitions(self) -> Iterator[Partition]:
        """Return the canonical records of partitions 0, 1, 2 ..."""
        topic_id = self.topic_id
        for number, state in enumerate(self.states()):
            yield partition_of(topic_id, number, state)

    def runs(self) -> Iterator[PartitionRun]:
        """Return the partitions in runs, as a snapshot has them."""
        return runs_of(self.topic_id, self.states())

    def replica_counts(self) -> dict[NodeId, int]:
        """Return the brokers that hold replicas, ascending, each with the number of its replicas."""
        index = self.index
        if index is None:
            index = _index_of(_counted(map(itemgetter(REPLICAS), self.states())))
        half = len(index) // 2
        return dict(zip(index[:half], index[half:], strict=True))

    def has_replica_on(self, broker_id: NodeId) -> bool:
        """Return True if any partition names the broker as a replica."""
        index = self.index
        if index is None:
            return self._find(broker_id)
        half = len(index) // 2
        place = bisect_left(index, broker_id, 0, half)
        return place < half and index[place] == broker_id

    def _find(self, broker_id: NodeId) -> bool:
        """Search the replicas, each packed run once for all its chunks: a walk asks thousands of topics at once."""
        run: PackedStates | None = None
        may_find = False
        for chunk in self.chunks:
            if not isinstance(chunk, PackedChunk):
                if any(broker_id in state[REPLICAS] for state in chunk):
                    return True
                continue
            if chunk.packed is not run:
                run = chunk.packed
                may_find = run.may_have_replica_on(broker_id)
            if (may_find or chunk.changed) and next(chunk.places_on(broker_id), None) is not None:
                return True
        return False

    def partitions_on(self, broker_id: NodeId) -> Iterator[int]:
        """Return the numbers of the partitions that name the broker as a replica, ascending."""
        if self.index is not None and not self.has_replica_on(broker_id):
            return
        for first, chunk in zip(range(0, self.partition_count, CHUNK_PARTITIONS), self.chunks, strict=True):
            if isinstance(chunk, PackedChunk):
                yield from map(first.__add__, chunk.places_on(broker_id))
            else:
                yield from [at for at, state in enumerate(chunk, first) if broker_id in state[REPLICAS]]

    @property
    def record(self) -> Topic:
        """The canonical record of the topic itself."""
        return Topic(self.name, self.topic_id)

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {self.partition_count} partitions)"


def runs_of(topic_id: Uuid, states: Iterable[PartitionState], first: int = 0) -> Iterator[PartitionRun]:
    """Return all partitions of a topic, or those from `first` on, in runs.

    The sums of the hashes are computed from these states, and not from the digest that the image keeps. Example: a bit of
    the memory flips in the leader of partition 7. The sums differ from the image's digest, and everybody refuses the file.
    """
    rest, waiting = iter(states), list[PartitionState]()
    while True:
        waiting += islice(rest, RUN_PARTITIONS_MAX - len(waiting))
        if not waiting:
            return
        length = run_length(waiting)
        run, waiting = waiting[:length], waiting[length:]
        yield PartitionRun(topic_id, first, run, partitions_hash(topic_id, first, run) % MODULUS)
        first += length


def in_runs(records: Iterable[MetadataRecord | PartitionRun]) -> Iterator[MetadataRecord | PartitionRun]:
    """Return canonical records in the same order, with the partitions of each topic in runs."""
    topic_id, first = b"", 0
    states: list[PartitionState] = []
    for record in records:
        is_partition = type(record) is Partition
        if states and not (is_partition and record[:2] == (topic_id, first + len(states))):
            yield from runs_of(topic_id, states, first)
            states = []
        if not is_partition:
            yield record
            continue
        if not states:
            topic_id, first = cast(Partition, record)[:2]
        states.append(cast(Partition, record)[2:])
    yield from runs_of(topic_id, states, first)


class TopicEditor:
    """Changes to one topic, or a new topic, collected until `finish`. Copies each chunk at most once."""

    __slots__ = (
        "_appended",
        "_chunks",
        "_hashed",
        "_is_counted",
        "_old_states",
        "_owned",
        "_reassigning",
        "_replica_moves",
        "base",
        "counted_digest",
        "digest",
        "name",
        "partition_count",
        "topic_id",
    )

    def __init__(self, name: str, topic_id: Uuid, base: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.base = base
        self.partition_count = 0 if base is None else base.partition_count
        self._hashed = self.partition_count
        """How many partitions `digest` includes; the others are in the last chunk."""
        self.digest = record_hash(Topic(name, topic_id)) if base is None else base.digest
        self.counted_digest = self.digest
        """The part of `digest` that the image's digest included when the topic was opened."""
        self._chunks: list[Chunk | list[PartitionState] | ChunkEdit] = [] if base is None else [*base.chunks]
        self._owned: list[int] = []
        """The places of the chunks that are under change. `finish` looks at these only: a large topic has 16,000 chunks."""
        self._old_states: dict[int, PartitionState] = {}
        """The state whose hash `digest` includes, for each changed partition. `finish` replaces these hashes."""
        self._reassigning = set(() if base is None else base.reassigning)
        self._replica_moves: dict[NodeId, int] = {}
        self._appended: dict[NodeIds, int] = {}
        """Replica lists of new partitions, each with its number of partitions. `_index` counts them per broker,
        once."""
        self._is_counted = base is None or base.index is not None
        """False if the states of some partitions were loaded packed: then the topic has no index."""

    def state(self, partition: int) -> PartitionState | None:
        """Return the partition's state after the changes so far."""
        if not 0 <= partition < self.partition_count:
            return None
        return self._chunks[partition // CHUNK_PARTITIONS][partition % CHUNK_PARTITIONS]

    def _own(self, index: int) -> list[PartitionState] | ChunkEdit:
        """Return a chunk that may be changed, but not extended."""
        chunk = self._chunks[index]
        if isinstance(chunk, list | ChunkEdit):
            return chunk
        self._owned.append(index)
        owned = self._chunks[index] = ChunkEdit(chunk) if isinstance(chunk, PackedChunk) else list(chunk)
        return owned

    def _own_last(self) -> list[PartitionState]:
        """Return the last chunk, which may be changed and extended."""
        chunk = self._own(len(self._chunks) - 1)
        if isinstance(chunk, list):
            return chunk
        unpacked = self._chunks[-1] = list(chunk.finish())
        return unpacked

    def _count_replicas(self, replicas: NodeIds, step: int) -> None:
        moves = self._replica_moves
        for broker_id in replicas:
            moves[broker_id] = moves.get(broker_id, 0) + step

    def append(self, state: PartitionState) -> None:
        """Add the next partition. A full chunk is hashed at once, so that `finish` is short even after millions of
        partitions.
        """
        number = self.partition_count
        if number % CHUNK_PARTITIONS == 0:
            self._hash_appended()
            self._owned.append(len(self._chunks))
            self._chunks.append([])
        chunk = self._chunks[-1]
        (chunk if isinstance(chunk, list) else self._own_last()).append(state)
        self.partition_count = number + 1
        replicas = state[REPLICAS]
        self._appended[replicas] = self._appended.get(replicas, 0) + 1

    def append_all(self, states: Sequence[PartitionState]) -> None:
        """Add the next partitions, as `append` does one by one."""
        room = -self.partition_count % CHUNK_PARTITIONS
        if room:
            self._own_last().extend(states[:room])
            self.partition_count += len(states[:room])
        for start in range(room, len(states), CHUNK_PARTITIONS):
            self._hash_appended()
            chunk = [*states[start : start + CHUNK_PARTITIONS]]
            self._owned.append(len(self._chunks))
            self._chunks.append(chunk)
            self.partition_count += len(chunk)
        self._count_new(states)

    def _count_new(self, states: Iterable[PartitionState]) -> None:
        for broker_id, count in _counted(map(itemgetter(REPLICAS), states)).items():
            self._replica_moves[broker_id] = self._replica_moves.get(broker_id, 0) + count

    def extend(self, run: PartitionRun) -> None:
        """Add the next partitions, with their hashes."""
        self._hash_appended()
        states = run.states
        room = -self.partition_count % CHUNK_PARTITIONS
        if room:
            self._own_last().extend(states[:room])
        packed = states if isinstance(states, PackedStates) else None
        for start in range(room, len(states), CHUNK_PARTITIONS):
            stop = min(start + CHUNK_PARTITIONS, len(states))
            self._chunks.append(tuple(states[start:stop]) if packed is None else PackedChunk(packed, start, stop))
        self.partition_count += len(states)
        self._hashed = self.partition_count
        if packed is None or packed.may_move:
            moving = [at for at, state in enumerate(states, run.first) if state[REMOVING] or state[ADDING]]
            self._reassigning.update(moving)
        self.digest += run.hashes
        if packed is None:
            self._count_new(states)
        else:
            self._is_counted = False

    def _hash_appended(self) -> None:
        first, self._hashed = self._hashed, self.partition_count
        if first < self._hashed:
            assert first // CHUNK_PARTITIONS == len(self._chunks) - 1
            last = self._chunks[-1]
            assert isinstance(last, list), "a chunk with new partitions is not packed"
            appended = last[first % CHUNK_PARTITIONS :]
            self.digest += partitions_hash(self.topic_id, first, appended)
            self._reassigning.update(
                [at for at, state in enumerate(appended, first) if state[REMOVING] or state[ADDING]]
            )

    def change(self, partition: int, state: PartitionState, old: PartitionState) -> None:
        """Replace `old`, the present state of an existing partition, by `state`."""
        if partition >= self._hashed:
            self._hash_appended()
        chunk = self._own(partition // CHUNK_PARTITIONS)
        place = partition % CHUNK_PARTITIONS
        self._old_states.setdefault(partition, old)
        chunk[place] = state
        if state[REMOVING] or state[ADDING]:
            self._reassigning.add(partition)
        else:
            self._reassigning.discard(partition)
        if old[REPLICAS] is not state[REPLICAS]:
            self._count_replicas(old[REPLICAS], -1)
            self._count_replicas(state[REPLICAS], 1)

    def changed_partitions(self) -> set[int]:
        """Return the numbers of the partitions that were changed or are new."""
        changed = set(self._old_states)
        if self.base is None or self.partition_count > self.base.partition_count:
            changed.update(range(0 if self.base is None else self.base.partition_count, self.partition_count))
        return changed

    def _index(self) -> "array[int] | None":
        """Return the index after the changes; the base's own array if no replica moved."""
        base, moves = self.base, self._replica_moves
        if not self._is_counted:
            return None
        for replicas, count in self._appended.items():
            self._count_replicas(replicas, count)
        self._appended.clear()
        if base is None:
            return _index_of(moves)
        if not moves:
            return base.index
        counts = base.replica_counts()
        for broker_id, step in moves.items():
            counts[broker_id] = counts.get(broker_id, 0) + step
        return _index_of(counts)

    def finish(self) -> TopicImage:
        """Return the topic after the changes. The editor is not usable afterwards."""
        self._hash_appended()
        digest = self.digest
        topic_id = self.topic_id
        for number, old in self._old_states.items():
            state = self.state(number)
            assert state is not None
            if state != old:
                digest += partition_hash(topic_id, number, state)
                digest -= partition_hash(topic_id, number, old)
        for index in self._owned:
            chunk = self._chunks[index]
            self._chunks[index] = chunk.finish() if isinstance(chunk, ChunkEdit) else tuple(chunk)
        chunks = cast(tuple[Chunk, ...], tuple(self._chunks))
        return TopicImage(
            self.name,
            topic_id,
            self.partition_count,
            chunks,
            self._index(),
            digest % MODULUS,
            tuple(sorted(self._reassigning)),
        )


def check_topic(topic: TopicImage) -> None:
    """Recompute and assert all invariants of one topic."""
    states = list(topic.states())
    assert len(states) == topic.partition_count, topic
    assert all(len(chunk) == CHUNK_PARTITIONS for chunk in topic.chunks[:-1]), topic
    assert all(0 < len(chunk) <= CHUNK_PARTITIONS for chunk in topic.chunks), topic
    counts: dict[NodeId, int] = {}
    digest = record_hash(Topic(topic.name, topic.topic_id))
    reassigning = tuple([number for number, state in enumerate(states) if state[REMOVING] or state[ADDING]])
    assert reassigning == topic.reassigning, topic
    for number, state in enumerate(states):
        why = misfit(state)
        assert why is None, (topic, number, why)
        for broker_id in state[REPLICAS]:
            counts[broker_id] = counts.get(broker_id, 0) + 1
        digest += record_hash(partition_of(topic.topic_id, number, state))
    assert sorted(counts.items()) == [*topic.replica_counts().items()], topic
    assert (digest - topic.digest) % MODULUS == 0, topic
