"""The whole page: self-contained, without scripts, readable on paper, on a phone and in dark mode.

The page begins with the verdict, and a table of contents. Each section and each finding has an address, so that a message can
point to it: `report.html#elections`, `report.html#finding-3`.
"""

from html import escape
from importlib.resources import files
from typing import Final

from snapshots.offline.audit.result import AuditResult
from snapshots.offline.report.audit_sections import audit_sections, findings_section, headline, verdict
from snapshots.offline.report.facts import Facts
from snapshots.offline.report.history_sections import history_sections
from snapshots.offline.report.html import contents, time_text

_STYLE: Final = files(__package__).joinpath("report.css")  # also in the zip of a bundle


def report_html(result: AuditResult, history: Facts | None = None) -> str:
    """Return the page of an audit; with `history`, also of what the log tells about its cluster."""
    cluster = next((log.identity.cluster_id for log in result.logs if log.identity), "unknown cluster")
    title = "Cluster report" if history else "Metadata log audit"
    sections = [
        *findings_section(result),
        *(history_sections(history) if history else ()),
        *audit_sections(result),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} of {escape(cluster)}</title><style>{_STYLE.read_text()}</style></head><body><main>"
        f'<h1>{title}</h1><p class="subtitle">Cluster <code>{escape(cluster)}</code>{_period(result)}</p>'
        f"{verdict(result)}{headline(result)}{contents(sections)}"
        + "".join(section.html() for section in sections)
        + "<footer>Times are the log's own, in UTC. An end offset is that of the next record.</footer></main></body></html>\n"
    )


def _period(result: AuditResult) -> str:
    if not result.nodes:
        return ""
    first = min(numbers.first_ms for numbers in result.nodes.values())
    last = max(numbers.last_ms for numbers in result.nodes.values())
    return f", from {time_text(first)} to {time_text(last)} UTC"
