"""The typed error for bytes that are not what Apache Kafka writes."""

from metadata_log.format.errors import LogFormatError


class KafkaFormatError(LogFormatError):
    """Bytes of Kafka's log are damaged, cut short, or of a form that this release does not read. The message says which."""


def cut_short() -> KafkaFormatError:
    """Make the error for bytes that end before the field that they should hold."""
    return KafkaFormatError("the bytes end inside a field")
