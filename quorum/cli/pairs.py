"""Reads `KEY=VALUE` from the command line."""

from collections.abc import Iterable

from quorum.cli.errors import EXIT_USAGE, CliError


def pairs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Splits each text at its first `=`. Raises CliError for a text without a key or without `=`."""
    found = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise CliError(f"{text!r} is not KEY=VALUE", EXIT_USAGE)
        found.append((key, value))
    return found
