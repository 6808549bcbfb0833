"""What is read from a disk: batches, segments, whole directories, and the small files beside them.

A directory travels as one MessagePack map of paths to contents, so that it is an input like any other.
"""

import contextlib
import json
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import msgpack

from broker_agent.store import BrokerStore, WrongHistory
from metadata_log.disk.identity import IDENTITY_NAME, Identity, read_identity, write_identity
from metadata_log.format.batch import decode_all
from metadata_log.format.codec import (
    UnknownRecord,
    decode_batch,
    decode_records,
    encode_record,
    record_to_json,
    split_payload,
)
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import (
    FIRST_CONTROL_TYPE,
    TYPE_NUMBERS,
    ClientSession,
    Endpoint,
    Entity,
    EntityKind,
    NoOp,
    Owner,
    RemoveEntity,
    SnapshotMark,
)
from metadata_log.image.metadata_image import MetadataImage, Provenance
from metadata_log.image.replay import Replay
from metadata_log.store.damage import DamagedRangeRead
from metadata_log.store.log import Log
from metadata_log.store.log_config import LogConfig
from metadata_log.store.log_notes import (
    FLUSHED_NAME,
    LOST_NAME,
    START_NAME,
    Flushed,
    FlushedNote,
    LogStart,
    read_lost,
    read_start,
    write_lost,
    write_start,
)
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, BadBatch, unpack_header, walk
from quorum.controller.protocol.decision import Decision
from quorum.core.protocol.effects import ElectionState
from quorum.runtime.disk import election_file, recovery_plan
from quorum.runtime.disk.open_directory import LOG_DIRECTORY
from quorum.runtime.disk.recovery_plan import PlannedDirectory, RecoveryPlan
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.format import FIRST_CHAIN, SnapshotCorrupt, SnapshotMeta, genesis, snapshot_batches, snapshot_name
from snapshots.reader import read_meta, read_runs, read_snapshot
from snapshots.store import SnapshotStore
from tests.fuzz.mutation import json_mutated, mutated
from tests.fuzz.sealing import batches_mutated, sealed, sealed_line, sealed_note, sealed_segment
from tests.fuzz.target import Target
from tests.golden.samples import RECORDS, sample_batches
from tests.quorum.controller.cluster import Cluster
from tests.quorum.runtime.lone_node import CLUSTER_ID, LoneNode, directory_id, voters_of
from tests.sim.world.disk import MemoryDirectory

VOTERS = voters_of((1,))
GENESIS = genesis(CLUSTER_ID, VOTERS)
IDENTITY = Identity(CLUSTER_ID, 1, directory_id(1), 1, "controller", GENESIS)
SURVIVOR = PlannedDirectory("/c1", "controller", 1, directory_id(1))
GIVER = PlannedDirectory("/mnt/broker 101", "broker", 101, directory_id(101))
RECOVERY_PLAN = RecoveryPlan(
    directories=(SURVIVOR, GIVER),
    survivor=SURVIVOR,
    source=GIVER,
    base=8,
    base_chain=bytes(range(32)),
    snapshot=OffsetAndEpoch(8, 2),
    end=OffsetAndEpoch(10, 2),
    end_chain=bytes(32),
    committed_end=10,
    generation=2,
    epoch=1_000_002,
    endpoints=(Endpoint("CONTROLLER", "c1", 9001),),
    wall_ms=5_000,
    accepts_loss=False,
)
LOG_CONFIG = LogConfig(segment_bytes=900, tail_bytes=400)
DATA = [record for record in RECORDS if TYPE_NUMBERS[type(record)] < FIRST_CONTROL_TYPE]


# --- directories as bytes --------------------------------------------------------------------------------------------


def packed(directory: MemoryDirectory) -> bytes:
    """Every file, without the zeros that a segment is preallocated with, and without what is archived."""
    files = {name: _contents(directory, name) for name in _files(directory)}
    if directory.exists(LOG_DIRECTORY):
        inside = directory.subdirectory(LOG_DIRECTORY)
        files |= {f"{LOG_DIRECTORY}/{name}": _contents(inside, name) for name in _files(inside)}
    data: bytes = msgpack.packb(files)
    return data


def _files(directory: MemoryDirectory) -> list[str]:
    return [name for name in directory.names() if name not in (LOG_DIRECTORY, "archive")]


