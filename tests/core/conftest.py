"""`pytest tests/core --rewrite` writes what the scripts print into the scripts; then read the diff."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected pictures of tests/core/scripts")
