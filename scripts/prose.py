"""Measures how hard the prose of each room is to read, and fails when a room gets harder.

    python scripts/prose.py                    a table of all rooms
    python scripts/prose.py quorum/core        the files of one room, the worst first
    python scripts/prose.py --worst FILE...    the sentences that cost a file its numbers, with line numbers
    python scripts/prose.py --check            exit code 1 when a room is above its cap (scripts/prose_caps.toml)
    python scripts/prose.py --write            lowers the caps to today's numbers; a cap is never raised by this

A room is a package directory with its direct files, or a group of documents. In `.py` files docstrings and comments count,
in `.proto` files comments, in `.md` files all text outside of headings, code blocks and link targets. Tests are not measured.
Three numbers (the rules are in STYLE.md):

    openings   of 100 sentences, sentences with a clause first ("Who asks is ...", "What was lost ..."); questions don't count
    pronouns   of 100 words, words like "it", "that", "one" and "nobody": the reader has to look back for a noun
    cells      table cells with more than 160 characters
"""

import ast
import io
import re
import signal
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CAPS = Path(__file__).with_name("prose_caps.toml")
PACKAGES = (
    "metadata_log",
    "quorum",
    "broker_agent",
    "snapshots",
    "watches",
    "clients",
    "service_kit",
    "metaquorum",
    "pyspark_metaquorum",
    "examples",
    "benchmarks",
    "scripts",
    "spec",
)
GROUPS = {
    "README": ("README.md",),
    "ARCHITECTURE": ("ARCHITECTURE.md",),
    "STYLE, CONTRIBUTING, CHANGELOG": ("STYLE.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    "docs": ("docs/*.md",),
    "deploy/runbook": ("deploy/runbook.md",),
    "spec/README": ("spec/README.md",),
    "proto": ("proto/**/*.proto",),
}
GENERATED = {f"docs/{name}.md" for name in ("transitions", "metrics", "configuration", "cli", "api")}

OPENINGS_MAX = 1.0
PRONOUNS_MAX = 8.0
CELL_CHARACTERS_MAX = 160
OPENS_WITH_CLAUSE = re.compile(
    r"\W*(who|whom|whose|whoever|what|whatever|whichever|where|wherever|whether"
    r"|how(?! (?:many|much|long|often|far|old)\b))\b",
    re.IGNORECASE,
)
PRONOUNS = frozenset(
    {
        "it",
        "its",
        "that",
        "those",
        "this",
        "these",
        "they",
        "them",
        "one",
        "ones",
        "what",
        "who",
        "whom",
        "whose",
        "which",
    }
    | {"there", "nobody", "somebody", "anybody", "whoever", "whatever"}
)
NO_PROSE = re.compile(r"#\s*(noqa|type:|fmt:|pragma|!|mypy:|ruff:)")
NO_PROSE_IN_MARKDOWN = re.compile(r"#|    |```|<!--|\[[^\]]*\]:|[|\s:-]*$")
NEW_PARAGRAPH = re.compile(r"\s*([-*•|]|\d+[.)]|\([a-z\d]\))\s|\s*\S+( \S+)?\s{3,}\S")
SENTENCE_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<=[.!?])[\"')*]*\s+")


class Sentence(NamedTuple):
    """A sentence and the line where its paragraph begins."""

    line: int
    text: str

    @property
    def words(self) -> list[str]:
        return re.findall(r"[a-z][a-z'-]*", self.text.lower())

    @property
    def pronouns(self) -> int:
        return sum(word in PRONOUNS for word in self.words)

    @property
    def opens_with_clause(self) -> bool:
        asks = self.text.rstrip("\"')*_").endswith("?")
        return len(self.words) > 1 and not asks and OPENS_WITH_CLAUSE.match(self.text) is not None


class Prose(NamedTuple):
    """All sentences of a file or a room, and its table cells that are too long."""

    sentences: list[Sentence]
    long_cells: list[Sentence]

    @property
    def words(self) -> int:
        return sum(len(sentence.words) for sentence in self.sentences)

    @property
    def openings(self) -> float:
        return round(100 * sum(each.opens_with_clause for each in self.sentences) / max(1, len(self.sentences)), 1)

    @property
    def pronouns(self) -> float:
        return round(100 * sum(each.pronouns for each in self.sentences) / max(1, self.words), 1)

    @property
    def cells(self) -> int:
        return len(self.long_cells)


Line = tuple[int, str]


