"""The programs of docs/coordination.md, as a user copies them, against a cluster in memory."""

import re
from pathlib import Path
from typing import Any

import pytest

from clients.blocking.loop_thread import LoopThread
from tests.clients.fake_entities import FakeCluster, nodes

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coordination.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = (
    "nothing was done; a later write is there: True\nTrue ['b/7']\n",
    "True 1\n0\n",
    "written 7\ndeleted 7\n",
    "True True\n",
    "True ['7']\n",
)


@pytest.mark.parametrize(("program", "printed"), list(zip(PROGRAMS, PRINTED, strict=True)))
def test_a_program_of_the_page_runs(program: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the addresses differ."""
    world = LoopThread()
    serving = nodes(FakeCluster(), 2)
    first, second = world.run(serving.__aenter__())
    try:
        program = program.replace("127.0.0.1:9001", first.target).replace("127.0.0.1:9002", second.target)
        names: dict[str, Any] = {}
        exec(program, names)
    finally:
        world.run(serving.__aexit__(None, None, None))
        world.close()
    assert capsys.readouterr().out == printed
