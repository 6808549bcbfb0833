"""The front door: what a program of somebody else imports, and what the wheel has to hold for that."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import metaquorum

ROOT = Path(__file__).parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_every_public_name_is_listed_once_and_can_be_imported() -> None:
    """`__all__` is the promise: whatever the package imports from another room is in it, and nothing that is not there."""
    tree = ast.parse(Path(metaquorum.__file__).read_text())
    late = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        name.asname or name.name
        for node in (*tree.body, *late.body)
        if isinstance(node, ast.ImportFrom) and node.module not in ("importlib", "typing")
        for name in node.names
    }
    assert sorted(metaquorum.__all__) == sorted(set(metaquorum.__all__))
    assert imported - {"release"} == set(metaquorum.__all__) - {"__version__"}
    for name in metaquorum.__all__:
        assert getattr(metaquorum, name) is not None, name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = metaquorum.Nothing


def test_the_wheel_holds_every_top_level_package_and_the_types() -> None:
    """A room that is not in the list is missing only after an installation, where no other test looks."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {
        "tests",
        "examples",
        "benchmarks",
        "scripts",
        "spec",
    }
    assert set(WHEEL) == packages | {"proto/quorum_rpc"}
    assert (ROOT / "metaquorum" / "py.typed").is_file()


@pytest.mark.slow
def test_a_client_does_not_import_the_agent() -> None:
    """The agent and its store cost a client 0.2 s at each start; the first use of a name imports them."""
    code = "import sys, metaquorum; a = 'broker_agent' in sys.modules; metaquorum.Agent; print(a, 'broker_agent' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False True"


@pytest.mark.slow
def test_the_cli_starts_without_grpc() -> None:
    """`quorumctl --help` imports neither gRPC nor the clients: a command that asks nobody does not wait for them."""
    code = "import sys, quorum.cli.main; print([m for m in ('grpc', 'metaquorum', 'clients') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
