"""docs/api.md says what the .proto files and the services say."""

import re
import runpy
from pathlib import Path
from typing import Final

import pytest

from metadata_log.format.errors import ErrorCode
from tests.quorum.wire.test_refusals import TABLE

ROOT: Final = Path(__file__).resolve().parents[3]
SCRIPT: Final = runpy.run_path(str(ROOT / "scripts" / "api_page.py"))
COMMENTS: Final[dict[str, str]] = SCRIPT["comments"]()


def _named(comment: str) -> set[str]:
    return {code.name for code in ErrorCode} & set(re.findall(r"[A-Z_]{6,}", comment))


def test_the_page_is_fresh() -> None:
    """If this fails: python scripts/api_page.py, and read the diff."""
    assert (ROOT / "docs" / "api.md").read_text() == SCRIPT["page"]()


def test_everything_has_a_comment() -> None:
    """Each service, method, message, field, enum and value: a stranger's editor shows these comments, and nothing else."""
    assert [name for name, comment in COMMENTS.items() if not comment] == []


@pytest.mark.parametrize("rpc", TABLE)
def test_a_method_s_comment_names_its_errors(rpc: str) -> None:
    """Those that its service names hold for each of its methods; a stream's calls have those of the methods."""
    service = rpc.split(".")[0]
    known = _named(COMMENTS[rpc]) | _named(COMMENTS[service])
    if rpc == "AdminService.Submit":
        known |= _named(COMMENTS["AdminService.CreateTopics"])
    assert {row.code.name for row in TABLE[rpc]} <= known
