"""Runs: partitions of one topic that follow each other, in columns. Snapshots have runs instead of single partitions.

A snapshot of a large cluster consists almost only of partitions, and a node answers nothing before the last of them is loaded.
Example, a snapshot with 2,000,000 partitions in 20,000 topics:
  1. topic A has the partitions 0 to 99, and each has three replicas;
  2. the snapshot has one `PartitionColumns` record for these partitions: a column of 300 replicas, one of 100 leaders, and no
     bytes at all for ISRs that equal the replicas, epochs that are zero, and other fields that are empty;
  3. a reader makes 100 states of the columns in one step, and checks columns instead of partitions.
So a partition takes 9 bytes instead of 60, and a tenth of the time.

*A rule says where a run ends*, so that all nodes write the same bytes: a run has as many partitions as possible, at most
`RUN_PARTITIONS_MAX`, and at most `RUN_IDS_MAX` replicas and last known leaders. A single partition may have more.

*The canonical records stay those of the partitions.* A run has the sum of their hashes, so that a node need not compute the
hashes of millions of partitions when it starts. The reader that verifies a whole snapshot computes the sum, and compares.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import contains
from typing import Any, Final, NamedTuple, cast

from metadata_log.format.codec import ARRAY_ITEMS_MAX
from metadata_log.format.columns import ALL_ZERO, pack_lists, pack_numbers, unpack_lists, unpack_numbers
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Uuid
from metadata_log.format.partition_state import (
    LAST_KNOWN_ELR,
    REPLICAS,
    NodeIds,
    PartitionState,
    are_sound_replicas,
    misfit,
    partition_of,
    shared_directories,
    shared_ids,
    shared_lists,
    shared_states,
    shared_uuids,
)
from metadata_log.format.records import ListColumn, Partition, PartitionColumns

RUN_PARTITIONS_MAX: Final = 1_000
"""Maximum number of partitions in a run."""
RUN_IDS_MAX: Final = 5_000
"""Maximum number of replicas and last known leaders in a run with more than one partition."""
HASHES_BYTES: Final = 32
_LISTS: Final = 7
_NUMBERS: Final = 4
"""How many columns of lists and of numbers a record has."""
NO_IDS: Final = ListColumn(b"", b"")
"""The column of empty lists; as the column of ISRs: each ISR equals the replicas."""


class PartitionRun(NamedTuple):
    """The partitions `first`, `first + 1`, ... of one topic."""

    topic_id: Uuid
    first: int
    states: Sequence[PartitionState]
    hashes: int
    """The sum of the hashes of the records (`metadata_log.image.digest`), modulo 2^256."""

    def records(self) -> Iterator[Partition]:
        """Make the canonical records."""
        for number, state in enumerate(self.states, self.first):
            yield partition_of(self.topic_id, number, state)


def run_length(states: Sequence[PartitionState]) -> int:
    """Return how many of the states, from the first on, are one run."""
    longest = states[:RUN_PARTITIONS_MAX]
    ids = 0
    for length, state in enumerate(longest):
        ids += len(state[REPLICAS]) + len(state[LAST_KNOWN_ELR])
        if ids > RUN_IDS_MAX:
            return max(1, length)
    return len(longest)


def columns_of(run: PartitionRun) -> PartitionColumns:
    """Return the record of the run."""
    replicas, isr, removing, adding, leader, recovery, leader_epoch, partition_epoch, directories, elr, last_elr = zip(
        *run.states, strict=True
    )
    numbers: dict[Uuid, int] = {}
    for each in chain.from_iterable(directories):
        numbers.setdefault(each, len(numbers))
    isrs = NO_IDS if isr == replicas else pack_lists(isr)
    return PartitionColumns(
        run.topic_id,
        run.first,
        len(run.states),
        run.hashes.to_bytes(HASHES_BYTES, "big"),
        (
            pack_lists(replicas),
            isrs if isr == replicas or isrs.sizes else ListColumn(ALL_ZERO, b""),
            pack_lists(removing),
            pack_lists(adding),
            pack_lists(elr),
            pack_lists(last_elr),
            pack_lists([[numbers[each] for each in some] for some in directories]),
        ),
        (pack_numbers(leader), pack_numbers(recovery), pack_numbers(leader_epoch), pack_numbers(partition_epoch)),
        tuple(numbers),
    )


def run_of(record: PartitionColumns) -> PartitionRun:
    """Return the run in the record. Parts that are equal to parts of other partitions are shared with these.

    Raises:
        LogFormatError: the columns do not fit each other, or a partition cannot be in its state.
    """
    count = record.partition_count
    check_shape(record)
    replicas = _id_lists(record.lists[0], count)
    isr = replicas if record.lists[1] == NO_IDS else _id_lists(record.lists[1], count)
    removing, adding, elr, last_elr = (_id_lists(column, count) for column in record.lists[2:6])
    leader, *others = (unpack_numbers(column, count) for column in record.numbers)
    leaders = [*shared_ids(leader)]
    columns = (replicas, isr, removing, adding, leaders, *others, _directories(record, count), elr, last_elr)
    states = cast(list[PartitionState], [*zip(*columns, strict=True)])
    if not _surely_sound(record, columns):
        for number, state in enumerate(states, record.first):
            why = misfit(state)
            if why is not None:
                raise LogFormatError(f"partition {number}: {why}")
    if _repeats_itself(record, replicas):
        states = shared_states(states)
    return PartitionRun(record.topic_id, record.first, states, int.from_bytes(record.hashes, "big"))


def check_shape(record: PartitionColumns) -> None:
    """Check the numbers of partitions and of columns.

    Raises:
        LogFormatError: one of them is not possible.
    """
    count = record.partition_count
    if not 0 < count <= RUN_PARTITIONS_MAX or record.first < 0 or len(record.hashes) != HASHES_BYTES:
        raise LogFormatError(
            f"a run of {count} partitions from {record.first} with a hash of {len(record.hashes)} bytes"
        )
    if len(record.lists) != _LISTS or len(record.numbers) != _NUMBERS:
        raise LogFormatError(
            f"{len(record.lists)} and {len(record.numbers)} columns; {_LISTS} and {_NUMBERS} are expected"
        )


def _id_lists(column: ListColumn, count: int) -> list[NodeIds]:
    return (
        [()] * count if column == NO_IDS else shared_lists([*unpack_lists(column, count, ARRAY_ITEMS_MAX, shared_ids)])
    )


def _directories(record: PartitionColumns, count: int) -> Iterable[tuple[Uuid, ...]]:
    if record.lists[6] == NO_IDS:
        return repeat((), count)
    known = [*shared_uuids(record.directories)]
    lists = [*unpack_lists(record.lists[6], count, ARRAY_ITEMS_MAX)]
    if any(not 0 <= place < len(known) for place in set(chain.from_iterable(lists))):
        raise LogFormatError(f"a column of directories names a place outside the {len(known)} directories")
    return shared_directories([tuple(map(known.__getitem__, places)) for places in lists])


def _surely_sound(record: PartitionColumns, columns: tuple[Any, ...]) -> bool:
    """Return True if the columns show that each partition can be in its state: the usual case. `misfit` judges the others."""
    replicas, isr, _removing, _adding, leaders, _recovery, leader_epochs, partition_epochs, *_ = columns
    return (
        isr is replicas
        and all(column == NO_IDS for column in record.lists[2:6])
        and (record.lists[6] == NO_IDS or record.lists[6].sizes == record.lists[0].sizes)
        and not record.numbers[1]
        and min(leader_epochs) >= 0
        and min(partition_epochs) >= 0
        and all(map(contains, replicas, leaders))
        and are_sound_replicas(replicas)
    )


def _repeats_itself(record: PartitionColumns, replicas: Sequence[NodeIds]) -> bool:
    """Return True if some partitions are probably in one state: they are new, and on few brokers. In a cluster of a hundred
    brokers nearly all states differ, and looking for equal ones costs a third of the load.
    """
    is_new = not record.numbers[2] and not record.numbers[3]
    return is_new and 2 * len(set(map(id, replicas))) <= len(replicas) + 1
