"""The answer to a question in Spark SQL: its rows, as a table for people, as CSV, or as a JSON document.

A question only reads. Spark SQL also knows commands that write files or change tables, and runs a command at once. So the text of
a person is asked as a subquery, in which Spark accepts a question and refuses a command. Example:
  1. `SELECT name FROM topic` becomes `SELECT * FROM (SELECT name FROM topic)`: the same rows, in the same order.
  2. `INSERT OVERWRITE DIRECTORY '/srv' SELECT 1` becomes a subquery that is no question. Spark refuses it, and writes nothing.
  3. Spark explains the text of step 2, so it is a command, and no misspelled question: the person is told so.
"""

import csv
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA_VERSION: Final = 1
_OF_THE_QUESTION: Final = (
    errors.AnalysisException,
    errors.ArithmeticException,
    errors.ArrayIndexOutOfBoundsException,
    errors.DateTimeException,
    errors.IllegalArgumentException,
    errors.NumberFormatException,
    errors.SparkRuntimeException,
    errors.SparkUpgradeException,
)
"""Spark's errors for a question that has no answer. The errors of a job, and of the log, are others."""
_SPARKS_LOGGER: Final = "SQLQueryContextLogger"
"""Writes Spark's whole traceback of a wrong question to stderr."""
_PLACE: Final = re.compile(r"\bline (\d+),? pos (\d+)")
"""A place in Spark's errors. Lines count from 1, and positions from 0."""
_COMMENTS: Final = re.compile(r"(?:[\s;]|--[^\n]*(?:\n|$)|/\*[^*]*\*/)*")
"""The end of a question may have these behind it: comments, and more semicolons."""


class QuestionRefused(Exception):
    """Spark cannot answer the question. The text is Spark's reason."""


class Answer(NamedTuple):
    """Rows, and their columns."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool
    """True if the question has more rows than the limit."""


def ask(spark: "SparkSession", question: str, limit: int, *, as_text: bool) -> Answer:
    """Return the first `limit` rows. With `as_text` each value is the text that Spark makes of it, else a value of JSON.

    Raises:
        QuestionRefused: the text is no question, names a view or a column that is not there, or cannot be computed.
    """
    with _quiet():
        try:
            frame = _frame(spark, question.strip().rstrip(";"))
            rows = _texts(frame, limit + 1) if as_text else _values(frame, limit + 1)
        except _OF_THE_QUESTION as e:
            raise QuestionRefused(_reason(e)) from None
    return Answer(tuple(frame.columns), rows[:limit], len(rows) > limit)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Spark's own account of a wrong question from stderr: the person gets the reason in one line."""
    logger = logging.getLogger(_SPARKS_LOGGER)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _frame(spark: "SparkSession", question: str) -> "DataFrame":
    try:
        return spark.sql(f"SELECT * FROM (\n{question}\n)")
    except errors.ParseException:
        spark.sql(f"EXPLAIN\n{question}")  # raises the reason, in the person's own words, if the text is no SQL
        for end in _ends_of_statement(question):
            with suppress(errors.ParseException):
                return spark.sql(f"SELECT * FROM (\n{question[:end]}\n)")
        raise QuestionRefused("this is a command, and only questions are answered; nothing was changed") from None


def _ends_of_statement(question: str) -> Iterator[int]:
    """Yield the places, the last one first, of semicolons with only comments behind them: `SELECT 1; -- why` has one."""
    for found in reversed(list(re.finditer(";", question))):
        if _COMMENTS.fullmatch(question, found.start()):
            yield found.start()


def _reason(error: errors.PySparkException) -> str:
    """Return the first sentence of Spark's error, and the place in the question, which begins in the subquery's second line."""
    first, *more = str(error).strip().splitlines()
    text = " ".join([first, *more[:1]]) if first.endswith(":") else first
    place = _PLACE.search(text)
    where = "" if place is None else f" (line {int(place[1]) - 1}, column {int(place[2]) + 1})"
    return text.partition(" SQLSTATE:")[0].rstrip(". ") + where


def _texts(frame: "DataFrame", limit: int) -> list[tuple[str | None, ...]]:
    named = frame.toDF(*map(str, range(len(frame.columns))))  # two columns of a question may have one name
    texts = named.selectExpr(*(f"CAST(`{name}` AS STRING)" for name in named.columns))
    return [tuple(row) for row in texts.limit(limit).collect()]


def _values(frame: "DataFrame", limit: int) -> list[tuple[Any, ...]]:
    from pyspark.sql import functions as f

    twice = [name for name, times in Counter(frame.columns).items() if times > 1]
    if twice:
        raise QuestionRefused(f"two columns have the name {twice[0]}; give one of them another name with AS")
    documents = frame.select(f.to_json(f.struct("*"), {"ignoreNullFields": "false"})).limit(limit).collect()
    return [tuple(json.loads(document).values()) for (document,) in documents]


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str | None]]) -> Iterator[str]:
    """Return the lines of a table, a null as a dash. A character that would end a line, or steer a terminal, is escaped."""
    lines = [list(columns), *(["-" if value is None else _shown(value) for value in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _shown(value: str) -> str:
    return value if value.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    """Return the rows as CSV, below a line of names. A null is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def as_document(answer: Answer) -> dict[str, Any]:
    """Return the JSON document of an answer."""
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    return {"schema_version": SCHEMA_VERSION, "columns": list(answer.columns), "rows": rows, "more": answer.more}
