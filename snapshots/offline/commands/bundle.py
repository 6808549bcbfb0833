"""`quorum-offline bundle`"""

import json

import click

from metadata_log.disk.failures import FlushFailed
from snapshots.offline.bundle import NEEDED, write_bundle
from snapshots.offline.commands.shared import SCHEMA_VERSION, Failed, common_options


@click.command()
@click.option("--out", "out_dir", required=True, type=click.Path(file_okay=False), help="The directory for both files.")
@common_options
def bundle(out_dir: str, output: str) -> None:
    """Writes the files for spark-submit: a program, and a zip with its modules.

    The machines of the Spark cluster need no metaquorum, but the packages that the command prints.
    """
    try:
        written = write_bundle(out_dir)
    except (OSError, FlushFailed) as e:
        raise Failed(f"the bundle was not written: {e}; choose another directory") from None
    if output == "json":
        found = {
            "schema_version": SCHEMA_VERSION,
            "program": str(written.program),
            "modules": str(written.modules),
            "needs": NEEDED,
            "command": written.command,
        }
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(f"{written.program}\n{written.modules}")
        click.echo(f"packages that each machine needs: {', '.join(NEEDED)}\n{written.command}")
