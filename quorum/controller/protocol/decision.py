"""A decision: the records to append, the reply as a function of their place in the log, and the story to tell.

Deciding changes nothing. The active controller appends the records as one batch and replays them on the proposed image. Once
the batch is committed, it sends the reply and tells the happenings. If the batch is never committed, the decision has had no
effect: nothing is told. A decision without records has seen records that may not be committed ("the topic exists already"),
so its reply and its happenings wait too, until the present end of the log is committed.

A large decision takes several batches, and may be one transaction (`Decision.transaction`): its records take effect together, at
the end, or not at all. The active controller puts the markers around the records, and decides nothing else meanwhile. Example: a
request creates `orders` with 20,000 partitions, and a slice has 1,000 records.
    1. the first decision has the Topic record and 999 partitions, the name `CreateTopics`, and a command `then`;
    2. nineteen decisions of 1,000 partitions follow; no other decision comes between;
    3. the last decision has one partition, and no `then`: the transaction ends, and the client gets the reply.
"""

from dataclasses import dataclass, replace
from typing import Final

from metadata_log.format.batch import BATCH_RECORDS_MAX
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import FROM_OFFSET, BeginTransaction, MetadataRecord
from metadata_log.format.records.levels import RECORD_LEVELS
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import BrokerContactReply, Command, CommandReply, RegisterBrokerReply
from quorum.controller.protocol.entity_commands import OpenSessionReply, TransactReply
from quorum.controller.protocol.happenings import Happening, appended_at


class ControllerError(Exception):
    """The request is refused as a whole; nothing was done."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Decision:
    """The records to append, and the reply and the happenings to tell once the records are committed.

    With `then` the work goes on in further batches: the caller gets the reply of the last decision.
    """

    records: tuple[MetadataRecord, ...]
    reply: CommandReply
    then: Command | None = None
    happenings: tuple[Happening, ...] = ()
    """Few, however many records there are. Without records: the sum of earlier batches of the same work."""
    transaction: str = ""
    """The name of the transaction to which this slice belongs, the same for all slices; empty: the batch stands alone."""

    def __post_init__(self) -> None:
        assert len(self.records) <= BATCH_RECORDS_MAX, len(self.records)

    def answer(self, offset: Offset, base_offset: Offset | None = None) -> CommandReply:
        """The reply, given that the batch ends at `offset` (exclusive); without records, that the log ends there.

        `base_offset`: where the batch begins; None: the batch has the decision's records alone.
        """
        reply = self.reply
        if isinstance(reply, TransactReply | OpenSessionReply):
            begin = offset - len(self.records) if base_offset is None else base_offset
            return replace(reply.placed(begin), offset=offset)
        if isinstance(reply, RegisterBrokerReply) and reply.broker_epoch == FROM_OFFSET:
            # The registration is its batch's last record, and a broker's epoch is its registration's offset (M1).
            return replace(reply, offset=offset, broker_epoch=offset - 1)
        return replace(reply, offset=offset)

    def story(self, offset: Offset) -> tuple[Happening, ...]:
        """The happenings, given that the batch ends at `offset` (exclusive); without records, that the log ends there."""
        return tuple([appended_at(happening, offset - 1) for happening in self.happenings])


NOTHING_NEW: Final = Decision((), BrokerContactReply())
"""The answer to nearly all contacts."""


def allows_transactions(image: MetadataImage) -> bool:
    """True if all nodes of the cluster read transactions."""
    return image.metadata_version >= RECORD_LEVELS[BeginTransaction]