def _contents(directory: MemoryDirectory, name: str) -> bytes:
    data = directory.read(name, 16 << 20)
    return data.rstrip(b"\x00") + bytes(64) if name.endswith(".log") else data


def unpacked(data: bytes) -> MemoryDirectory:
    """The directory; LogFormatError where the bytes are none."""
    directory = MemoryDirectory("/fuzz")
    try:
        files = msgpack.unpackb(data, strict_map_key=False)
        for path, content in files.items():
            inside, _, name = path.rpartition("/")
            _put(directory.subdirectory(inside) if inside else directory, name, content)
    except (ValueError, TypeError, AttributeError, AssertionError, msgpack.UnpackException) as e:
        raise LogFormatError("not a directory") from e
    return directory


def _put(directory: MemoryDirectory, name: str, content: bytes) -> None:
    file = directory.open(name, create=True)
    file.write_at(0, content)
    file.flush()
    directory.flush()


def directories_mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    """One file, or a few, hurt, gone, or another directory's; the checksums fit again, mostly."""
    files: dict[str, bytes] = msgpack.unpackb(rng.choice(samples))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(files))
        choice = rng.random()
        if choice < 0.08 and len(files) > 1:
            del files[name]
            continue
        if choice < 0.14:
            other = msgpack.unpackb(rng.choice(samples))
            files[name] = other[rng.choice(sorted(other))]
            continue
        whole = name.rpartition("/")[2]
        if whole in _BY_NAME and rng.random() < 0.7:
            files[name] = _BY_NAME[whole](rng, [files[name]])
            continue
        alike = [files[each] for each in sorted(files) if each.rpartition(".")[2] == name.rpartition(".")[2]]
        hurt = mutated(rng, [files[name]]) if rng.random() < 0.8 else mutated(rng, alike)
        files[name] = _sealed(rng, name, hurt)
    data: bytes = msgpack.packb(files)
    return data


def _sealed(rng: Random, name: str, data: bytes) -> bytes:
    if rng.random() < 0.3:
        return data
    if name.endswith(".log"):
        return sealed_segment(data, chained=rng.random() < 0.6)
    if name.endswith(".checkpoint"):
        return sealed(data, chain=FIRST_CHAIN)
    if name.endswith((FLUSHED_NAME, LOST_NAME)):
        return sealed_note(data)
    return sealed_line(data) if name.endswith(START_NAME) else data


# --- batches and records ---------------------------------------------------------------------------------------------


def _take_batches(data: bytes) -> None:
    """Every batch, its records, what tools show of them; and the image after all of them."""
    replay = Replay()
    batches = tuple(decode_all(data))
    for batch in batches:
        for record in decode_batch(batch):
            record_to_json(record)
            if not isinstance(record, UnknownRecord):
                assert decode_records(encode_record(record), 1) == [record], record
        split_payload(batch.payload, batch.record_count)
    replay.apply(batches)
    replay.image.check_invariants()


def _batch_samples() -> list[bytes]:
    log = Log.open(MemoryDirectory(), chain=GENESIS)
    for record in RECORDS:
        log.append([record], 1, 5)
    log.append(DATA[:4], 2, 6)
    history = b"".join(batch.data for batch in _new_log(MemoryDirectory()).read(0, 1 << 20))
    return [b"".join(batch.data for batch in log.read(0, 1 << 20)), history, *(each.data for each in sample_batches())]


def _take_records(data: bytes) -> None:
    """As many records as the first byte says."""
    for record in decode_records(data[1:], data[0] if data else 0):
        record_to_json(record)
        if not isinstance(record, UnknownRecord):
            assert decode_records(encode_record(record), 1) == [record], record


# --- segments and logs -----------------------------------------------------------------------------------------------


class _Recording(Cluster):
    """A cluster that keeps every record it led to, in batches as they were decided."""

    def fold(self, decision: Decision) -> None:
        self.__dict__.setdefault("history", []).append(decision.records)
        super().fold(decision)


@cache
def _cluster() -> _Recording:
    cluster = _Recording(3)
    cluster.create("orders", 3)
    cluster.create("payments", 2, 2)
    session, broker = directory_id(9), cluster.image.brokers[0]
    owner = Owner(session, None, cluster.image.offset)
    cluster.append(ClientSession(session, "worker", "anonymous", 9_000), EntityKind("lock", "{}", 0, 0, 0))
    cluster.append(Entity("lock", "a", b"value", owner), Entity("shard", "7", b"", None))
    cluster.append(Entity("lock", "b", b"", Owner(None, 0, broker.broker_epoch)), RemoveEntity("shard", "7"))
    return cluster


