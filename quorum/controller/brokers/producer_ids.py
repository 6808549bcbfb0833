"""Blocks of producer ids for brokers."""

from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import ProducerIds
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import AllocateProducerIds, AllocateProducerIdsReply
from quorum.controller.protocol.decision import ControllerError, Decision

PRODUCER_ID_END: Final = (1 << 63) - 1


def allocate_producer_ids(image: MetadataImage, command: AllocateProducerIds, block: int) -> Decision:
    """Gives out the next `block` ids. The caller has checked that the broker is registered. Raises ControllerError if no id is
    left."""
    last = image.producer_ids
    first = 0 if last is None else last.next_producer_id
    if first > PRODUCER_ID_END - block:
        raise ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
    record = ProducerIds(command.broker_id, command.broker_epoch, first + block)
    return Decision((record,), AllocateProducerIdsReply(first_producer_id=first, count=block))
