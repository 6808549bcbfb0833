"""Writes docs/cli.md: every command of `quorumctl` with its options, from click, and the options of both daemons.

`python scripts/cli_page.py` writes the file; tests/test_generated_pages.py fails while it says something else.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import click

from quorum.cli.main import cli

PATH: Final = Path(__file__).resolve().parents[1] / "docs" / "cli.md"

HEAD: Final = """# Commands

Written by `scripts/cli_page.py` from `quorum/cli`; don't edit it here.

```
$ quorumctl -C 10.0.0.1:9001,10.0.0.2:9001 topics create orders --partitions 3
$ quorumctl -C 10.0.0.1:9001 health --output json
```

## Exit codes of quorumctl

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused: the change was not made |
| 2 | wrong usage |
| 3 | not found |
| 4 | conflict: it exists already, or has changed meanwhile |
| 5 | no answer, no leader, or not in time; a change may have been made: look before you repeat it |
| 10 | answered, and something is wrong: the cluster or a node is unhealthy, or is not as the command, plan or file expects |
| 130 | interrupted (Ctrl-C): what has begun goes on; look before you repeat a change |

Errors are text on stderr, also with `-o json`: one line, or the usage for code 2. The text is for people and may change, so a
script reads the exit code. With `-o json` stdout has a document if the question was answered (codes 0 and 10), and if single
items have results of their own (`topics create`).

## Options of every command

Before or after the command, or in the environment: `QUORUMCTL_BOOTSTRAP_CONTROLLER`, `QUORUMCTL_BOOTSTRAP_SERVER`,
`QUORUMCTL_OUTPUT`, `QUORUMCTL_TIMEOUT_S`, `QUORUMCTL_CACERT`, `QUORUMCTL_CERT`, `QUORUMCTL_KEY`. A flag beats the environment.
"""

DAEMONS: Final = """
## quorumd and brokerd

| option | meaning |
|---|---|
| `report-death` (`brokerd` only) | proves that the last process has ended, and reports it; 1: not proved or reported |
| `--config FILE` | the YAML file; docs/configuration.md lists the keys |
| `--set KEY=VALUE` | overrides one key of file and environment; may be repeated |
| `--version` | shows what is installed |

| exit code | meaning |
|---|---|
| 0 | left in order |
| 1 | could not go on; a restart may help |
| 2 | wrong usage |
| 78 | wrong configuration or directory; a restart does not help |
| 128 + n | a second SIGINT or SIGTERM (signal n) ended it at once |
"""


def page() -> str:
    """The whole file."""
    ctx = click.Context(cli, info_name="quorumctl")
    shared = {each.name for each in cli.params}
    parts = [HEAD, *_options(cli, set()), ""]
    for name, command in commands(cli, ctx):
        usage = " ".join(
            piece for piece in command.collect_usage_pieces(click.Context(command)) if piece != "[OPTIONS]"
        )
        parts += [f"## {name} {usage}".rstrip(), "", *_help(command), "", *_options(command, shared), ""]
    return "\n".join(parts).rstrip() + "\n" + DAEMONS


def commands(group: click.Group, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    """All commands that can be run, by their full names, in the order of the alphabet."""
    for name in sorted(group.list_commands(ctx)):
        command = group.get_command(ctx, name)
        assert command is not None and name is not None
        below = click.Context(command, info_name=name, parent=ctx)
        if isinstance(command, click.Group):
            yield from commands(command, below)
        elif not command.hidden:
            yield below.command_path, command


def _help(command: click.Command) -> list[str]:
    """The help text, its marked blocks as they are written."""
    lines: list[str] = []
    fenced = False
    for line in (command.help or "").strip().splitlines():
        if line.strip() == "\b":
            fenced = True
            lines.append("```")
        else:
            if fenced and not line.strip():
                lines.append("```")
                fenced = False
            lines.append(line if fenced and not _is_example(line) else line.strip())
    return [*lines, *(["```"] if fenced else [])]


def _is_example(line: str) -> bool:
    return line.lstrip().startswith("$ ")


def _options(command: click.Command, left_out: Collection[str | None]) -> list[str]:
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.name in left_out or option.hidden:
            continue
        record = option.get_help_record(click.Context(command))
        if record is not None:
            names, text = record
            rows.append(f"| `{names.replace('|', '/')}` | {text.replace('|', '/')} |".replace("  ", " "))
    return ["| option | meaning |", "|---|---|", *rows] if rows else []


if __name__ == "__main__":
    PATH.write_text(page())
    print(f"wrote {PATH}")
