"""The pages of the documentation that are made from the code say what the code says, and every name in the others exists."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_agent.data_plane.metric_table import PARTITION_METRICS
from broker_agent.metric_table import BROKER_METRICS
from quorum.controller.topics.config_keys import KEYS
from quorum.wire.reporting.metric_table import CONTROLLER_METRICS
from service_kit.process.metrics import Kind, Metric

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"metrics": "metrics", "config": "configuration", "cli": "cli"}
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/runbook.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "deploy" / "config").glob("*.yaml")),
]
OTHER_NAMES = {"metadata.version", "node.names", "node.crt", "node.key"}
"""Dotted words that begin like a key and are none: a feature, a key within its section, and files."""
CLIENT_NAMES = {"metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.rebootstrap.trigger.ms"}
"""Kafka's names for what a client is configured with: no daemon has these keys."""


def run(script: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / f"{script}_page.py"))


def config_keys() -> dict[str, set[str]]:
    """The keys of each daemon."""
    script = run("config")
    return {daemon: {key.name for key in script["keys"](model)} for daemon, model in script["DAEMONS"].items()}


@pytest.mark.parametrize("script", PAGES)
def test_the_page_is_fresh(script: str) -> None:
    """A page that is older than the code misleads operators."""
    page = f"docs/{PAGES[script]}.md"
    is_fresh = (ROOT / page).read_text() == run(script)["page"]()
    assert is_fresh, f"{page} is stale: run `make pages`, and commit the page with the code"


def test_every_config_key_has_one_short_docstring() -> None:
    """It is the cell of a table, and all that an operator reads of the key."""
    script = run("config")
    for model in script["DAEMONS"].values():
        for key in script["keys"](model):
            assert 10 <= len(key.text) <= 160 and key.text.endswith("."), key
            assert key.type and key.default, key


def names_in_documents(pattern: str) -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for name in re.findall(pattern, document.read_text()):
            yield document.name, name


def test_every_metric_in_the_documents_exists() -> None:
    """An alert on a metric that was renamed is silent for ever. (docs/metrics.md, which is generated, has all of them.)"""
    rows: tuple[Metric[Any], ...] = (*CONTROLLER_METRICS, *BROKER_METRICS, *PARTITION_METRICS)
    known = {row.full_name for row in rows}
    known |= {
        row.full_name + suffix for row in rows if row.kind is Kind.HISTOGRAM for suffix in ("_bucket", "_count", "_sum")
    }
    unknown = {
        (where, name) for where, name in names_in_documents(r"\bmetaquorum_[a-z0-9_]*[a-z0-9]\b") if name not in known
    }
    assert not unknown


def test_every_config_key_in_the_documents_exists() -> None:
    """A word with dots that begins as a key does is a key of a daemon, a topic or a broker."""
    daemons = set().union(*config_keys().values())
    known = daemons | OTHER_NAMES | CLIENT_NAMES | {key for keys in KEYS.values() for key in keys}
    first = {key.partition(".")[0] for key in daemons if "." in key}
    files = (".py", ".md", ".yaml", ".proto", ".txt", ".json", ".html")
    unknown = {
        (where, name)
        for where, name in names_in_documents(r"(?<![\w./@-])([a-z]+(?:\.[a-z]+)+)(?![\w/*(-]|\.\w)")
        if name.partition(".")[0] in first and name not in known and not name.endswith(files)
    }
    assert not unknown
