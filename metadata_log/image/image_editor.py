"""An image under change: the touched maps and topics, and the new digest and counts.

`MetadataDelta` and `TopicDelta` know the meaning of records; this base class does the bookkeeping. Two promises: digest
and counts of the finished image always agree with its canonical records, and each shard and chunk of the old image is
copied at most once and never changed.

Maps whose contents this class reads have their `Edits` here. All other maps are declared where they are filled.
"""

from enum import Enum, StrEnum, auto
from typing import Any, Generic, Protocol, TypeVar

from metadata_log.format.ids import Uuid, uuid_text
from metadata_log.format.records import Config, MetadataRecord
from metadata_log.image.changes import Changes
from metadata_log.image.digest import MODULUS, record_hash
from metadata_log.image.metadata_image import ConfigResource, MetadataImage, Provenance, evolved
from metadata_log.image.settings.resource_labels import ResourceLabels
from metadata_log.image.topic_image import TopicEditor, TopicImage

K = TypeVar("K")
V = TypeVar("V")
C = TypeVar("C", contravariant=True)
"""The keys of a protocol, which only come in."""


class Law(StrEnum):
    """The laws of replay that an operator tells apart. A value never changes, because alerts use it."""

    RECORD = "record-misfit"
    """Every law without a name of its own, for example the limit of a field."""
    LEVEL = "level-not-allowed"
    TOPIC_NAME = "topic-name-twice"
    TOPIC_ID = "topic-id-reused"
    NOTHING = "reference-to-nothing"
    BROKER = "unknown-broker"
    PARTITION = "partition-unsound"
    BROKER_EPOCH = "broker-epoch-reused"
    STALE_EPOCH = "broker-epoch-stale"
    DEATH = "dead-broker-serves"
    REQUEST = "request-done-twice"
    ENTITY = "entity-conflict"
    OWNER = "owner-not-open"
    ORPHAN = "orphaned-entity"
    SESSION = "session-conflict"
    BACKWARDS = "number-went-back"


class Misfit(Exception):
    """The reason of an InvalidRecord, raised where the offset is not known."""

    def __init__(self, reason: str, law: Law = Law.RECORD) -> None:
        super().__init__(reason)
        self.law = law


class DeltaKind(Enum):
    """The strictness of a replay."""

    STRICT = auto()
    """Records from the log: everything is checked."""
    LOADING = auto()
    """Records from a snapshot: canonical records only, with broker epochs filled in."""
    FOLDING = auto()
    """All records of one entity: references to other entities are not checked."""


class Editor(Protocol[C, V]):
    """Changes to one map of the image: a `MapEditor` or an `OrderedEditor`."""

    def get(self, key: C) -> V | None: ...
    def __contains__(self, key: C) -> bool: ...
    def __len__(self) -> int: ...
    def __setitem__(self, key: C, value: V) -> None: ...
    def __delitem__(self, key: C) -> None: ...
    def finish(self) -> object: ...


class Edits(Generic[K, V]):
    """A descriptor for the editor of one of the image's maps. The editor is made at first use, because most commits
    touch one map of ten.
    """

    def __init__(self, image_field: str) -> None:
        self._image_field = image_field

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, image_editor: "ImageEditor", owner: type) -> Editor[K, V]:
        editor: Editor[K, V] = getattr(image_editor.image, self._image_field).edit()
        image_editor._editors[self._image_field] = editor
        image_editor.__dict__[self._name] = editor  # from now on Python finds the editor there, before this descriptor
        return editor


class ImageEditor:
    """Changes to one image, collected until `finish`."""

    def __init__(self, image: MetadataImage, *, kind: DeltaKind = DeltaKind.STRICT) -> None:
        self.image = image
        self._kind = kind
        self.changed = Changes()
        """Complete once the image is finished."""
        self._digest = image.digest
        self._record_count = image.record_count
        self._partition_count = image.partition_count
        self._entity_bytes = image.entity_bytes
        self._open: dict[Uuid, TopicEditor] = {}
        """Topics with changes that are not in `_topics` yet."""
        self._owned_configs: set[ConfigResource] = set()
        self._label_count = image.label_count
        self._editors: dict[str, Editor[Any, Any]] = {}
        """Editors of the touched maps, by the name of the image's field."""
        self._singles: dict[str, MetadataRecord] = {}
        """New values of image fields that have a single record, by the name of the field."""

    _topics: Edits[Uuid, TopicImage] = Edits("topics_by_id")
    _configs: Edits[ConfigResource, dict[str, str]] = Edits("configs")
    _labels: Edits[ConfigResource, ResourceLabels] = Edits("labels")

    def finish(self, provenance: Provenance) -> MetadataImage:
        """Return the image after all replayed records."""
        for topic_id in [*self._open]:
            self._close_topic(topic_id)
        changes: dict[str, Any] = {name: editor.finish() for name, editor in self._editors.items()}
        changes["provenance"] = provenance
        changes["digest"] = self._digest % MODULUS
        changes["record_count"] = self._record_count
        changes["partition_count"] = self._partition_count
        changes["label_count"] = self._label_count
        changes["entity_bytes"] = self._entity_bytes
        changes.update(self._singles)
        return evolved(self.image, changes)

    def _put(self, editor: Editor[Any, Any], key: Any, record: MetadataRecord) -> None:
        old = editor.get(key)
        self._exchange(old, record)
        editor[key] = record

    def _drop(self, editor: Editor[Any, Any], key: Any, what: str) -> None:
        old = editor.get(key)
        if old is None:
            raise Misfit(f"there is no {what} to remove", Law.NOTHING)
        self._exchange(old, None)
        del editor[key]

    def _single(self, image_field: str) -> Any:
        """Return the current record of an image field with a single record; None if it has none."""
        return self._singles.get(image_field, getattr(self.image, image_field))

    def _put_single(self, image_field: str, record: MetadataRecord) -> None:
        self._exchange(self._single(image_field), record)
        self._singles[image_field] = record

    def _exchange(self, old: MetadataRecord | None, new: MetadataRecord | None) -> None:
        """Replace one canonical record by another in the digest and the count."""
        if old is not None:
            self._digest -= record_hash(old)
            self._record_count -= 1
        if new is not None:
            self._digest += record_hash(new)
            self._record_count += 1

    def _drop_configs(self, resource: tuple[int, str]) -> None:
        config = self._configs.get(resource)
        if config is not None:
            for key, value in config.items():
                self._exchange(Config(*resource, key, value), None)
            del self._configs[resource]
            self.changed.config_resources.add(resource)

    def _drop_labels(self, resource: ConfigResource) -> None:
        labels = self._labels.get(resource)
        if labels is not None:
            self._digest -= labels.digest
            self._record_count -= labels.label_count
            self._label_count -= labels.label_count
            del self._labels[resource]
            self.changed.labels.add(resource)

    def _open_topic(self, topic_id: Uuid) -> TopicEditor:
        editor = self._open.get(topic_id)
        if editor is None:
            topic = self._topics.get(topic_id)
            if topic is None:
                raise Misfit(f"there is no topic {uuid_text(topic_id)}", Law.NOTHING)
            editor = self._open[topic_id] = TopicEditor(topic.name, topic_id, topic)
        return editor

    def _close_topic(self, topic_id: Uuid) -> None:
        editor = self._open.pop(topic_id)
        topic = editor.finish()
        if topic_id not in self.changed.created_topics:
            self.changed.partitions_changed(topic_id, editor.changed_partitions())
        self._digest += topic.digest - editor.counted_digest
        self._topics[topic_id] = topic
