"""The hint for a node id without its option: `can-restart 1` is refused with `did you mean --node-id 1?`."""

from typing import Final

import click

_FIELDS: Final = ("node_id", "target_id")
"""The parameters that take a node id by an option."""


class NodeCommand(click.Command):
    """A command that takes a node id by an option, and no arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line. Adds the hint to the refusal of a line that has a number without an option."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as e:
            option = next(each.opts[0] for each in self.params if each.name in _FIELDS)
            lone = [
                word
                for before, word in zip(["", *given], given, strict=False)
                if word.isdecimal() and before[:1] != "-"
            ]
            if lone and option not in given:
                raise click.UsageError(
                    f"{e.format_message().removesuffix('.')}. Did you mean {option} {lone[0]}?", ctx
                ) from e
            raise
