"""Plans as files, in the format of Kafka's `kafka-reassign-partitions`.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [104, 102, 103]}, ...]}

Other keys, such as Kafka's `log_dirs`, are not read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from quorum.cli.shared_options import INT32_MAX
from quorum.cli.text_file import read_text
from quorum.controller.partitions.reassignment.rebalancing import Assignments, Place, Replicas

FILE_BYTES_MAX: Final = 256 << 20
"""Maximum size of a plan's file: two million partitions with three replicas each have half of it."""


_SHOWN_CHARS_MAX: Final = 60
"""Maximum number of characters of a wrong value in an error."""


def read_plan(path: Path) -> dict[Place, Replicas]:
    """Returns the plan in the file.

    Raises:
        ValueError: the file has a mistake; the message names the place.
    """
    document = _document(path)
    if not isinstance(document, dict) or document.get("version") != 1:
        raise ValueError('an object with "version": 1 expected')
    entries = document.get("partitions")
    if not isinstance(entries, list):
        raise ValueError('a list under "partitions" expected')
    plan: dict[Place, Replicas] = {}
    for index, entry in enumerate(entries):
        place, replicas = _entry(index, entry)
        if place in plan:
            raise ValueError(f"partition {place[1]} of topic {place[0]} is there twice")
        plan[place] = replicas
    return plan


def _document(path: Path) -> Any:
    try:
        text = read_text(path, FILE_BYTES_MAX)
        if not text.strip():
            raise ValueError("the file is empty")
        return json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError) as e:
        raise ValueError(f"not JSON: {e}") from e
    except RecursionError as e:
        raise ValueError("not a plan: the JSON is nested too deep") from e


def _entry(index: int, entry: Any) -> tuple[Place, Replicas]:
    where = f"partitions[{index}]"
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: an object expected")
    topic, partition, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
    if not isinstance(topic, str):
        raise ValueError(f'{where}: a name under "topic" expected')
    if not isinstance(partition, int) or not _is_number(partition):
        raise ValueError(f'{where}: a number under "partition" expected, 0 or more, not {_shown(partition)}')
    if not isinstance(replicas, list) or not all(map(_is_number, replicas)):
        raise ValueError(
            f'{where}: a list of broker ids under "replicas" expected, each 0 or more, not {_shown(replicas)}'
        )
    return (topic, partition), tuple(replicas)


def _shown(value: Any) -> str:
    """The value in JSON, cut to a readable length."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]} (cut)"


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX


def plan_document(plan: Assignments, before: Mapping[Place, Replicas] | None = None) -> dict[str, Any]:
    """Returns the document of a plan. `before`: the replicas that each partition has now, as the key `current`."""
    entries: list[dict[str, Any]] = []
    for (topic, partition), replicas in plan.items():
        entry = {"topic": topic, "partition": partition, "replicas": list(replicas)}
        if before is not None:
            entry["current"] = list(before[topic, partition])
        entries.append(entry)
    return {"version": 1, "partitions": entries}
