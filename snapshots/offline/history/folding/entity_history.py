"""The history of an entity with few canonical records, such as a broker or a config: each step replays and compares."""

from collections.abc import Iterable, Iterator

from metadata_log.format.ids import Offset
from metadata_log.format.records import MetadataRecord
from metadata_log.image.canonical_order import OrderKey
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.entities import with_order_keys
from metadata_log.image.entity_key import EntityKey
from metadata_log.image.image_editor import DeltaKind
from metadata_log.image.metadata_image import EMPTY_IMAGE, NOWHERE, MetadataImage
from snapshots.offline.history.folding.changes import changes_between
from snapshots.offline.history.folding.steps import Step
from snapshots.offline.history.tables import Values

Placed = tuple[Offset, MetadataRecord]


class EntityHistory:
    """The pass over one entity. Call `load`, then `step` for each step."""

    def __init__(self, key: EntityKey) -> None:
        self._key = key
        self.image: MetadataImage = EMPTY_IMAGE
        self._records: dict[OrderKey, MetadataRecord] = {}

    def load(self, records: Iterable[Placed]) -> None:
        """Begin with these canonical records."""
        self._apply(records)

    def step(self, step: Step, records: Iterable[Placed]) -> Iterator[Values]:
        """Apply the records of one step; return the rows of `changes`."""
        before = self._records
        self._apply(records)
        return changes_between(self._key, before, self._records, step)

    def _apply(self, records: Iterable[Placed]) -> None:
        delta = MetadataDelta(self.image, kind=DeltaKind.FOLDING)
        for offset, record in records:
            delta.replay(record, offset)
        self.image = delta.finish(NOWHERE)
        self._records = dict(with_order_keys(self.image.canonical_records()))
