"""`quorum-offline`: batch jobs over a metadata log. They read a node's directory, live or copied, and write elsewhere.

Exit codes: 0 clean, 10 the audit or the dump has findings, 1 the job failed, 2 wrong usage.
"""

from typing import Any

import click

from snapshots.offline.commands.archive import archive
from snapshots.offline.commands.audit import audit
from snapshots.offline.commands.bundle import bundle
from snapshots.offline.commands.compact import compact
from snapshots.offline.commands.dump import dump
from snapshots.offline.commands.history import history
from snapshots.offline.commands.import_ import import_
from snapshots.offline.commands.query import query
from snapshots.offline.commands.report import report
from snapshots.offline.commands.shared import Failed


class _Jobs(click.Group):
    """The commands. An error of a disk that no command has told in its own words ends in one line, too."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # `audit | head`: click ends in silence
        except PermissionError as e:
            raise Failed(f"{e.filename}: {e.strerror}; run the job as a user that has this right") from None
        except OSError as e:
            told = f"{e.filename}: {e.strerror}" if e.filename else f"the output cannot be written: {e.strerror or e}"
            raise Failed(f"{told}; the job stopped there") from None


@click.group(
    cls=_Jobs, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "QUORUM_OFFLINE"}
)
@click.version_option(package_name="metaquorum", message="metaquorum %(version)s")
def main() -> None:
    """Spark jobs over a metadata log: audit it, compact it, turn its history into tables, ask questions.

    Exit codes: 0 clean, 10 the audit or the dump has findings, 1 the job failed, 2 wrong usage.
    """


for _command in (audit, compact, history, query, report, dump, import_, archive, bundle):
    main.add_command(_command)


if __name__ == "__main__":
    main()
