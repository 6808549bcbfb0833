"""A click group whose commands are imported when they are asked for: `quorumctl` is run in loops and probes, and starts fast.

Importing grpc costs more than everything else together, so no module of this room imports it at its top.
"""

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

import click

from quorum.cli.errors import EXIT_INTERRUPTED, CliError

EXIT_BROKEN_PIPE: Final = 141
"""The shell's exit code of a process that SIGPIPE ended, as for other tools in front of `| head`."""


class LazyGroup(click.Group):
    """`commands` are given as `{name: "module:attribute"}`; the attribute is a click command."""

    def __init__(self, *args: Any, lazily: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazily = lazily

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. If the reader of its output is gone (`| head -1`), the command ends quietly.

        Ctrl-C has an exit code of its own: click's 1 would say that the change was refused.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as e:
            text = "interrupted. If the command changes something, the change may have been made: look before you repeat it"
            raise CliError(text, EXIT_INTERRUPTED) from e
        except BrokenPipeError:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # Python flushes its output once more at the end
            ctx.exit(EXIT_BROKEN_PIPE)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command in `args`. A name that does not exist is refused with the names that are like it."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            alike = get_close_matches(name, self.list_commands(ctx))
            hint = f" Did you mean {' or '.join(map(repr, alike))}?" if alike else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazily})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = self._lazily.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = where.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), where
        return command
