"""`scripts/prose.py` counts what a reader stumbles over, and nothing else."""

import runpy
from pathlib import Path

PROSE = runpy.run_path(str(Path(__file__).resolve().parents[1] / "scripts" / "prose.py"))

PYTHON = '''"""What a node keeps.  The leader sends it.

Whether `it` is so? How many batches there are.
"""
LIMIT = 3  # noqa: F401
"""Maximum number of requests."""
# The follower truncates
# its log. Who asks is told.
TEXT = "Who is never counted"
'''

MARKDOWN = f"""# What a heading says

Where the leader is, nobody knows; see [that](docs/it.md).

```
Who reads code?
```

| what | meaning |
|---|---|
| epoch | {"a number " * 20} |
- Whose turn is next
- The voter, e.g. 2, votes.
"""

PROTO = """// What a service does. The leader
// answers.
service AdminService {
  // Whose id is so.
  int32 id = 1;  // not counted: comments have lines of their own
}
"""


def openings(prose: object) -> list[str]:
    return [each.text for each in prose.sentences if each.opens_with_clause]  # type: ignore[attr-defined]


def test_docstrings_and_comments_are_counted_and_other_strings_are_not() -> None:
    """A question and "How many" are no clauses; code in backticks is no pronoun; `noqa` is no comment."""
    prose = PROSE["prose_of_python"](PYTHON)
    assert openings(prose) == ["What a node keeps.", "Who asks is told."]
    assert [(each.line, each.pronouns) for each in prose.sentences] == [
        (1, 1), (1, 1), (3, 0), (3, 1), (6, 0), (7, 1), (8, 1),
    ]  # fmt: skip


def test_markdown_counts_without_headings_code_and_link_targets() -> None:
    """Each cell of a table and each item of a list is a sentence of its own."""
    prose = PROSE["prose_of_markdown"](MARKDOWN)
    assert openings(prose) == ["Where the leader is, nobody knows; see [that].", "Whose turn is next"]
    assert [cell.line for cell in prose.long_cells] == [11]
    assert prose.sentences[-1].text == "The voter, e.g. 2, votes."


def test_comments_of_proto_files_are_counted() -> None:
    """Each block of `//` lines is a paragraph."""
    prose = PROSE["prose_of_proto"](PROTO)
    assert openings(prose) == ["What a service does.", "Whose id is so."]
    assert [(each.line, each.text) for each in prose.sentences][1] == (1, "The leader answers.")


def test_a_number_above_its_cap_fails_and_says_what_to_do(capsys: object) -> None:
    """A room without a cap of its own has the final caps."""
    hard, easy = PROSE["prose_of_markdown"]("Who asks is told."), PROSE["prose_of_markdown"]("The leader answers.")
    assert PROSE["check"]({"a new room": easy}) == 0
    assert PROSE["check"]({"a new room": hard}) == 1
    printed = capsys.readouterr().out  # type: ignore[attr-defined]
    assert "a new room: 100.0 openings, at most 1.0" in printed
    assert "--worst" in printed


def test_a_room_above_its_cap_names_the_files_that_are_not_committed() -> None:
    """A contributor sees at once if the own change is the cause. Without git, nothing is said."""
    blame = PROSE["blame"]
    assert blame(["quorum/a.py", "quorum/b.py"], {"quorum/b.py", "README.md"}) == "; changed: quorum/b.py"
    assert blame(["quorum/a.py"], {"README.md"}) == "; git shows no uncommitted change in this room"
    assert blame(["quorum/a.py"], None) == ""
