"""The common parts of the commands of `quorum-offline`: options, exit codes, and the error of a job."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

EXIT_FINDINGS: Final = 10
EXIT_FAILED: Final = 1
SCHEMA_VERSION: Final = 1

F = TypeVar("F", bound=Callable[..., Any])


def common_options(command: F) -> F:
    output = click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="For people or for machines."
    )
    return output(command)


def spark_options(command: F) -> F:
    master = click.option("--master", help="A Spark master; default: what spark-submit says, else local[*].")
    partitions = click.option("--shuffle-partitions", type=click.IntRange(1), default=8, show_default=True)
    return master(partitions(command))


def proof_options(command: F) -> F:
    beside = click.option(
        "--beside", multiple=True, metavar="DIRECTORY",
        help="Another controller's directory, to prove what is committed. Can be given several times.",
    )  # fmt: skip
    uncommitted = click.option(
        "--uncommitted", is_flag=True, help="Read also what is durable here and perhaps not committed."
    )
    return beside(uncommitted(command))


def format_option(command: F) -> F:
    log_format = click.option(
        "--format", "log_format", type=click.Choice(["auto", "own", "kafka"]), default="auto", show_default=True,
        help="Whose log it is: metaquorum's own, or Apache Kafka's. auto: as its first bytes say.",
    )  # fmt: skip
    return log_format(command)


class Failed(click.ClickException):
    """The job failed: one line, exit code 1."""

    exit_code = EXIT_FAILED
