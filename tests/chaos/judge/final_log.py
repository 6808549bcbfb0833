"""The logs as the daemons have left them, read by the library, and what they say of each topic.

Each controller's directory is copied and opened as a controller opens it, so that what is checked is what would be believed at
the next start; then every batch is read, also those that were archived when the log was cut at its beginning, and the chain
over them is verified. The one history out of all these logs is the work of `committed`.
"""

import shutil
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import read_identity
from metadata_log.format.batch import Batch, verify_chain
from metadata_log.format.codec import decode_batch
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import Offset
from metadata_log.format.records import TOPIC_RESOURCE, Config, RemoveTopic, Topic
from metadata_log.image.replay import Replay
from metadata_log.store.archive import ARCHIVE_NAME
from metadata_log.store.log import Log
from metadata_log.store.segment import SEGMENT_HEADER_BYTES, BadBatch, segment_names, walk
from quorum.devcluster.layout import DevNode
from quorum.runtime.disk.open_directory import LOG_DIRECTORY, open_directory
from quorum.runtime.protocol.node_config import NodeConfig
from tests.chaos.clients import REGISTER
from tests.chaos.judge.history import State

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
    committed_below: Offset = 0
    """This controller knew that all below was committed: its newest snapshot ends there."""
    had_below: Offset = 0
    """So far it had been durable before its disk lost the end of it; 0 where nothing was lost."""
    chain: bytes = b""
    """The chain at its end, if it has no batch."""

    @property
    def start(self) -> Offset:
        return self.batches[0].base_offset if self.batches else self.committed_below

    @property
    def end(self) -> Offset:
        return self.place[0]

    @property
    def place(self) -> tuple[Offset, bytes]:
        """Its end, with the chain there. A log that has just been cut at a snapshot may have no batch that can be read."""
        if not self.batches:
            return self.committed_below, self.chain
        return self.batches[-1].end_offset, self.batches[-1].chain


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
    if batches and batches[-1].end_offset != opened.log.end:
        batches = []  # the log was cut at its end, and what lies below the cut is damaged: nobody repairs that any more
    if not batches and opened.load is None:
        raise LogFormatError("its log is empty")
    _verify(batches)
    digests = {digest_of(Replay(), batches)} if batches and batches[0].base_offset == 0 else set()
    if opened.load is not None:
        opened.load.run()
        assert opened.load.image is not None
        replay = Replay()
        replay.install(opened.load.image)
        digests.add(digest_of(replay, batches))
    if len(digests) > 1:
        raise LogFormatError("the log replayed from 0 and from its newest snapshot differ")
    opened.log.close()
    return FinalLog(
        node.name,
        batches,
        digests.pop(),
        committed_below=0 if opened.load is None else opened.load.end.offset,
        had_below=0 if opened.log.lost is None else opened.log.lost.end,
        chain=opened.log.shape.chain,
    )


def digest_of(replay: Replay, batches: list[Batch]) -> bytes:
    """Of the image that the batches from the replay's offset on make of the one that it holds."""
    replay.apply([batch for batch in batches if batch.base_offset >= replay.offset])
    return replay.image.digest_bytes


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


def _whole(log: Log) -> Iterator[Batch]:
    offset = log.shape.start.offset
    while batches := log.read(offset, 4 << 20):
        yield from batches
        offset = batches[-1].end_offset


def _raw(path: Path, until: int | None = None) -> Iterator[Batch]:
    """The records in the segments there, as far as `until`: a log begins amid its first segment where it was cut at a snapshot.

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


def changes_of(batches: Iterable[Batch]) -> list[Change]:
    """The changes of topics in the batches, in their order."""
    return [change for batch in batches for change in _changes(batch)]


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
