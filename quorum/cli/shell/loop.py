"""The interactive loop of the shell: lines from a terminal, with completion and a history of commands."""

from __future__ import annotations

import cmd
import shlex
from collections.abc import Callable

import click

from quorum.cli.shell.shell import HELP, Shell, Shown
from quorum.cli.shell.source import Refusal


class Loop(cmd.Cmd):
    """Reads lines until `exit` or the end of the input. An error of a command ends the command, and not the loop."""

    def __init__(self, shell: Shell, show: Callable[[Shown], None]) -> None:
        super().__init__()
        self._shell = shell
        self._show = show
        self.prompt = shell.prompt

    def onecmd(self, line: str) -> bool:
        """Carries out one line. Returns True at the end."""
        if line == "EOF":
            click.echo()
            return True
        try:
            words = shlex.split(line, comments=True)
        except ValueError as e:
            click.echo(f"{e}: close the quotation, or write the character as \\ and itself", err=True)
            return False
        if words == ["exit"]:
            return True
        if words:
            try:
                self._show(self._shell.run(words))
            except Refusal as e:
                click.echo(str(e), err=True)
            except KeyboardInterrupt:
                click.echo("interrupted", err=True)
        self.prompt = self._shell.prompt
        return False

    def completenames(self, text: str, *_: object) -> list[str]:
        return [f"{name} " for name in HELP if name.startswith(text)]

    def completedefault(self, text: str, *_: object) -> list[str]:
        return self._shell.completions(text)

    def cmdloop(self, intro: str | None = None) -> None:
        try:
            import readline

            readline.set_completer_delims(" \t\n")
        except ImportError:  # not on every platform: then there is no completion
            pass
        super().cmdloop(intro)
