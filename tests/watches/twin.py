"""The dumb twin of a watch: the whole log in memory, replayed record by record, and a filter applied at the end."""

from metadata_log.format.codec import decode_batch
from metadata_log.format.ids import Offset
from metadata_log.format.records import (
    AbortTransaction,
    BeginTransaction,
    ClientSession,
    Config,
    EndClientSession,
    EndTransaction,
    Entity,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveEntity,
    RemoveTopic,
    Topic,
)
from tests.watches.fake_log import FakeLog
from watches.core.filters import Filter


def shown(log: FakeLog, what: Filter, since: Offset, until: Offset) -> list[Offset]:
    """The offsets of the records that a watch shows of [since, until), in order."""
    names: dict[bytes, str] = {}
    found: list[Offset] = []
    opened: list[Offset] | None = None
    for batch in log.batches:
        if batch.is_control:
            continue
        for offset, record in enumerate(decode_batch(batch), batch.base_offset):
            if isinstance(record, Topic):
                names[record.topic_id] = record.name
            if isinstance(record, BeginTransaction):
                opened = []
            elif isinstance(record, EndTransaction):
                found += opened or []
                opened = None
            elif isinstance(record, AbortTransaction):
                opened = None
            elif since <= offset < until and _is_named(record, what, names):  # type: ignore[arg-type]
                (found if opened is None else opened).append(offset)
    return found


def _is_named(record: Record, what: Filter, names: dict[bytes, str]) -> bool:
    match record:
        case Entity(kind, name) | RemoveEntity(kind, name):
            return any(each.kind in ("", kind) and name.startswith(each.name_prefix) for each in what.entities)
        case Topic() | RemoveTopic():
            return what.all_topics or record.name in what.topics
        case Partition() | PartitionChange():
            return what.all_topics or names[record.topic_id] in what.topics
        case Config(resource_type=2, resource_name=name):
            return what.all_topics or name in what.topics
        case RegisterBroker():
            return what.all_brokers or record.broker_id in what.brokers
        case ClientSession() | EndClientSession():
            return what.sessions
    return what.others
