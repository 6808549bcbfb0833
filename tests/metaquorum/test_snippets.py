"""The programs of docs/clients.md, as a user copies them. (tests/processes/test_tls.py runs the program with TLS.)"""

import re
from pathlib import Path
from typing import Any

import pytest

from quorum.wire.server import serve
from tests.quorum.wire.fake_node import ANY_PORT, IDENTITY, FakeNode

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (ROOT / "docs" / "clients.md").read_text().partition("### TLS from Python")[0]
PROGRAMS = re.findall(r"```python\n(.*?)```", PYTHON, re.DOTALL)
PRINTED = ("['orders']\n", "done\n{'num.io.threads': '16'}\n")


@pytest.mark.parametrize(("program", "printed"), list(zip(PROGRAMS, PRINTED, strict=True)))
async def test_a_program_of_the_page_runs(program: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the addresses and the broker differ: the cluster of this test has one controller, and the brokers 0 to 2."""
    async with serve(FakeNode(), IDENTITY, ANY_PORT, grace_s=0) as port:
        program = program.replace("127.0.0.1:9001", f"127.0.0.1:{port}").replace('"101"', '"1"')
        names: dict[str, Any] = {}
        exec(program.removesuffix("asyncio.run(main())\n"), names)
        await names["main"]()
    assert capsys.readouterr().out == printed
