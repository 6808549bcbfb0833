"""A decision: the records to append, and the reply as a function of where they come to stand.

Deciding changes nothing. Who asked appends the records as one batch, replays them on the image, and gives the reply once
the batch is committed; if the batch never comes to be, neither did the decision. A decision without records has still
seen what may not be committed ("it exists already"), so its reply waits too.
"""

from dataclasses import dataclass, replace
from typing import Final

from metadata_log.format.batch import BATCH_RECORDS_MAX
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.format.records import FROM_OFFSET, MetadataRecord
from quorum.controller.protocol.commands import BrokerContactReply, Command, CommandReply, RegisterBrokerReply


class ControllerError(Exception):
    """The request is refused as a whole; nothing was done."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, and what is to be said once it is.

    Where `then` is given, the work goes on in further batches: the reply to give is that of the last decision.
    """

    records: tuple[MetadataRecord, ...]
    reply: CommandReply
    then: Command | None = None

    def __post_init__(self) -> None:
        assert len(self.records) <= BATCH_RECORDS_MAX, len(self.records)

    def answer(self, offset: Offset) -> CommandReply:
        """The reply, given that the batch ended at `offset` (exclusive); without records, the end of the log."""
        reply = self.reply
        if isinstance(reply, RegisterBrokerReply) and reply.broker_epoch == FROM_OFFSET:
            # The registration is its batch's last record, and a broker's epoch is its registration's offset (M1).
            return replace(reply, offset=offset, broker_epoch=offset - 1)
        return replace(reply, offset=offset)


NOTHING_NEW: Final = Decision((), BrokerContactReply())
"""The answer to nearly all contacts."""