def _image() -> MetadataImage:
    return _cluster().image


def _write_history(log: Log) -> Log:
    """Brokers, topics and voters, over several epochs and segments."""
    for number, records in enumerate(_cluster().__dict__["history"]):
        if records:
            log.append(records, 1 + number // 5, 10 + number)
    for record in (VOTERS, SnapshotMark("bytes"), NoOp()):
        log.append([record], log.shape.last_epoch, 100)
    log.flush()
    return log


def _new_log(directory: MemoryDirectory) -> Log:
    return _write_history(Log.open(directory, chain=GENESIS, config=LOG_CONFIG))


def _middle(log: Log) -> OffsetAndEpoch:
    """A place where a batch ends."""
    batches = log.read(0, 1 << 20)
    return batches[len(batches) // 2].end


def _image_of(log: Log, end: int) -> MetadataImage:
    replay = Replay()
    replay.apply([batch for batch in log.read(0, 1 << 20) if batch.end_offset <= end])
    return replay.image


def _take_segment(data: bytes) -> None:
    directory = MemoryDirectory()
    _put(directory, "segment", data)
    unpack_header(data[:SEGMENT_HEADER_BYTES])
    for _, batch in walk(directory.open("segment"), SEGMENT_HEADER_BYTES, len(data)):
        assert batch.record_count > 0


def _segment_samples() -> list[bytes]:
    directory = MemoryDirectory()
    _new_log(directory).close()
    return [_contents(directory, name) for name in directory.names() if name.endswith(".log")]


def _segments_mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    data = mutated(rng, samples)
    return sealed_segment(data, chained=False) if rng.random() < 0.7 else data


def _log_samples() -> list[bytes]:
    plain, begun, lost, small = (MemoryDirectory("/fuzz") for _ in range(4))
    _new_log(plain).close()
    log = _new_log(begun)
    end = _middle(log)
    log.note_snapshot(end)
    log.drop_prefix(end)
    log.close()
    log = _new_log(lost)
    log.close()
    newest = [name for name in lost.names() if name.endswith(".log")][-1]
    lost.edit(newest, lambda content: content.__delitem__(slice(SEGMENT_HEADER_BYTES, None)))
    Log.open(lost, config=LOG_CONFIG, accept_loss=True).close()
    Log.open(small, chain=GENESIS, config=LOG_CONFIG).close()
    return [packed(each) for each in (plain, begun, lost, small)]


def _take_log(data: bytes) -> None:
    """Opened, also where something is lost; read; and what was opened can be written to and opened again."""
    directory = unpacked(data)
    try:
        log = Log.open(directory, config=LOG_CONFIG)
    except LogFormatError:
        log = Log.open(directory, config=LOG_CONFIG, accept_loss=True)
    shape = log.shape
    assert shape.start.offset <= shape.flushed_end <= shape.end, shape
    log.control_records()
    end = _read_all(log)
    log.append([NoOp()], shape.last_epoch, 1)
    log.flush()
    log.close()
    again = Log.open(directory, config=LOG_CONFIG, accept_loss=True)
    assert again.end == end + 1, (again.shape, shape)


def _read_all(log: Log) -> int:
    """Up to the end, over whatever is damaged; the end."""
    offset = log.shape.start.offset
    for _ in range(10_000):
        if offset == log.end:
            return offset
        try:
            batches = log.read(offset, 500)
        except DamagedRangeRead as e:
            offset = e.damaged.end
        else:
            assert batches and batches[0].base_offset == offset, (offset, batches)
            offset = batches[-1].end_offset
    raise AssertionError("no end")


# --- small files -----------------------------------------------------------------------------------------------------


def _small_file(name: str, read: Callable[[MemoryDirectory], object]) -> Callable[[bytes], None]:
    def take(data: bytes) -> None:
        directory = MemoryDirectory()
        _put(directory, name, data)
        read(directory)

    return take


def _written(name: str, *write: Callable[[MemoryDirectory], object]) -> Callable[[], list[bytes]]:
    def make() -> list[bytes]:
        samples = []
        for each in write:
            directory = MemoryDirectory()
            each(directory)
            samples.append(directory.read(name, 1 << 16))
        return samples

    return make


def _notes_mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    data = mutated(rng, samples)
    return sealed_note(data) if rng.random() < 0.5 else data


def _log_starts_mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    with contextlib.suppress(ValueError):
        if rng.random() < 0.7:
            return sealed_line(json_mutated(rng, rng.choice(samples).split(b"\n")[0]))
    return mutated(rng, samples)


def _election_states_mutated(rng: Random, samples: Sequence[bytes]) -> bytes:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        if rng.random() < 0.1:
            return json_mutated(rng, rng.choice(samples))
        if rng.random() < 0.7:
            state = json_mutated(rng, json.dumps(json.loads(rng.choice(samples))["state"], sort_keys=True).encode())
            return json.dumps({"crc32": zlib.crc32(state), "state": json.loads(state)}, sort_keys=True).encode()
    return mutated(rng, samples)


_BY_NAME = {
    START_NAME: _log_starts_mutated,
    election_file.FILE_NAME: _election_states_mutated,
    FLUSHED_NAME: _notes_mutated,
    LOST_NAME: _notes_mutated,
}


def _take_election_state(directory: MemoryDirectory) -> None:
    """What was read can be written, and is then read again as the same."""
    state = election_file.load(directory)
    assert state is not None
    election_file.save(directory, state)
    assert election_file.load(directory) == state


def _take_recovery_plan(directory: MemoryDirectory) -> None:
    plan = recovery_plan.load(directory)
    assert plan is not None and plan.command and plan.endpoints
    recovery_plan.save(directory, plan)
    assert recovery_plan.load(directory) == plan


def _take_identity(directory: MemoryDirectory) -> None:
    identity = read_identity(directory)
    assert identity is not None
    write_identity(directory, identity)
    assert read_identity(directory) == identity


# --- snapshots -------------------------------------------------------------------------------------------------------

SNAPSHOT_END = OffsetAndEpoch(40, 3)


def _snapshot_samples() -> list[bytes]:
    meta = SnapshotMeta(SNAPSHOT_END, 7, bytes(range(32)), VOTERS, 1)
    return [
        b"".join(batch.data for batch in snapshot_batches(meta, records))
        for records in (_image().canonical_records(), ())
    ]


def _take_snapshot(data: bytes) -> None:
    """As at a start; and, where it does not verify, its records all the same, as a file that has rotted since."""
    directory = MemoryDirectory()
    _put(directory, snapshot_name(SNAPSHOT_END), data)
    try:
        list(read_snapshot(directory, SNAPSHOT_END).records)
        SnapshotStore(directory).list()
    except LogFormatError:
        with contextlib.suppress(LogFormatError):
            read_meta(directory, SNAPSHOT_END)
        Replay().load_snapshot(read_runs(directory, SNAPSHOT_END), Provenance(*SNAPSHOT_END, 7))
        raise


# --- whole nodes -----------------------------------------------------------------------------------------------------


def node_samples() -> list[bytes]:
    fresh = MemoryDirectory("/fuzz")
    SnapshotStore(fresh.subdirectory(LOG_DIRECTORY)).write_bootstrap(VOTERS)
    used = MemoryDirectory("/fuzz")
    metadata = used.subdirectory(LOG_DIRECTORY)
    store = SnapshotStore(metadata)
    store.write_bootstrap(VOTERS)
    log = _new_log(metadata)
    end = _middle(log)
    chain = log.chain_at(end.offset)
    assert chain is not None
    store.write(SnapshotMeta(end, 20, chain, VOTERS, 1), _image_of(log, end.offset))
    log.close()
    election_file.save(used, ElectionState(log.shape.last_epoch, ReplicaKey(1, directory_id(1)), None))
    return [packed(fresh), packed(used)]


def _take_node(data: bytes) -> str | None:
    """A controller of one: opened, elected, its image loaded. A disk that it does not trust stops it, with a reason."""
    lone = LoneNode(unpacked(data), NodeConfig(log=LOG_CONFIG), new_directory_id=lambda: directory_id(77))
    for _ in range(20):
        lone.run_until_idle()
        lone.now_ms += 500
        lone.turn()
    lone.node.core.check_invariants()
    return None if lone.stopped is None else "stopped"


# --- brokers' stores -------------------------------------------------------------------------------------------------


def _store_samples() -> list[bytes]:
    directory = MemoryDirectory("/fuzz")
    store = BrokerStore(directory)
    store.recover()
    log = _new_log(MemoryDirectory())
    store.apply(b"".join(batch.data for batch in log.read(0, 1 << 20)), GENESIS)
    store.note_attempt(bytes(16))
    job = store.take_snapshot_job()
    assert job is not None
    store.flush()
    before = packed(directory)
    job.run()
    store.snapshot_written(job)
    store.close()
    return [before, packed(directory)]


def _take_store(data: bytes) -> str | None:
    """What is damaged is dropped, and the store begins anew: nothing on its disk may keep a broker from starting."""
    try:
        directory = unpacked(data)
    except LogFormatError:
        return "not a directory"
    recovered = BrokerStore(directory).recover()
    if not _has_forged_hashes(directory.subdirectory(LOG_DIRECTORY)):
        recovered.image.check_invariants()
    return None if recovered.dropped is None else "dropped"


def _has_forged_hashes(metadata: MemoryDirectory) -> bool:
    """A broker believes the hashes in the columns of partitions: CRCs and chain find all damage of the disk, and only a mutation
    that seals the file anew gets past them. Then the image has the digest that the file says.
    """
    try:
        for info in SnapshotStore(metadata).list():
            read_snapshot(metadata, info.end)
    except SnapshotCorrupt:
        return True
    return False


def _take_applied(data: bytes) -> None:
    store = BrokerStore(MemoryDirectory())
    store.recover()
    store.apply(data, GENESIS)
    store.image.check_invariants()


# --- all of them -----------------------------------------------------------------------------------------------------

FORMAT = (LogFormatError,)

TARGETS = (
    Target("batches", _batch_samples, _take_batches, FORMAT, batches_mutated(GENESIS)),
    Target("records", lambda: [bytes([1]) + encode_record(each) for each in RECORDS], _take_records, FORMAT),
    Target("segment", _segment_samples, _take_segment, (LogFormatError, BadBatch), _segments_mutated),
    Target("log-directory", _log_samples, _take_log, FORMAT, directories_mutated),
    Target(
        "flushed",
        _written(FLUSHED_NAME, lambda each: FlushedNote(each).write(7, bytes(range(32)))),
        _small_file(FLUSHED_NAME, lambda each: FlushedNote(each).read()),
        (),
        _notes_mutated,
    ),
    Target(
        "lost",
        _written(LOST_NAME, lambda each: write_lost(each, Flushed(7, bytes(range(32))))),
        _small_file(LOST_NAME, read_lost),
        FORMAT,
        _notes_mutated,
    ),
    Target(
        "log-start",
        _written(
            START_NAME, lambda each: write_start(each, LogStart(SNAPSHOT_END, bytes(range(32)), 7, resetting=True))
        ),
        _small_file(START_NAME, read_start),
        FORMAT,
        _log_starts_mutated,
    ),
    Target(
        "meta.properties",
        _written(IDENTITY_NAME, lambda each: write_identity(each, IDENTITY)),
        _small_file(IDENTITY_NAME, _take_identity),
        FORMAT,
    ),
    Target(
        "quorum-state",
        _written(
            election_file.FILE_NAME,
            lambda each: election_file.save(each, ElectionState(7, ReplicaKey(1, directory_id(1)), None)),
            lambda each: election_file.save(each, ElectionState(7, None, 2)),
        ),
        _small_file(election_file.FILE_NAME, _take_election_state),
        FORMAT,
        _election_states_mutated,
    ),
    Target(
        "recovery-plan",
        _written(
            recovery_plan.FILE_NAME,
            lambda each: recovery_plan.save(each, RECOVERY_PLAN),
            lambda each: recovery_plan.save(each, RECOVERY_PLAN._replace(source=None, snapshot=None)),
        ),
        _small_file(recovery_plan.FILE_NAME, _take_recovery_plan),
        FORMAT,
        _log_starts_mutated,
    ),
    Target("snapshot", _snapshot_samples, _take_snapshot, FORMAT, batches_mutated(FIRST_CHAIN)),
    Target("controller-directory", node_samples, _take_node, FORMAT, directories_mutated),
    Target("broker-directory", _store_samples, _take_store, (), directories_mutated),
    Target("broker-batches", _batch_samples, _take_applied, (LogFormatError, WrongHistory), batches_mutated(GENESIS)),
)
