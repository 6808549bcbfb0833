"""The records of a replica's log as `tests.broker_agent.replica.model.laws` reads them, also while its broker is down."""

from broker_agent.replica.partition_log import PartitionLog
from metadata_log.format.data_batch import decode_data
from metadata_log.format.ids import Offset
from tests.broker_agent.replica.model.laws import Record
from tests.sim.world.disk import Observer


class LogView:
    """All records of one log at one moment. A view does not change."""

    def __init__(self, log: PartitionLog | None) -> None:
        self.end = self.flushed_end = 0
        self._records: dict[Offset, Record] = {}
        if log is None:
            return
        shape = log.shape
        self.end, self.flushed_end = shape.end, shape.flushed_end
        offset = shape.start.offset
        with Observer():
            while batches := log.read(offset, 1 << 20, shape.end):
                for batch in batches:
                    for at, record in enumerate(decode_data(batch), batch.base_offset):
                        self._records[at] = (batch.epoch, (record.value or b"").decode())
                offset = batches[-1].end_offset

    def records(self, end: Offset | None = None) -> dict[Offset, Record]:
        limit = self.end if end is None else end
        return {at: record for at, record in self._records.items() if at < limit}
