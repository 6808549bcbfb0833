"""The logs as the daemons have left them, read by the library, and what they say of each topic.

Each controller's directory is copied and opened as a controller opens it, so that what is checked is what would be believed at
the next start; then every batch is read, also those that were archived when the log was cut at its beginning, and the chain
over them is verified. All controllers' histories have to be one.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.archive import ARCHIVE_NAME
from metadata_log.batch import Batch, verify_chain
from metadata_log.codec import decode_batch
from metadata_log.errors import LogFormatError
from metadata_log.files import RealDirectory
from metadata_log.identity import read_identity
from metadata_log.log import Log
from metadata_log.records import TOPIC_RESOURCE, Config, RemoveTopic, Topic
from metadata_log.recovery import segment_names
from metadata_log.replay import Replay, ReplayStopped
from metadata_log.salvage import intact_batches
from metadata_log.segment import SEGMENT_HEADER_BYTES, BadBatch, walk
from quorum.cli.dev_layout import DevNode
from quorum.runtime.node_config import NodeConfig
from quorum.runtime.opening import LOG_DIRECTORY, open_directory
from tests.chaos.clients import REGISTER
from tests.chaos.history import State

REGISTER_KEY: Final = (TOPIC_RESOURCE, REGISTER)


class Change(NamedTuple):
    """One batch changed one topic: to what, and where the batch ends."""

    key: str
    state: State
    end_offset: int


class FinalLog(NamedTuple):
    """One controller's history: its `batches`, and the digest of the image that it holds at their end."""

    name: str
    batches: list[Batch]
    digest: bytes
    changes: list[Change]

    @property
    def start(self) -> int:
        return self.batches[0].base_offset

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset


class Joined(NamedTuple):
    """One history out of all: its changes in their order, from the offset on at which it begins, and where it is none."""

    changes: list[Change]
    known_from: int
    problems: list[str]


NOTHING_KNOWN: Final = Joined([], sys.maxsize, ["no log can be read"])


def read_final_log(node: DevNode, scratch: Path) -> FinalLog:
    """Opens a copy of the directory, reads and verifies all of it.

    Raises:
        LogFormatError: something in it is not as it was written.
    """
    copy = scratch / node.name
    try:
        shutil.copytree(node.data_directory, copy)
        return _read(node, copy)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _read(node: DevNode, copy: Path) -> FinalLog:
    directory = RealDirectory(copy)
    identity = read_identity(directory)
    assert identity is not None
    opened = open_directory(directory, identity, NodeConfig())
    metadata = copy / LOG_DIRECTORY
    below = chain(_raw(metadata / ARCHIVE_NAME), _raw(metadata, opened.log.shape.start.offset))
    batches = _joined(chain(below, _whole(opened.log)))
    if not batches:
        raise LogFormatError("its log is empty")
    _verify(batches)
    digests = {_digest(Replay(), batches)} if batches[0].base_offset == 0 else set()
    if opened.load is not None:
        opened.load.run()
        assert opened.load.image is not None
        replay = Replay()
        replay.install(opened.load.image)
        digests.add(_digest(replay, batches))
    if len(digests) > 1:
        raise LogFormatError("the log replayed from 0 and from its newest snapshot differ")
    opened.log.close()
    return FinalLog(node.name, batches, digests.pop(), [change for batch in batches for change in _changes(batch)])


def _digest(replay: Replay, batches: list[Batch]) -> bytes:
    replay.apply([batch for batch in batches if batch.base_offset >= replay.offset])
    return replay.image.digest_bytes


def merged(logs: list[FinalLog], recorded: Path) -> Joined:
    """One history out of all, and where they contradict each other. `recorded`: what `record` has copied."""
    if not logs:
        return NOTHING_KNOWN
    problems = []
    known: dict[int, tuple[bytes, str]] = {}
    changes: dict[int, list[Change]] = {}
    for log in logs:
        for batch in log.batches:
            first, whose = known.setdefault(batch.end_offset, (batch.chain, log.name))
            if first != batch.chain:
                problems.append(f"{log.name} and {whose} have different histories up to offset {batch.end_offset}")
                break
        changes.update(_by_end(log.changes))
    if len({log.end for log in logs}) > 1:
        problems.append("logs end apart: " + ", ".join(f"{log.name} at {log.end}" for log in logs))
    if len({log.digest for log in logs}) > 1:
        problems.append("images differ: " + ", ".join(f"{log.name} {log.digest.hex()[:12]}" for log in logs))
    oldest = min(logs, key=lambda log: log.start)
    earlier = _before(oldest.batches[0], recorded)
    known_from = earlier[0].base_offset if earlier else oldest.start
    if known_from > 0:
        problems.append(f"nobody has the log from its beginning, the oldest is {oldest.name} with {oldest.start}")
    elif earlier:
        problems += _from_the_beginning(oldest, earlier)
    changes.update(_by_end([change for batch in earlier for change in _changes(batch)]))
    return Joined([change for end in sorted(changes) for change in changes[end]], known_from, problems)


