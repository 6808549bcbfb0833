"""Prints the demo in numbered steps, each with the event, the time and the proof.

On a terminal the steps have colours, and a moving line names the current wait. Elsewhere (a pipe, a CI log) each line is plain,
and written once.

    [ 3/10]  ok    9.41 s  broker 2 was killed -9: fenced, its partitions led elsewhere
                           229 partitions led before, 0 now; all 912 have a leader among the living
"""

import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

WIDTH = 118
INDENT = 26


class DoesNotHold(Exception):
    """A claim of the demo is false."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; seen: {seen}")
        self.expected = expected
        self.seen = seen


def expect(holds: bool, expected: str, seen: object) -> None:
    """Raises DoesNotHold unless `holds`."""
    if not holds:
        raise DoesNotHold(expected, str(seen))


class Step:
    """The current step."""

    def __init__(self, title: str, doing: "Doing") -> None:
        self.title = title
        self.proofs: list[str] = []
        self._doing = doing

    def proof(self, text: str) -> None:
        """Adds a proof: one sentence that a reader could check."""
        self.proofs.append(text)

    def waiting_for(self, text: str) -> None:
        """Names the current wait, on a terminal."""
        self._doing.update(text)


class Doing:
    """The moving line of a step; without a terminal, nothing."""

    def __init__(self, console: Console, title: str) -> None:
        self._status = console.status(f"[cyan]{escape(title)}", spinner="dots") if console.is_terminal else None
        self._title = title

    def __enter__(self) -> "Doing":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def update(self, text: str) -> None:
        if self._status is not None:
            self._status.update(f"[cyan]{escape(self._title)} [dim]· {escape(text)}")


class Narrator:
    """Numbers the steps and keeps their times."""

    steps = 0
    """How many steps the demo has."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._told = 0
        self._began = time.monotonic()

    def opening(self, title: str, lines: list[str]) -> None:
        """Prints the head of the demo."""
        if self._console.is_terminal:
            body = Text("\n".join(lines), style="dim")
            self._console.print(Panel(body, title=f"[bold]{escape(title)}", title_align="left", border_style="cyan"))
            return
        self._plain(title, *(f"  {line}" for line in lines), "")

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Runs one step, and prints the step when it ends. An error of the step is printed and raised again."""
        self._told += 1
        began = time.monotonic()
        with Doing(self._console, title) as doing:
            step = Step(title, doing)
            try:
                yield step
            except BaseException as e:
                doing.__exit__()
                self._tell(step, time.monotonic() - began, error=e)
                raise
        self._tell(step, time.monotonic() - began)

    def closing(self, lines: list[tuple[str, str]]) -> None:
        """Prints the end of the demo: names and values."""
        took_s = time.monotonic() - self._began
        if self._console.is_terminal:
            self._console.print(Rule(style="cyan"))
            for name, value in lines:
                self._console.print(f"[bold]{escape(name):>10}[/]  {escape(value)}", soft_wrap=True)
            self._console.print(f"[bold green]All {self._told} steps hold[/], in {took_s:.1f} s.")
            return
        self._plain(
            "", *(f"{name}: {value}" for name, value in lines), f"all {self._told} steps hold, in {took_s:.1f} s"
        )

    def failed(self, error: BaseException, where: str) -> None:
        """Prints the failure of a step, and the directory with the evidence."""
        if isinstance(error, DoesNotHold):
            lines = [f"expected  {error.expected}", f"seen      {error.seen}"]
        else:
            lines = [f"{type(error).__name__}: {error}"]
        lines.append(f"kept      {where}")
        if self._console.is_terminal:
            self._console.print(Panel(Text("\n".join(lines)), title="it does not hold", border_style="red"))
            return
        self._plain("", "it does not hold", *(f"  {line}" for line in lines))

    def _tell(self, step: Step, took_s: float, error: BaseException | None = None) -> None:
        if self._console.is_terminal:
            self._console.print(self._row(step, took_s, error))
            return
        mark = "ok  " if error is None else "FAIL" if isinstance(error, Exception) else "cut "
        head = f"[{self._told:>2}/{self.steps}]  {mark} {took_s:6.2f} s"
        lines = [f"{head:<{INDENT}}{step.title}"]
        for proof in step.proofs:
            lines += textwrap.wrap(proof, WIDTH, initial_indent=" " * INDENT, subsequent_indent=" " * (INDENT + 2))
        self._plain(*lines)

    def _row(self, step: Step, took_s: float, error: BaseException | None) -> Table:
        row = Table.grid(padding=(0, 1))
        row.add_column(width=2, justify="right", style="bold cyan")
        row.add_column(width=1)
        row.add_column(ratio=1)
        row.add_column(width=8, justify="right", style="yellow")
        row.expand = True
        mark = "[bold green]✓" if error is None else "[bold red]✗" if isinstance(error, Exception) else "[dim]-"
        what = Text(step.title, style="bold")
        for proof in step.proofs:
            what.append(f"\n{proof}", style="not bold dim")
        row.add_row(str(self._told), mark, what, f"{took_s:.2f} s")
        return row

    def _plain(self, *lines: str) -> None:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
