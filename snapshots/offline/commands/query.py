"""`quorum-offline query`"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import click

from snapshots.offline.commands import running
from snapshots.offline.commands.kafka_logs import OwnLogs, as_own_logs
from snapshots.offline.commands.shared import (
    SCHEMA_VERSION,
    Failed,
    format_option,
    is_history,
    proof_options,
    refuse_unusable_tables,
    spark_options,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from snapshots.offline.reading.ends import Ends

_QUESTION_BYTES_MAX: Final = 1 << 20
"""Maximum size of a question in a file."""
_HINT: Final = "Without a question the command lists the views and their columns"


class WrongQuestion(click.ClickException):
    """Spark cannot answer the question: one line, and the exit code of wrong usage. The words of the command were right."""

    exit_code = 2


class _Asked(NamedTuple):
    """The question, and the form of its answer."""

    text: str | None
    """None: which views are there?"""
    limit: int
    output: str


_Session = Callable[..., AbstractContextManager[tuple["SparkSession", Callable[[str], None]]]]
"""`running.session` for the master that the person has chosen."""


@click.command()
@click.argument("directory")
@click.argument("question", required=False, metavar="[SQL]")
@click.option(
    "--file", "file", type=click.File("rb"), help="Read the question from this file; - is the standard input."
)
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="Show at most so many rows.")
@format_option
@proof_options
@spark_options
@click.option(
    "-o", "--output", type=click.Choice(["text", "csv", "json"]), default="text", help="For people or for machines."
)
def query(
    directory: str,
    question: str | None,
    file: IO[bytes] | None,
    limit: int,
    log_format: str,
    beside: tuple[str, ...],
    uncommitted: bool,
    master: str | None,
    shuffle_partitions: int,
    output: str,
) -> None:
    """Asks a question in Spark SQL.

    DIRECTORY has the tables of `quorum-offline history`, or is a node's data directory; or a log directory of an Apache
    Kafka (KRaft) controller. Without a question the command lists the views that a question can name.
    """
    if question is not None and file is not None:
        raise click.UsageError("name a question or --file, not both")
    text = question if file is None else _text_of(file)
    if text is not None and not text.strip(" \t\r\n;"):
        raise WrongQuestion(f"the question is empty, and nothing was asked. {_HINT}")
    asked = _Asked(text, limit, output)
    session = partial(running.session, master, shuffle_partitions)
    if is_history(directory):
        if beside or uncommitted:
            raise click.UsageError(f"{directory} has the tables of a history: --beside and --uncommitted are for a log")
        refuse_unusable_tables(directory)
        _ask_history(directory, asked, session)
    else:
        with as_own_logs((directory, *beside), log_format, uncommitted=uncommitted) as logs:
            _ask_log(logs, asked, session)


def _text_of(file: IO[bytes]) -> str:
    """Return the question in a file."""
    content = file.read(_QUESTION_BYTES_MAX + 1)
    if len(content) > _QUESTION_BYTES_MAX:
        raise WrongQuestion(
            f"{file.name} has more than {_QUESTION_BYTES_MAX:,} bytes, and nothing was asked; name a file with a question"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WrongQuestion(
            f"{file.name} is no text in UTF-8, and nothing was asked; save the question as UTF-8"
        ) from None


def _ask_history(directory: str, asked: _Asked, session: _Session) -> None:
    with session(()) as (spark, step):
        from snapshots.offline.query.views import views_of_history

        step("reading the tables")
        views = views_of_history(spark, directory)
        if asked.text is None:
            _list(views, asked.output)
        else:
            _answer(spark, asked)


def _ask_log(logs: OwnLogs, asked: _Asked, session: _Session) -> None:
    with running.needing("spark"):
        from snapshots.offline.inputs import find_logs
        from snapshots.offline.query.views import register_log, views_of_log
    if asked.text is None:
        with running.failing_in_one_line():
            find_logs(logs.paths)
        _list(views_of_log(), asked.output)
        return
    ends = _ends(logs)
    with session(logs.paths[:1], logs.paths[1:]) as (spark, step):
        (end,) = ends.values()
        step("reading the log" if end is None else f"reading the log up to offset {end}")
        register_log(spark, logs.paths[0], asked.text, ends)
        _answer(spark, asked)


def _ends(logs: OwnLogs) -> "Ends":
    """Return the end of the first log, before Spark starts: where the records are committed, or durable.

    Raises:
        Failed: the directory has no log, or nothing proves that a record is committed.
    """
    from snapshots.offline.inputs import find_logs
    from snapshots.offline.reading.ends import NothingProven, ends_of
    from snapshots.offline.reading.options import COMMITTED, UNCOMMITTED

    with running.failing_in_one_line():
        try:
            return ends_of(find_logs(logs.paths[:1]), UNCOMMITTED if logs.uncommitted else COMMITTED, logs.paths[1:])
        except NothingProven as e:
            raise Failed(
                f"{e.reason}; name the directories of other controllers with --beside, or accept the risk with --uncommitted"
            ) from None


def _answer(spark: "SparkSession", asked: _Asked) -> None:
    from snapshots.offline.query.answers import QuestionRefused, as_csv, as_document, ask, table_lines

    assert asked.text is not None
    try:
        answer = ask(spark, asked.text, asked.limit, as_text=asked.output != "json")
    except QuestionRefused as e:
        raise WrongQuestion(f"{e}. {_HINT}") from None
    if asked.output == "json":
        click.echo(json.dumps(as_document(answer), ensure_ascii=False))
    elif asked.output == "csv":
        click.echo(as_csv(answer.columns, answer.rows), nl=False)
    else:
        for line in table_lines(answer.columns, answer.rows):
            click.echo(line)
    if answer.more:
        click.echo(f"there are more rows than {asked.limit:,}; --limit shows more", err=True)


def _list(views: Mapping[str, Sequence[str]], output: str) -> None:
    """Show the views and their columns."""
    from snapshots.offline.query.answers import as_csv, table_lines

    if output == "json":
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "views": views}))
    elif output == "csv":
        pairs = [(name, column) for name, columns in views.items() for column in columns]
        click.echo(as_csv(("view", "column"), pairs), nl=False)
    else:
        for line in table_lines(("VIEW", "COLUMNS"), [(name, ", ".join(columns)) for name, columns in views.items()]):
            click.echo(line)
