"""Rules of findings: the page and the code agree, and a finding has the severity of its rule."""

import re
from pathlib import Path

from snapshots.offline.audit.findings import RULES, Neighbour, Severity, error

PAGE = Path(__file__).resolve().parents[3] / "docs" / "offline.md"


def test_the_page_lists_the_rules_of_the_code() -> None:
    """An operator looks a rule up in docs/offline.md. If this test fails, write the row of `RULES` into the page."""
    listed = re.findall(r"^\| `([a-z-]+)` \| (error|warning|info) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert listed == [(name, rule.severity.value, rule.meaning) for name, rule in RULES.items()]


def test_a_meaning_is_one_short_line() -> None:
    for name, rule in RULES.items():
        assert 10 < len(rule.meaning) <= 100 and not rule.meaning.endswith("."), name


def test_a_finding_has_the_severity_of_its_rule() -> None:
    assert error("leader-fenced", "why").severity is Severity.ERROR
    assert error("fenced-in-isr", "why").severity is Severity.WARNING


def test_a_finding_as_a_document_has_its_records() -> None:
    finding = error("unknown-record", "why", node="controller 1", offset=7)
    finding = finding._replace(records=(Neighbour(7, "Unknown(50)", "{}"),))
    assert finding.as_json()["records"] == [{"offset": 7, "type": "Unknown(50)", "data": "{}"}]
