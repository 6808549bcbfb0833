"""The state of one partition in the image: a `Partition` record without topic id and number.

Two million partitions fit into memory because equal values are one object. Example: partition 0 of topic A and
partition 7 of topic B both have the replicas (1, 2, 3), the ISR (1, 2, 3) and leader 1. The image stores this state
once, and inside it the tuple (1, 2, 3) once. `intern_state` does this with pools of limited size. A full pool is
emptied: this costs memory, but never gives a wrong result.

States are plain tuples of plain tuples, numbers and bytes. Python's garbage collector stops visiting such tuples after
two visits; it would visit a `NamedTuple` for ever.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import contains
from typing import Any, Final, TypeAlias, TypeVar, cast

from metadata_log.format.ids import EPOCH_MAX, NO_LEADER, NODE_ID_MAX, ZERO_UUID, NodeId, Uuid
from metadata_log.format.records import RECOVERED, RECOVERING, Partition, PartitionChange

NodeIds: TypeAlias = tuple[NodeId, ...]

PartitionState: TypeAlias = tuple[
    NodeIds, NodeIds, NodeIds, NodeIds, NodeId, int, int, int, tuple[Uuid, ...], NodeIds, NodeIds
]
"""replicas, isr, removing, adding, leader, recovery state, leader epoch, partition epoch, directories, elr, last known
elr."""

REPLICAS: Final = 0
ISR: Final = 1
REMOVING: Final = 2
ADDING: Final = 3
LEADER: Final = 4
RECOVERY_STATE: Final = 5
LEADER_EPOCH: Final = 6
PARTITION_EPOCH: Final = 7
DIRECTORIES: Final = 8
ELR: Final = 9
LAST_KNOWN_ELR: Final = 10
"""Positions in a state of the fields that code reads one by one."""

T = TypeVar("T")
U = TypeVar("U")

_POOL_MAX: Final = 1 << 16
_lists: dict[NodeIds, NodeIds] = {}
_directories: dict[tuple[Uuid, ...], tuple[Uuid, ...]] = {}
_uuids: dict[Uuid, Uuid] = {}
_node_ids: dict[NodeId, NodeId] = {}
_states: dict[PartitionState, PartitionState] = {}
_sound: dict[PartitionState, PartitionState] = {}
"""The interned states that `misfit` has accepted."""


def _interned(pool: dict[T, T], value: T) -> T:
    """Return the first object of the pool that equals `value`. Thread-safe: `setdefault` is one step of the
    interpreter.
    """
    return _with_room(pool).setdefault(value, value)


def _intern_ids(ids: NodeIds) -> NodeIds:
    """Intern a list and the numbers in it: Python shares only numbers below 257, and three others cost 96 bytes a
    partition.
    """
    known = _lists.get(ids)
    if known is not None:
        return known
    return _interned(_lists, tuple(shared_ids(ids)))


def shared_ids(ids: Sequence[NodeId]) -> Iterable[NodeId]:
    """Return equal ids, each of them one object for all partitions."""
    return map(_with_room(_node_ids).setdefault, ids, ids)


def shared_lists(lists: Sequence[NodeIds]) -> list[NodeIds]:
    """Return equal lists, each of them one object for all partitions. The ids are shared already."""
    return [*map(_with_room(_lists).setdefault, lists, lists)]


def shared_states(states: Sequence[PartitionState]) -> list[PartitionState]:
    """Return equal states, each of them one object for all partitions. The parts of the states are shared already."""
    return [*map(_with_room(_states).setdefault, states, states)]


def shared_uuids(uuids: Sequence[Uuid]) -> Iterable[Uuid]:
    """Return equal ids of directories, each of them one object for all partitions."""
    return map(_with_room(_uuids).setdefault, uuids, uuids)


def shared_directories(lists: Sequence[tuple[Uuid, ...]]) -> list[tuple[Uuid, ...]]:
    """Return equal lists of directories, each of them one object for all partitions. The ids are shared already."""
    return [*map(_with_room(_directories).setdefault, lists, lists)]


def are_sound_replicas(lists: Sequence[NodeIds]) -> bool:
    """Return True if each list can be the replicas of a partition: not empty, each id once, from 0 to NODE_ID_MAX."""
    sizes = [*map(len, lists)]
    if not all(sizes) or [*map(len, map(set, lists))] != sizes:
        return False
    return min(chain.from_iterable(lists)) >= 0 and max(chain.from_iterable(lists)) <= NODE_ID_MAX


def _with_room(pool: dict[T, U]) -> dict[T, U]:
    """Return the pool, emptied if it is full."""
    if len(pool) >= _POOL_MAX:
        pool.clear()
    return pool


def intern_directories(directories: tuple[Uuid, ...]) -> tuple[Uuid, ...]:
    known = _directories.get(directories)
    if known is not None:
        return known
    return _interned(_directories, tuple([_interned(_uuids, directory) for directory in directories]))


def intern_state(state: PartitionState) -> PartitionState:
    """Return an equal state made of shared parts."""
    known = _states.get(state)
    return _interned(_states, _with_shared_parts(state)) if known is None else known


def _with_shared_parts(state: PartitionState) -> PartitionState:
    replicas, isr, removing, adding, leader, recovery, leader_epoch, partition_epoch, directories, elr, last_elr = state
    replicas = _intern_ids(replicas)
    return (
        replicas,
        replicas if isr == replicas else _intern_ids(isr),
        _intern_ids(removing) if removing else (),
        _intern_ids(adding) if adding else (),
        _interned(_node_ids, leader),
        recovery,
        leader_epoch,
        partition_epoch,
        intern_directories(directories) if directories else (),
        _intern_ids(elr) if elr else (),
        _intern_ids(last_elr) if last_elr else (),
    )


class Unsound(Exception):
    """A partition cannot be in this state; the text is the result of `misfit`."""


def state_of(record: Partition) -> PartitionState:
    """Return the interned state of the record. Most new partitions have one of a few states, and each state is checked
    once.

    Raises:
        Unsound: see `misfit`.
    """
    fields = record[2:]
    known = _sound.get(fields)
    if known is not None:
        return known
    return _interned(_sound, sound_state(fields))


def surely_sound_states(records: Sequence[Partition]) -> list[PartitionState] | None:
    """Return the interned states of the records, if their columns show that each partition can be in its state: the usual case of
    new partitions. Otherwise return None: `state_of` judges them one by one.
    """
    columns: Any = zip(*records, strict=True)
    _, _, replicas, isr, removing, adding, leaders, recovery, leader_epochs, partition_epochs, *rest = columns
    directories, elr, last_elr = rest
    sizes = [*map(len, directories)]
    is_plain = (
        isr == replicas
        and not any(map(any, (removing, adding, elr, last_elr, recovery)))
        and 0 <= min(leader_epochs) <= max(leader_epochs) <= EPOCH_MAX
        and 0 <= min(partition_epochs) <= max(partition_epochs) <= EPOCH_MAX
        and all(map(contains, replicas, leaders))
        and (not any(sizes) or sizes == [*map(len, replicas)])
        and are_sound_replicas(replicas)
    )
    if not is_plain:
        return None
    shared = [*map(_intern_ids, replicas)]
    known = map(intern_directories, directories)
    columns = (shared, shared, removing, adding, shared_ids(leaders), recovery, leader_epochs, partition_epochs, known)
    states = [*zip(*columns, elr, last_elr, strict=True)]
    return [*map(_with_room(_sound).setdefault, states, states)]


def sound_state(fields: PartitionState) -> PartitionState:
    """Return an equal state made of shared parts. The state itself is not looked up in a pool: in a large cluster most states
    differ, and each look costs a hash of the whole state.

    Raises:
        Unsound: see `misfit`.
    """
    state = _with_shared_parts(fields)
    why = misfit(state)
    if why is not None:
        raise Unsound(why)
    return state


def partition_of(topic_id: Uuid, partition: int, state: PartitionState) -> Partition:
    """Return the canonical record of a partition."""
    return tuple.__new__(Partition, (topic_id, partition, *state))  # Partition(...) takes 1.5 times as long


def merge(state: PartitionState, change: PartitionChange) -> PartitionState:
    """Return the state after `change`: the partition epoch grows by one, and the leader epoch if `change` names a
    leader.

    The lists of the result are interned. The result itself is not, because its epochs are nearly always unique.

    If the replicas change without new directories, each replica keeps its directory, and a new replica has the zero id.
    """
    replicas, isr, removing, adding, leader, recovery, leader_epoch, partition_epoch, directories, elr, last_elr = state
    if change.replicas is not None:
        if directories and change.directories is None:
            known = dict(zip(replicas, directories, strict=True))
            directories = tuple(known.get(replica, ZERO_UUID) for replica in change.replicas)
        replicas = _intern_ids(change.replicas)
    if change.isr is not None:
        isr = replicas if change.isr == replicas else _intern_ids(change.isr)
    if change.directories is not None:
        directories = intern_directories(change.directories)
    if change.leader is not None:
        leader = _interned(_node_ids, change.leader)
        leader_epoch += 1
    return (
        replicas,
        isr,
        removing if change.removing_replicas is None else change.removing_replicas,
        adding if change.adding_replicas is None else change.adding_replicas,
        leader,
        recovery if change.leader_recovery_state is None else change.leader_recovery_state,
        leader_epoch,
        partition_epoch + 1,
        directories,
        elr if change.elr is None else change.elr,
        last_elr if change.last_known_elr is None else change.last_known_elr,
    )


def raised(state: PartitionState, by: int) -> PartitionState:
    """Return the state with both epochs larger by `by`: the effect of `EpochsRaised`."""
    return (*state[:LEADER_EPOCH], state[LEADER_EPOCH] + by, state[PARTITION_EPOCH] + by, *state[DIRECTORIES:])


def without_elr(state: PartitionState) -> PartitionState:
    """Return the state without eligible leader replicas: the effect of `ClearElr`. A state that has none is returned
    unchanged, with its epoch.
    """
    *before, partition_epoch, directories, elr, last_elr = state
    if not elr and not last_elr:
        return state
    return cast(PartitionState, (*before, partition_epoch + 1, directories, (), ()))


def misfit(state: PartitionState) -> str | None:
    """Return the reason why a partition cannot be in this state; None if it can."""
    replicas, isr, removing, adding, leader, recovery, leader_epoch, partition_epoch, directories, elr, last_elr = state
    members = set(replicas)
    if not replicas or len(members) != len(replicas) or min(replicas) < 0 or max(replicas) > NODE_ID_MAX:
        return f"replicas {replicas}: at least one, each once, from 0 to {NODE_ID_MAX}"
    if isr is not replicas and (len(set(isr)) != len(isr) or not members.issuperset(isr)):
        return f"isr {isr} is not a subset of replicas {replicas}"
    if leader != NO_LEADER and leader not in isr:
        return f"leader {leader} is not in isr {isr}"
    if recovery not in (RECOVERED, RECOVERING):
        return f"leader recovery state {recovery}"
    if leader_epoch < 0 or partition_epoch < 0:
        return f"leader epoch {leader_epoch}, partition epoch {partition_epoch}: neither may be negative"
    if leader_epoch > EPOCH_MAX or partition_epoch > EPOCH_MAX:
        return f"leader epoch {leader_epoch}, partition epoch {partition_epoch}: {EPOCH_MAX} is the last"
    if removing and not _is_part(removing, members):
        return f"removing {removing} is not a subset of replicas {replicas}"
    if adding and not _is_part(adding, members):
        return f"adding {adding} is not a subset of replicas {replicas}"
    if directories and len(directories) != len(replicas):
        return f"{len(directories)} directories for {len(replicas)} replicas"
    if elr and not (_is_part(elr, members) and set(elr).isdisjoint(isr)):
        return f"elr {elr} is not a subset of replicas {replicas} apart from isr {isr}"
    if last_elr and not 0 <= min(last_elr) <= max(last_elr) <= NODE_ID_MAX:
        return f"last known elr {last_elr}: ids from 0 to {NODE_ID_MAX}"
    return None


def _is_part(ids: NodeIds, members: set[NodeId]) -> bool:
    """Return True if each id is one of `members`, and is there once. Columns count on the second (`partition_runs`)."""
    return len(set(ids)) == len(ids) and members.issuperset(ids)