def _from_the_beginning(log: FinalLog, earlier: list[Batch]) -> list[str]:
    """What is wrong with its image. Where every log begins at a snapshot, all the images are the snapshots', right or wrong."""
    try:
        digest = _digest(Replay(), [*earlier, *log.batches])
    except ReplayStopped as e:
        return [f"{log.name} has a history that cannot be replayed from 0: {e}"]
    if digest != log.digest:
        return [f"{log.name} has an image that is not the replay of its history from 0"]
    return []


def _by_end(changes: Iterable[Change]) -> dict[int, list[Change]]:
    found: dict[int, list[Change]] = {}
    for change in changes:
        found.setdefault(change.end_offset, []).append(change)
    return found


def record(node: DevNode, recorded: Path) -> None:
    """Copies the segments as they are now. A controller that starts anew at a snapshot removes its log, and one whose disk is
    full its archive; when all of them have done so the beginning would be known to nobody.

    A copy is replaced by what continues it. Any other stays, in a directory beside: it may be the new one that is damaged, by
    this very run, and all that comes behind a flipped bit is not to be read.
    """
    metadata = node.data_directory / LOG_DIRECTORY
    target = recorded / node.name
    target.mkdir(parents=True, exist_ok=True)
    for path in (*metadata.glob("*.log"), *metadata.glob(f"{ARCHIVE_NAME}/*.log")):
        try:
            now = path.read_bytes()
        except FileNotFoundError:
            continue  # it has just gone, and was copied before
        copy = target / path.name
        if copy.exists() and not now.startswith(copy.read_bytes().rstrip(b"\0")):
            beside = target / str(len(list(target.iterdir())))
            beside.mkdir()
            copy.rename(beside / path.name)
        copy.write_bytes(now)


def _before(first: Batch, recorded: Path) -> list[Batch]:
    """All that was recorded and that `first` continues: found backwards along the chain, which only committed batches bear."""
    ending: dict[int, list[Batch]] = {}
    if first.base_offset > 0:
        for directory in (each for each in recorded.rglob("*") if each.is_dir()):
            for batch in _intact(directory):
                ending.setdefault(batch.end_offset, []).append(batch)
    found: list[Batch] = []
    following = first
    while following.base_offset > 0:
        candidates = ending.get(following.base_offset, [])
        before = next((each for each in candidates if verify_chain(following, each.chain)), None)
        if before is None:
            break
        found.append(before)
        following = before
    return found[::-1]


def _intact(directory: Path) -> Iterator[Batch]:
    """All that can be read of a node's copies, behind a flipped bit too: when that is mended the node may begin anew."""
    for path in sorted(directory.glob("*.log")):
        with RealDirectory(directory).open(path.name) as file:
            for _, batch in intact_batches(file, SEGMENT_HEADER_BYTES, 0):
                yield batch


def _whole(log: Log) -> Iterator[Batch]:
    offset = log.shape.start.offset
    while batches := log.read(offset, 4 << 20):
        yield from batches
        offset = batches[-1].end_offset


def _raw(path: Path, until: int | None = None) -> Iterator[Batch]:
    """What is in the segments there, as far as `until`: a log begins amid its first segment where it was cut at a snapshot.

    A copy of a file that was being written may end with half a batch.
    """
    if not path.is_dir():
        return
    directory = RealDirectory(path)
    for name in segment_names(directory):
        with directory.open(name) as file:
            try:
                for _, batch in walk(file, SEGMENT_HEADER_BYTES, file.size()):
                    if until is not None and batch.end_offset > until:
                        return
                    yield batch
            except BadBatch:
                continue


def _joined(batches: Iterable[Batch]) -> list[Batch]:
    """The longest run without gaps that ends with the live log: a node that began anew at a snapshot has a gap."""
    run: list[Batch] = []
    for batch in batches:
        if run and batch.base_offset < run[-1].end_offset:
            continue
        if run and batch.base_offset > run[-1].end_offset:
            run = []
        run.append(batch)
    return run


def _verify(batches: list[Batch]) -> None:
    for before, batch in pairwise(batches):
        if not verify_chain(batch, before.chain):
            raise LogFormatError(f"the batch at {batch.base_offset} does not continue the chain")


def _changes(batch: Batch) -> Iterator[Change]:
    if batch.is_control:
        return
    states: dict[str, State] = {}
    for record in decode_batch(batch):
        match record:
            case Topic(name=name):
                states[name] = None
            case RemoveTopic(name=name):
                states[name] = None
            case Config(resource_name=name, value=str(value)) if (record.resource_type, record.key) == REGISTER_KEY:
                states[name] = int(value)
            case _:
                pass
    yield from (Change(key, state, batch.end_offset) for key, state in states.items())