def sentences_of(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Splits lines into paragraphs (at blank lines, list items and table rows), and paragraphs into sentences."""
    paragraph: list[Line] = []
    for number, text in [*lines, (0, "")]:
        if paragraph and (not text.strip() or NEW_PARAGRAPH.match(text)):
            yield from _split(paragraph)
            paragraph = []
        if text.strip():
            paragraph.append((number, text.strip()))


def _split(paragraph: list[Line]) -> Iterator[Sentence]:
    text = re.sub(r"``?[^`]*``?", "`x`", " ".join(text for _, text in paragraph))
    starts = [number for number, line in paragraph for _ in re.sub(r"``?[^`]*``?", "`x`", line).split()]
    at = 0
    for part in SENTENCE_END.split(re.sub(r"^([-*•]|\d+[.)])\s+", lambda item: "_ " * len(item[0].split()), text)):
        sentence = part.replace("_ ", "").strip()
        if re.search("[A-Za-z]", sentence):
            yield Sentence(starts[min(at, len(starts) - 1)], sentence)
        at += len(part.split())


def prose_of_python(source: str) -> Prose:
    """Docstrings (also those below fields and constants) and comments."""
    nodes = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    blocks = [
        [(node.lineno + at, text) for at, text in enumerate(node.value.split("\n"))]
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    blocks.extend(_comments(source))
    return Prose([sentence for block in sorted(blocks) for sentence in sentences_of(block)], [])


def _comments(source: str) -> Iterator[list[Line]]:
    """Each comment, with the lines below that continue it in the same column."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline) if "#" in source else iter(())
    comments = [token for token in tokens if token.type == tokenize.COMMENT and not NO_PROSE.match(token.string)]
    keyed = ((token.start[0] - at, token.start[1], token) for at, token in enumerate(comments))
    for _, block in groupby(keyed, key=lambda each: each[:2]):
        yield [(token.start[0], token.string.lstrip("#")) for _, _, token in block]


def prose_of_markdown(source: str) -> Prose:
    """All but code blocks, headings, link targets and the rulers of tables; each cell of a table is a paragraph."""
    lines: list[Line] = []
    long_cells: list[Sentence] = []
    in_code = False
    for number, text in enumerate(source.split("\n"), 1):
        if text.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
        plain = re.sub(r"\]\([^)]*\)", "]", text)
        if in_code or NO_PROSE_IN_MARKDOWN.match(text):
            lines.append((number, ""))
        elif text.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", plain)[1:-1]]
            lines.extend((number, part) for cell in cells for part in (cell, ""))
            long_cells.extend(Sentence(number, cell) for cell in cells if len(cell) > CELL_CHARACTERS_MAX)
        else:
            lines.append((number, plain))
    return Prose(list(sentences_of(lines)), long_cells)


def prose_of_proto(source: str) -> Prose:
    """Comments: each comment is a block of lines that begin with `//`."""
    lines = [(number, text.strip()) for number, text in enumerate(source.split("\n"), 1)]
    return Prose(list(sentences_of((number, text[2:] if text.startswith("//") else "") for number, text in lines)), [])


PROSE_OF = {".py": prose_of_python, ".md": prose_of_markdown, ".proto": prose_of_proto}


def prose_of(path: Path) -> Prose:
    return PROSE_OF[path.suffix](path.read_text())


def together(proses: Iterable[Prose]) -> Prose:
    sentences, long_cells = zip(*proses, strict=True)
    return Prose(list(chain(*sentences)), list(chain(*long_cells)))


def rooms() -> dict[str, dict[str, Prose]]:
    """The files of each room, in the order of the table. Generated documents are left out: their text is in the code."""
    found: dict[str, dict[str, Prose]] = {}
    for group, patterns in GROUPS.items():
        for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern) if _name(path) not in GENERATED):
            found.setdefault(group, {})[_name(path)] = prose_of(path)
    for path in sorted(
        path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name
    ):
        found.setdefault(_name(path.parent), {})[_name(path)] = prose_of(path)
    return found


def _name(path: Path) -> str:
    return path.resolve().relative_to(ROOT).as_posix()


class Cap(NamedTuple):
    openings: float = OPENINGS_MAX
    pronouns: float = PRONOUNS_MAX
    cells: int = 0


def read_caps() -> dict[str, Cap]:
    return {room: Cap(**cap) for room, cap in tomllib.loads(CAPS.read_text()).items()} if CAPS.exists() else {}


