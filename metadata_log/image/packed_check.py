"""The late half of a packed load: shows that each packed partition can be in its state, run by run, in the background.

A load of packed runs checks their lengths, and believes the rest: CRCs and chain have shown that the writer wrote these bytes. A
writer with a bug could have written a leader outside of the ISR. Example: broker 101 serves 0.5 s after its start. In the next
minute it looks at its 10,000 runs, some of them at a time, and finds such a leader. It drops the store and fetches it anew.
"""

from collections.abc import Generator

from metadata_log.format.errors import LogFormatError
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.packed_chunk import PackedChunk


def check_packed(image: MetadataImage) -> Generator[int, None, None]:
    """Check the packed runs of the image. A generator: each step checks one run, and yields the number of its partitions.

    Raises:
        LogFormatError: a partition cannot be in its state. The text names the topic.
    """
    for topic in image.topics_by_id.unordered_values():
        checked = None
        for chunk in topic.chunks:
            if not isinstance(chunk, PackedChunk) or chunk.packed is checked:
                continue
            checked = chunk.packed
            try:
                checked.check()
            except LogFormatError as e:
                raise LogFormatError(f"topic {topic.name!r}: {e}") from e
            yield len(checked)
