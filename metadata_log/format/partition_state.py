"""What the image keeps of one partition: a `Partition` record less its topic id and number, which its place tells.

Two million partitions fit into memory because equal things are one object: most partitions have `isr == replicas`, all
partitions of a placement share their replica list, and many share the whole state. `intern_state` sees to that with
bounded pools; a pool that is full is emptied, which costs memory later and is never wrong. States are exact tuples of
exact tuples of numbers and bytes, because the garbage collector stops looking at such tuples after it has seen them
twice, and would look at a `NamedTuple` for ever.
"""

from typing import Final, TypeAlias, TypeVar, cast

from metadata_log.format.ids import NO_LEADER, ZERO_UUID, NodeId, Uuid
from metadata_log.format.records import RECOVERED, RECOVERING, Partition, PartitionChange

NodeIds: TypeAlias = tuple[NodeId, ...]

PartitionState: TypeAlias = tuple[
    NodeIds, NodeIds, NodeIds, NodeIds, NodeId, int, int, int, tuple[Uuid, ...], NodeIds, NodeIds
]
"""replicas, isr, removing, adding, leader, recovery state, leader epoch, partition epoch, directories, elr, last known elr."""

REPLICAS: Final = 0
ISR: Final = 1
LEADER: Final = 4
RECOVERY_STATE: Final = 5
LEADER_EPOCH: Final = 6
PARTITION_EPOCH: Final = 7
"""Where in a state the fields stand that are looked at one by one."""

T = TypeVar("T")

_POOL_MAX: Final = 1 << 16
_lists: dict[NodeIds, NodeIds] = {}
_directories: dict[tuple[Uuid, ...], tuple[Uuid, ...]] = {}
_uuids: dict[Uuid, Uuid] = {}
_node_ids: dict[NodeId, NodeId] = {}
_states: dict[PartitionState, PartitionState] = {}
_sound: dict[PartitionState, PartitionState] = {}
"""Those of them that a partition can be in."""


def _interned(pool: dict[T, T], value: T) -> T:
    """The first object of the pool equal to `value`. Safe from several threads: `setdefault` is one step of the interpreter."""
    if len(pool) >= _POOL_MAX:
        pool.clear()
    return pool.setdefault(value, value)


def _intern_ids(ids: NodeIds) -> NodeIds:
    """Down to the numbers: Python shares those below 257 only, and three others cost 96 bytes a partition."""
    known = _lists.get(ids)
    if known is not None:
        return known
    return _interned(_lists, tuple([_interned(_node_ids, each) for each in ids]))


def _intern_directories(directories: tuple[Uuid, ...]) -> tuple[Uuid, ...]:
    known = _directories.get(directories)
    if known is not None:
        return known
    return _interned(_directories, tuple([_interned(_uuids, directory) for directory in directories]))


def intern_state(state: PartitionState) -> PartitionState:
    """An equal state made of shared parts."""
    known = _states.get(state)
    if known is not None:
        return known
    replicas, isr, removing, adding, leader, recovery, leader_epoch, partition_epoch, directories, elr, last_elr = state
    replicas = _intern_ids(replicas)
    shared = (
        replicas,
        replicas if isr == replicas else _intern_ids(isr),
        _intern_ids(removing) if removing else (),
        _intern_ids(adding) if adding else (),
        _interned(_node_ids, leader),
        recovery,
        leader_epoch,
        partition_epoch,
        _intern_directories(directories) if directories else (),
        _intern_ids(elr) if elr else (),
        _intern_ids(last_elr) if last_elr else (),
    )
    return _interned(_states, shared)


class Unsound(Exception):
    """No partition can be in this state; the text is `misfit`'s."""


def state_of(record: Partition) -> PartitionState:
    """What the image keeps of the record, interned. Most new partitions are in one of a few states, judged once each.

    Raises:
        Unsound: see `misfit`.
    """
    fields = record[2:]
    known = _sound.get(fields)
    if known is not None:
        return known
    state = intern_state(fields)
    why = misfit(state)
    if why is not None:
        raise Unsound(why)
    return _interned(_sound, state)


def partition_of(topic_id: Uuid, partition: int, state: PartitionState) -> Partition:
    """The canonical record again."""
    return tuple.__new__(Partition, (topic_id, partition, *state))  # Partition(...) takes half as long again


def merge(state: PartitionState, change: PartitionChange) -> PartitionState:
    """The state after `change`: the partition epoch goes up by one, the leader epoch where a leader is named.

    Its lists are interned, itself it is not: after a change the epochs are its own.

    Where the replicas change and no directories are given, each replica keeps the directory that it had and a new one has
    none yet (the zero id).
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
        directories = _intern_directories(change.directories)
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


def without_elr(state: PartitionState) -> PartitionState:
    """The state with its eligible leader replicas forgotten; unchanged, epoch and all, where it has none (KIP-966)."""
    *before, partition_epoch, directories, elr, last_elr = state
    if not elr and not last_elr:
        return state
    return cast(PartitionState, (*before, partition_epoch + 1, directories, (), ()))


def misfit(state: PartitionState) -> str | None:
    """Why no partition can be in this state, or None where it can."""
    replicas, isr, removing, adding, leader, recovery, leader_epoch, partition_epoch, directories, elr, _ = state
    members = set(replicas)
    if not replicas or len(members) != len(replicas) or min(replicas) < 0:
        return f"replicas {replicas}: at least one, each once, none negative"
    if isr is not replicas and (len(set(isr)) != len(isr) or not members.issuperset(isr)):
        return f"isr {isr} is not a subset of replicas {replicas}"
    if leader != NO_LEADER and leader not in isr:
        return f"leader {leader} is not in isr {isr}"
    if recovery not in (RECOVERED, RECOVERING):
        return f"leader recovery state {recovery}"
    if leader_epoch < 0 or partition_epoch < 0:
        return f"leader epoch {leader_epoch}, partition epoch {partition_epoch}: neither may be negative"
    if removing and not members.issuperset(removing):
        return f"removing {removing} is not a subset of replicas {replicas}"
    if adding and not members.issuperset(adding):
        return f"adding {adding} is not a subset of replicas {replicas}"
    if directories and len(directories) != len(replicas):
        return f"{len(directories)} directories for {len(replicas)} replicas"
    if elr and (len(set(elr)) != len(elr) or not members.issuperset(elr) or not set(elr).isdisjoint(isr)):
        return f"elr {elr} is not a subset of replicas {replicas} apart from isr {isr}"
    return None
