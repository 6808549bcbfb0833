"""The option `pytest tests/core --rewrite`: writes the printed results into the scripts. Read the diff afterwards."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected pictures of tests/core/scripts")
