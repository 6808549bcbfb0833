"""The options that several commands have: one thing has one name, one form and one meaning in all of them.

node or broker    an id, as `--broker ID` or as an argument `BROKER_ID...`
more than one     the option again: `--onto 104 --onto 105`
--dry-run         checks everything, changes nothing, and shows what would be done
--wait            waits until the change has had its effect; `--timeout SECONDS` limits the wait
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import click

INT32_MAX: Final = (1 << 31) - 1
"""The largest number that the protocol's fields hold."""
ID: Final = click.IntRange(0, INT32_MAX)
"""The id of a node."""
BROKER_IDS: Final = click.argument("broker_ids", nargs=-1, required=True, type=ID, metavar="BROKER_ID...")
LABEL: Final = click.option(
    "--label", default="", metavar="KEY[=VALUE]", help="Only what has this label; without a value: with any value."
)
DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Check everything, and change nothing.")
WAIT: Final = click.option(
    "--wait", is_flag=True, help="Wait until all is finished, or until --timeout. Without --timeout: no limit."
)


class WaitingCommand(click.Command):
    """A command with brokers as arguments and the flag `--wait`.

    The line `drain 101 --wait 600` is refused, because click would take 600 for a second broker.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for flag, word in pairwise(args):
            if flag == "--wait" and word.replace(".", "", 1).isdecimal():
                text = f"--wait takes no number. Name brokers before --wait; did you mean --wait --timeout {word}?"
                raise click.UsageError(text, ctx)
        return super().parse_args(ctx, args)
