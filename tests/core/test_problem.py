"""The codes of problems: each code is explained in the code, and has a row in the runbook."""

import ast
import inspect
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

from quorum.core.protocol import problem
from quorum.core.protocol.problem import Problem, ProblemCode, found, texts

RUNBOOK = Path(__file__).resolve().parents[2] / "deploy" / "runbook.md"


def test_every_code_has_one_row_in_the_runbook_and_every_row_a_code() -> None:
    """A reworded text must not break an operator's search."""
    section = RUNBOOK.read_text().split("### Problems")[1].split("\n### ")[0]
    rows = Counter(re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE))
    assert rows == Counter(code.value for code in ProblemCode)


def test_every_code_says_what_it_means() -> None:
    """Each code has one docstring, which the documentation shows."""
    tree = ast.parse(inspect.getsource(problem))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ProblemCode").body[1:]
    pairs = [(code, text) for code, text in pairwise(body) if isinstance(code, ast.Assign)]
    assert len(pairs) == len(ProblemCode)
    assert all(isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) for _, text in pairs)


def test_a_pair_without_a_text_is_no_problem() -> None:
    """An empty text means no problem."""
    assert found((ProblemCode.DISK_FULL, ""), (ProblemCode.FLUSH_HANGS, None), (ProblemCode.LOG_DAMAGED, "x")) == (
        Problem(ProblemCode.LOG_DAMAGED, "x"),
    )
    assert texts([]) == ""
