"""Shows on stderr how far a plan has been carried out: one line drawn again and again on a terminal, else a line now and then.

waiting: 12 of 30 partitions finished, 10 moving, 8 to be begun; 3 partitions wait for broker 102 (fenced)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

LINE_S: Final = 10.0
"""How long a reader of a pipe waits for the next line, in seconds."""
_BAR_CHARS: Final = 30


def draw(counts: Mapping[str, int], total: int) -> None:
    """Draws the line on a terminal."""
    if not sys.stderr.isatty():
        return
    done = counts["finished"] + counts["failed"]
    bar = "#" * (_BAR_CHARS * done // max(1, total))
    text = (
        f"\r[{bar:<{_BAR_CHARS}}] {done} of {total} finished, {counts['moving']} moving, {counts['waiting']} waiting "
    )
    click.echo(text, err=True, nl=not counts["moving"] and not counts["waiting"])


def tell(counts: Mapping[str, int], total: int, held_up: Sequence[str]) -> None:
    """Prints a line: in a pipe always, on a terminal only if brokers hold the work up."""
    is_terminal = sys.stderr.isatty()
    if is_terminal and not held_up:
        return
    done = counts["finished"] + counts["failed"]
    text = f"{done} of {total} partitions finished, {counts['moving']} moving, {counts['waiting']} to be begun"
    if is_terminal:
        click.echo(err=True)  # ends the line that is drawn again and again
    click.echo(f"waiting: {'; '.join((text, *held_up))}", err=True)
