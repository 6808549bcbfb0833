"""What the documents point at is there."""

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


def test_each_rule_has_a_test_or_a_reason() -> None:
    rows = [line for line in (ROOT / "docs/rules.md").read_text().splitlines() if line.startswith("| ")]
    rules = [row for row in rows if not row.startswith("| rule |")]
    assert len(rules) > 80
    assert [row for row in rules if "`tests/" not in row and "does not apply: " not in row] == []
