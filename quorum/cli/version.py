"""`quorumctl version`"""

import platform
from importlib import metadata

import click

from quorum.cli.options import Options, command
from quorum.cli.output import emit


@click.command()
@command
def version(options: Options) -> None:
    """Shows what is installed."""
    try:
        release = metadata.version("metaquorum")
    except metadata.PackageNotFoundError:
        release = "not installed"
    document = {"version": release, "python_version": platform.python_version()}
    emit(options.output, document, heading=[f"metaquorum {release} (Python {document['python_version']})"])
