"""`quorum-offline query`"""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Final

import click

from snapshots.offline.commands import running
from snapshots.offline.commands.kafka_logs import as_own_logs
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
    if is_history(directory):
        if beside or uncommitted:
            raise click.UsageError(f"{directory} has the tables of a history: --beside and --uncommitted are for a log")
        refuse_unusable_tables(directory)
        _of_history(directory, text, limit, output, master, shuffle_partitions)
    else:
        with as_own_logs((directory, *beside), log_format, uncommitted=uncommitted) as logs:
            if text is None:
                _list(_views_of_log(logs.paths), output)
            else:
                _of_log(logs.paths, text, limit, output, master, shuffle_partitions, uncommitted=logs.uncommitted)


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


def _views_of_log(paths: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the views of the log, without Spark."""
    with running.needing("spark"):
        from snapshots.offline.inputs import find_logs
        from snapshots.offline.query.views import views_of_log
    with running.failing_in_one_line():
        find_logs(paths)
    return views_of_log()


def _of_history(
    directory: str, text: str | None, limit: int, output: str, master: str | None, shuffle_partitions: int
) -> None:
    with running.session(master, shuffle_partitions, ()) as (spark, step):
        from snapshots.offline.query.views import views_of_history

        step("reading the tables")
        views = views_of_history(spark, directory)
        if text is None:
            _list(views, output)
        else:
            _answer(spark, text, limit, output)


def _of_log(
    paths: Sequence[str],
    text: str,
    limit: int,
    output: str,
    master: str | None,
    shuffle_partitions: int,
    *,
    uncommitted: bool,
) -> None:
    ends = _ends(paths, uncommitted=uncommitted)
    with running.session(master, shuffle_partitions, paths[:1], paths[1:]) as (spark, step):
        from snapshots.offline.query.views import register_log

        (end,) = ends.values()
        step("reading the log" if end is None else f"reading the log up to offset {end}")
        register_log(spark, paths[0], text, ends)
        _answer(spark, text, limit, output)


def _ends(paths: Sequence[str], *, uncommitted: bool) -> "Ends":
    """Return the end of the first log, before Spark starts: where the records are committed, or durable.

    Raises:
        Failed: the directory has no log, or nothing proves that a record is committed.
    """
    with running.needing("spark"):
        from snapshots.offline.inputs import find_logs
        from snapshots.offline.reading.ends import NothingProven, ends_of
        from snapshots.offline.reading.options import COMMITTED, UNCOMMITTED
    with running.failing_in_one_line():
        try:
            return ends_of(find_logs(paths[:1]), UNCOMMITTED if uncommitted else COMMITTED, paths[1:])
        except NothingProven as e:
            raise Failed(
                f"{e.reason}; name the directories of other controllers with --beside, or accept the risk with --uncommitted"
            ) from None


def _answer(spark: "SparkSession", text: str, limit: int, output: str) -> None:
    from snapshots.offline.query.answers import QuestionRefused, as_csv, as_document, ask, table_lines

    try:
        answer = ask(spark, text, limit, as_text=output != "json")
    except QuestionRefused as e:
        raise WrongQuestion(f"{e}. {_HINT}") from None
    if output == "json":
        click.echo(json.dumps(as_document(answer), ensure_ascii=False))
    elif output == "csv":
        click.echo(as_csv(answer), nl=False)
    else:
        for line in table_lines(answer.columns, answer.rows):
            click.echo(line)
    if answer.more:
        click.echo(f"there are more rows than {limit:,}; --limit shows more", err=True)


def _list(views: Mapping[str, Sequence[str]], output: str) -> None:
    """Show the views and their columns."""
    if output == "json":
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, "views": views}))
        return
    if output == "csv":
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(("view", "column"))
        lines.writerows((name, column) for name, columns in views.items() for column in columns)
        return
    width = max(map(len, views))
    click.echo(f"{'VIEW':{width}}  COLUMNS")
    for name, columns in views.items():
        click.echo(f"{name:{width}}  {', '.join(columns)}")
