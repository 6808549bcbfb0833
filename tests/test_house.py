"""The size of the house: rooms, files and functions that a reader can hold in the head. `make verify` checks the imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "metadata_log",
    "quorum",
    "broker_agent",
    "clients",
    "service_kit",
    "metaquorum",
    "pyspark_metaquorum",
    "snapshots",
    "watches",
    "scripts",
)
ROOM_FILES_MAX = 20
FILE_LINES_MAX = 500
TEST_LINES_MAX = 700
FUNCTION_LINES_MAX = 60


def files() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_room_has_more_files_than_a_reader_can_survey() -> None:
    """Counts the files directly in the room; `__init__.py` is the room's door and does not count."""
    rooms = {file.parent for file in (*files(), *(ROOT / "tests").rglob("*.py"))}
    assert len(rooms) > len(ROOMS)
    sizes = {room: sum(file.name != "__init__.py" for file in room.glob("*.py")) for room in rooms}
    assert not {str(room.relative_to(ROOT)): size for room, size in sizes.items() if size > ROOM_FILES_MAX}


def test_no_file_is_longer_than_a_reader_will_read() -> None:
    """A file of tests may be longer, because each test is read alone."""
    caps = dict.fromkeys(files(), FILE_LINES_MAX) | dict.fromkeys((ROOT / "tests").rglob("*.py"), TEST_LINES_MAX)
    lengths = {file: len(file.read_text().splitlines()) for file in caps}
    assert not {str(file.relative_to(ROOT)): lines for file, lines in lengths.items() if lines > caps[file]}


def test_every_function_fits_a_screen() -> None:
    too_long = [
        f"{file.relative_to(ROOT)}:{function.lineno} {function.name}: {lines} lines"
        for file in files()
        for function in functions(file)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not too_long
