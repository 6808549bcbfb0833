"""Labels: short texts that people and tools attach to topics, partitions and brokers. What a label may look like.

A label has a key and a value: `team=payments`, or `acme.io/tier=` with an empty value. The cluster gives labels no meaning.

    topic orders          team=payments, acme.io/tier=gold
    topic orders, no. 3   hot=yes
    broker 7              zone=b

Labels belong to what they are attached to. Example:
  1. topic orders and its partition 3 have labels;
  2. the topic is deleted: all of its labels are gone, and so are those of its partitions;
  3. a new topic orders begins without labels. A broker's labels end when the broker is unregistered, and survive its restarts.

A filter is a key, `team`, or a key with a value, `team=payments`. Replay and controllers share the limits of this file.
"""

import re
from collections.abc import Mapping
from typing import Final

from metadata_log.format.records import BROKER_RESOURCE, TOPIC_RESOURCE, WHOLE_RESOURCE, Label

LABEL_KEY_CHARS_MAX: Final = 63
LABEL_VALUE_CHARS_MAX: Final = 256
LABELS_MAX: Final = 32
"""Maximum number of labels of one topic, one partition or one broker."""

_KEY: Final = re.compile(rf"[a-z0-9./_-]{{1,{LABEL_KEY_CHARS_MAX}}}")


def label_key_problem(key: str) -> str | None:
    """Say why no label can have this key; None if a label can have it."""
    if _KEY.fullmatch(key):
        return None
    return f"{key!r:.80} is no key of a label: a key has 1 to {LABEL_KEY_CHARS_MAX} of the characters a-z 0-9 . / _ -"


def label_value_problem(value: str) -> str | None:
    """Say why no label can have this value; None if a label can have it."""
    if len(value) > LABEL_VALUE_CHARS_MAX:
        return (
            f"{value[:60]!r}... has {len(value):,} characters: the value of a label has at most {LABEL_VALUE_CHARS_MAX}"
        )
    return None if value.isprintable() else f"{value[:60]!r} has a character that cannot be printed"


def label_problem(label: Label) -> str | None:
    """Say what is wrong with a label; None if nothing is."""
    if label.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE):
        return f"resource type {label.resource_type} has no labels"
    if label.partition < WHOLE_RESOURCE or (label.partition >= 0 and label.resource_type != TOPIC_RESOURCE):
        return f"partition {label.partition} of {label.resource_name!r:.80}"
    return label_key_problem(label.key) or (None if label.value is None else label_value_problem(label.value))


def has_label(labels: Mapping[str, str], wanted: str) -> bool:
    """Return True if the labels pass the filter `wanted`: a key, or key=value."""
    key, equals, value = wanted.partition("=")
    return key in labels and (not equals or labels[key] == value)
