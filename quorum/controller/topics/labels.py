"""Labels of topics, partitions and brokers: changes, and the list of labels. All changes of one request are done, or none.

    1. A request attaches team=payments to topic orders, and hot=yes to its partition 3: two records, one batch.
    2. A request removes hot from orders-3, and a label from topic nobody: UNKNOWN_TOPIC_OR_PARTITION, and hot stays.
    3. Topic orders is deleted: one record, which takes all labels along.

A label that has its value already, and a label to remove that is not there, write nothing.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from metadata_log.format.errors import ErrorCode
from metadata_log.format.labels import LABELS_MAX, has_label, label_key_problem, label_value_problem
from metadata_log.format.records import (
    BROKER_RESOURCE,
    RECORD_LEVELS,
    TOPIC_RESOURCE,
    WHOLE_RESOURCE,
    Label,
    MetadataRecord,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_gate import require_level
from quorum.controller.protocol.happenings import LabelsChanged, first_few
from quorum.controller.protocol.label_commands import AlterLabels, AlterLabelsReply, LabelAlteration
from quorum.controller.topics.configs import resource_text

CHANGES_MAX: Final = 500
"""Maximum number of labels that one request changes, so that their records fit into one batch."""
TOPIC_LABELS_MAX: Final = 10_000
"""Maximum number of labels of one topic with its partitions: a change copies the map of its labelled partitions."""
CLUSTER_LABELS_MAX: Final = 100_000
"""Maximum number of labels in the cluster."""
PAGE_MAX: Final = 1_000
"""Maximum number of labelled things in one page, and how many labels end a page."""

Place = tuple[int, str, int]
"""Resource type, resource name and partition: the order of the list."""


def alter_labels(image: MetadataImage, command: AlterLabels) -> Decision:
    """Writes what changes.

    Raises:
        ControllerError: UNSUPPORTED_VERSION; INVALID_REQUEST: a key, a value or a resource type is wrong, or something is named
            twice; UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED; POLICY_VIOLATION: too many labels.
    """
    require_level(image, RECORD_LEVELS[Label], "a label")
    _check_request(command)
    records: list[Label] = []
    more: Counter[tuple[int, str]] = Counter()
    for alteration in command.alterations:
        _check_exists(image, alteration)
        resource = alteration.resource_type, alteration.resource_name
        before = image.labels_of(*resource, alteration.partition)
        after = dict(before)
        for key, value in alteration.changes:
            if before.get(key) != value:
                records.append(Label(*resource, alteration.partition, key, value))
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        if len(after) > LABELS_MAX:
            raise _too_many(f"{_text(alteration)} would have {len(after)} labels, and may have {LABELS_MAX}")
        more[resource] += len(after) - len(before)
    _check_totals(image, more)
    if command.validate_only or not records:
        return Decision((), AlterLabelsReply())
    named = first_few(_record_text(record) for record in records)
    written: tuple[MetadataRecord, ...] = tuple(records)
    return Decision(written, AlterLabelsReply(), happenings=(LabelsChanged(len(records), named),))


def _check_request(command: AlterLabels) -> None:
    count = sum(len(each.changes) for each in command.alterations)
    if not count:
        raise ControllerError(ErrorCode.INVALID_REQUEST, "the request names no label; nothing was done")
    if max(count, len(command.alterations)) > CHANGES_MAX:
        text = f"the request changes {count:,} labels; at most {CHANGES_MAX} are allowed; nothing was done"
        raise ControllerError(ErrorCode.POLICY_VIOLATION, f"{text}; send several requests")
    things = [(each.resource_type, each.resource_name, each.partition) for each in command.alterations]
    if len(set(things)) < len(things):
        raise ControllerError(ErrorCode.INVALID_REQUEST, "the request names a thing twice; nothing was done")
    for each in command.alterations:
        keys = [key for key, _ in each.changes]
        problem = "it names a label twice" if len(set(keys)) < len(keys) else None
        for key, value in each.changes:
            problem = problem or label_key_problem(key) or (None if value is None else label_value_problem(value))
        if problem is not None:
            raise ControllerError(ErrorCode.INVALID_REQUEST, f"{_text(each)}: {problem}; nothing was done")


def _check_exists(image: MetadataImage, alteration: LabelAlteration) -> None:
    name, partition = alteration.resource_name, alteration.partition
    if alteration.resource_type == TOPIC_RESOURCE:
        topic = image.topic(name)
        if topic is None or not WHOLE_RESOURCE <= partition < topic.partition_count:
            raise ControllerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {_text(alteration)}; nothing was done"
            )
    elif alteration.resource_type != BROKER_RESOURCE or partition != WHOLE_RESOURCE:
        raise ControllerError(
            ErrorCode.INVALID_REQUEST,
            f"{_text(alteration)} has no labels: topics (type {TOPIC_RESOURCE}), their partitions, and brokers (type "
            f"{BROKER_RESOURCE}) have; nothing was done",
        )
    elif not (len(name) <= 10 and name.isdecimal() and name == str(int(name)) and int(name) in image.brokers):
        raise ControllerError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"{_text(alteration)} is not registered; nothing was done"
        )


def _check_totals(image: MetadataImage, more: Mapping[tuple[int, str], int]) -> None:
    for resource, count in more.items():
        known = image.labels.get(resource)
        total = count + (0 if known is None else known.label_count)
        if count > 0 and total > TOPIC_LABELS_MAX:
            text = f"{resource_text(*resource)} and its partitions would have {total:,} labels"
            raise _too_many(f"{text}, and may have {TOPIC_LABELS_MAX:,}")
    grown = sum(more.values())
    if grown > 0 and image.label_count + grown > CLUSTER_LABELS_MAX:
        text = f"the cluster would have {image.label_count + grown:,} labels"
        raise _too_many(f"{text}, and may have {CLUSTER_LABELS_MAX:,}")


def _too_many(text: str) -> ControllerError:
    return ControllerError(ErrorCode.POLICY_VIOLATION, f"{text}; nothing was done; remove some first")


def _text(alteration: LabelAlteration) -> str:
    return _thing_text(alteration.resource_type, alteration.resource_name, alteration.partition)


def _thing_text(resource_type: int, name: str, partition: int) -> str:
    whole = resource_text(resource_type, name[:100])
    return whole if partition == WHOLE_RESOURCE else f"partition {partition} of {whole}"


def _record_text(record: Label) -> str:
    return f"{_thing_text(*record[:3])}: {record.key}"


# --- the list ------------------------------------------------------------------------------------------------------------


class LabelledThing(NamedTuple):
    """A topic, a partition or a broker with its labels."""

    place: Place
    labels: Mapping[str, str]


class LabelPage(NamedTuple):
    """A page of labelled things. `next_place`: None after the last page."""

    things: tuple[LabelledThing, ...]
    next_place: Place | None


def list_labels(image: MetadataImage, wanted: str = "", place: Place | None = None, limit: int = 0) -> LabelPage:
    """Lists the things with a label that passes `wanted` (empty: any), each with all its labels, from `place` on (None: the
    first), at most `limit` (0, or above PAGE_MAX: PAGE_MAX). Looks at all labels: for a thread.
    """
    room = limit if 0 < limit <= PAGE_MAX else PAGE_MAX
    found: list[LabelledThing] = []
    label_count = 0
    for thing in _from(image, place):
        if wanted and not has_label(thing.labels, wanted):
            continue
        if len(found) >= room or label_count >= PAGE_MAX:
            return LabelPage(tuple(found), thing.place)
        found.append(thing)
        label_count += len(thing.labels)
    return LabelPage(tuple(found), None)


def _from(image: MetadataImage, place: Place | None) -> Iterator[LabelledThing]:
    resources = image.labels.sorted_keys()
    begin = 0 if place is None else bisect_left(resources, place[:2])
    for resource in resources[begin:]:
        for partition, labels in sorted(image.labels[resource].of.items()):
            thing = (*resource, partition)
            if place is None or thing >= place:
                yield LabelledThing(thing, labels)