def write_caps(proses: dict[str, Prose]) -> None:
    old = read_caps()
    lines = [
        "# The most that each room may have; a room that is not here has the final caps: 1 opening in 100 sentences,"
    ]
    lines += ["# 8 pronouns in 100 words, no long table cell. Written by  python scripts/prose.py --write", ""]
    for room, prose in proses.items():
        today = Cap(max(OPENINGS_MAX, prose.openings), max(PRONOUNS_MAX, prose.pronouns), prose.cells)
        before = old.get(room, Cap()) if old else today
        cap = Cap(min(today[0], before[0]), min(today[1], before[1]), min(today[2], before[2]))
        if cap != Cap():
            lines.append(f'"{room}" = {{ openings = {cap.openings}, pronouns = {cap.pronouns}, cells = {cap.cells} }}')
    CAPS.write_text("\n".join(lines) + "\n")


def uncommitted() -> set[str] | None:
    """The files that differ from the last commit, and new files; None without git."""
    found: set[str] = set()
    for command in (("diff", "--name-only", "--relative", "HEAD"), ("ls-files", "--others", "--exclude-standard")):
        try:
            run = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        found.update(run.stdout.splitlines())
    return found


def blame(files: Iterable[str], changed: set[str] | None) -> str:
    """The end of the line about a room with these files: the changed files of the room. Empty without git."""
    if changed is None:
        return ""
    mine = sorted(changed.intersection(files))
    return f"; changed: {', '.join(mine)}" if mine else "; git shows no uncommitted change in this room"


def check(proses: dict[str, Prose], files: Mapping[str, Iterable[str]] = MappingProxyType({})) -> int:
    """Prints each number above its cap. `files` has the names of each room's files."""
    caps, changed = read_caps(), uncommitted()
    over = [
        f"{room}: {getattr(prose, number)} {number}, at most {getattr(caps.get(room, Cap()), number)}"
        f"{blame(files.get(room, ()), changed)}"
        for room, prose in proses.items()
        for number in Cap._fields
        if getattr(prose, number) > getattr(caps.get(room, Cap()), number)
    ]
    if over:
        print("\n".join(over))
        print("The prose of these rooms has become harder to read. See the sentences with")
        print("    make prose ROOM=<room>    and    python scripts/prose.py --worst <file>")
        print("and give each a named subject (STYLE.md, prose rules). Don't raise the cap.")
    return 1 if over else 0


def table(rows: dict[str, Prose]) -> None:
    width = max(map(len, rows), default=0)
    print(f"{'':{width}}  openings  pronouns  cells  sentences    words")
    for name, prose in rows.items():
        numbers = f"{prose.openings:7.1f} %  {prose.pronouns:8.1f}  {prose.cells:5}  {len(prose.sentences):9}  {prose.words:7}"
        print(f"{name:{width}} {numbers}")


def worst(paths: Iterable[Path]) -> None:
    """The sentences that open with a clause, those with two or more pronouns in a high density, and the long cells."""
    for path in paths:
        prose = prose_of(path)
        table({_name(path): prose})
        for each in prose.sentences:
            dense = each.pronouns >= 2 and each.pronouns * 100 > PRONOUNS_MAX * 1.25 * len(each.words)
            if each.opens_with_clause or dense:
                print(
                    f"{each.line:6}: {'OPENS ' if each.opens_with_clause else '      '}{each.pronouns or '-'}  {each.text}"
                )
        for cell in prose.long_cells:
            print(f"{cell.line:6}: CELL of {len(cell.text)}  {cell.text[:100]} ...")


def main(arguments: list[str]) -> int:
    match arguments:
        case ["--worst", *names]:
            worst(
                file for name in map(Path, names) for file in (sorted(name.glob("*.py")) if name.is_dir() else [name])
            )
            return 0
    found = rooms()
    proses = {room: together(files.values()) for room, files in found.items()}
    match arguments:
        case []:
            table(proses | {"all": together(proses.values())})
        case ["--check"]:
            return check(proses, found)
        case ["--write"]:
            write_caps(proses)
        case [room] if room in found:
            table(dict(sorted(found[room].items(), key=lambda file: (-file[1].openings, -file[1].pronouns))))
        case _:
            print(f"no such room: {' '.join(arguments)}; rooms: {', '.join(found)}")
            return 2
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for  ... | head
    sys.exit(main(sys.argv[1:]))
