"""A click group whose commands are imported when they are asked for: `quorumctl` is run in loops and probes, and starts fast.

Importing grpc costs more than everything else together, so no module of this room imports it at its top.
"""

from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """`commands` are given as `{name: "module:attribute"}`; the attribute is a click command."""

    def __init__(self, *args: Any, lazily: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazily = lazily

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
