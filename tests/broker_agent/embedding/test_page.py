"""docs/embedding.md names calls that are there: a reader has nothing else."""

import inspect
import re
from pathlib import Path

import metaquorum
from metaquorum import Agent, Lead, MetadataView

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "embedding.md").read_text()


def table_below(heading: str) -> list[str]:
    """The first cells of the first table below a heading."""
    lines = PAGE.split(f"{heading}\n", 1)[1].splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("|")]
    cells = list[str]()
    for line in lines[rows[0] + 2 :]:
        if not line.startswith("|"):
            break
        cells.append(line.split("|")[1])
    return cells


def test_the_calls_of_the_page_are_those_of_the_agent() -> None:
    """Each is there and has a docstring; and no public method of the agent is left out of the page."""
    named = set(re.findall(r"(?<![/\w])agent\.(\w+)", PAGE))
    public = {name for name, _ in inspect.getmembers(Agent) if not name.startswith("_")}
    assert named <= public
    assert public - named <= {"applied", "endpoints", "offline_directories"}, "names that the page need not have"
    assert all(inspect.getdoc(getattr(Agent, name)) for name in named - {"broker_id"})


def test_the_look_ups_of_the_page_are_those_of_the_view() -> None:
    look_ups = [name for cell in table_below("### The view of the cluster") for name in re.findall(r"`(\w+)\(", cell)]
    assert len(look_ups) >= 10
    assert [name for name in look_ups if not callable(getattr(MetadataView, name, None))] == []


def test_the_errors_of_the_page_can_be_imported() -> None:
    errors = [name for cell in table_below("## Errors") for name in re.findall(r"`(\w+)`", cell)]
    assert len(errors) >= 9
    assert [name for name in errors if not issubclass(getattr(metaquorum, name), Exception)] == []


def test_the_fields_of_an_assignment_are_all_on_the_page() -> None:
    fields = set(Lead.__dataclass_fields__) | {"replica"}
    (sentence,) = re.findall(r"Each of the first four has (.*?)\. An assignment", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == fields
