"""What the documents point at is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    *(
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "STYLE.md",
        "CHANGELOG.md",
        "deploy/runbook.md",
        "spec/README.md",
    ),
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
]

LAWFUL = ("metadata_log", "quorum", "broker_agent", "clients", "service_kit", "snapshots", "watches", "tests/sim")
"""Rooms whose comments name laws."""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    targets = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


def anchors(document: Path) -> set[str]:
    """The names that a link can use behind `#`, by GitHub's rule for headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_into_a_page_name_a_heading(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^):#]*)#([^)]+)\)", document.read_text())
    assert [
        (page, anchor) for page, anchor in links if anchor not in anchors(document.parent / page if page else document)
    ] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_named_tests_and_files_exist(name: str) -> None:
    """A promise whose test was renamed is a promise without a test."""
    text = (ROOT / name).read_text()
    for path, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / path).is_file(), path
        if test:
            assert re.search(rf"def {test}\b", (ROOT / path).read_text()), f"{path} has no {test}"


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "CHANGELOG.md"])
def test_named_paths_exist(name: str) -> None:
    """A file that has moved takes the documents along. (The changelog tells of former places.)"""
    document = ROOT / name
    paths = re.findall(r"`((?:\w+/)+\w+\.(?:py|md|proto|toml|sh|json|yaml))\b", document.read_text())
    places = (ROOT, ROOT / "quorum", document.parent)
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_tests_named_without_their_room_exist_once(name: str) -> None:
    """A table of one room leaves the room out: `test_leader.py::test_x`."""
    for file, test in re.findall(r"`(test_\w+\.py)::(\w+)`", (ROOT / name).read_text()):
        homes = [path for path in sorted((ROOT / "tests").rglob(file)) if re.search(rf"def {test}\b", path.read_text())]
        assert len(homes) == 1, f"{file}::{test}: found in {homes}"


RULES = {
    "docs/rules.md": 80,
    "docs/controller-rules.md": 80,
    "docs/client-metadata.md": 80,
    "docs/brokers.md": 40,
    "docs/consumer.md": 30,
    "docs/producer.md": 40,
    "docs/partition-logs.md": 14,
    "docs/partition-service.md": 15,
    "docs/partition-replicas.md": 30,
}
"""The pages with tables of rules, and the least number of rows of each."""


@pytest.mark.parametrize("name", RULES)
def test_each_rule_has_a_test_or_a_reason(name: str) -> None:
    tables = re.findall(r"^\| rule \|.*\n\|.*\n((?:\|.*\n)+)", (ROOT / name).read_text() + "\n", re.MULTILINE)
    rules = [row for table in tables for row in table.splitlines()]
    assert len(rules) >= RULES[name], name
    assert [row for row in rules if not re.search(r"`tests/|`test_\w+\.py::|does not apply: ", row)] == []


def test_every_law_that_the_code_or_a_page_names_is_explained() -> None:
    """A code such as (M2) in a comment is of use only with the sentence behind it."""
    code = r"\(([RDCSMFLT]\d+)\)|\b([RDCSMFLT]\d+) (?:and|of|that)\b"
    explained = set(re.findall(r"\b([RDCSMFLT]\d+)\b", (ROOT / "docs/laws.md").read_text()))
    files = [*(ROOT / name for name in DOCUMENTS if name != "CHANGELOG.md")]
    files += [path for room in LAWFUL for path in sorted((ROOT / room).rglob("*.py"))]
    named = {(path.name, first or second) for path in files for first, second in re.findall(code, path.read_text())}
    assert len(named) > 20
    assert {(name, law) for name, law in named if law not in explained} == set()


def test_every_check_of_a_law_exists() -> None:
    """docs/simulator.md names the function that checks each law."""
    methods = {
        f"{file.stem}.{kind.name}.{method.name}"
        for file in (ROOT / "tests/sim").rglob("*.py")
        for kind in ast.parse(file.read_text()).body
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef)
    }
    named = re.findall(r"`((?:\w+\.)?[A-Z]\w+\.\w+)`", (ROOT / "docs/simulator.md").read_text())
    assert len(named) > 40
    assert [
        name for name in named if not any(method.endswith(f".{name}") or method == name for method in methods)
    ] == []
