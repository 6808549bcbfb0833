"""A query of the tree on its way to a node, and the rows on their way back, as fast as the reader takes them."""

from typing import NamedTuple, Protocol, TypeVar

from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.tree.queries import Query

T = TypeVar("T")


class TreeQuestion(NamedTuple):
    """A query, and the images that it looks at."""

    query: Query
    image: MetadataImage
    """The image at the position of the query."""
    before: MetadataImage | None
    """For `Differences`: the image at the other position."""
    committed_end: Offset
    """The offset of a view that was read just before. A history ends here."""


class TreeRows(Protocol[T]):
    """The rows of one answer. Nothing is made while nobody asks for the next portion."""

    async def portion(self) -> list[T]:
        """Returns the next rows; none at the end.

        Raises:
            Refused: RESOURCE_NOT_FOUND, INVALID_REQUEST, OFFSET_OUT_OF_RANGE, STORAGE_ERROR, or the node stops.
        """
        ...

    async def close(self) -> None:
        """Ends the work, also in the middle. Call `close` once."""
        ...
