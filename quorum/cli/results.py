"""The results of a change with several items: a row for each, and the exit code of the first failure.

Example: `configs set` on two topics, of which one does not exist, prints two rows, one `altered` and one `refused` with a
message, and ends with the exit code of UNKNOWN_TOPIC_OR_PARTITION.
"""

from collections.abc import Sequence
from typing import Any, Final

from metadata_log.format.errors import ErrorCode
from quorum.cli.errors import EXIT_OK, exit_code_of
from quorum.cli.options import Options
from quorum.cli.output import Column, emit

_MESSAGE: Final = Column("MESSAGE", "message")


def outcome(error: Any, done: str) -> dict[str, Any]:
    """The three fields of a row about a change. `error`: an `Error` of the API; `done`: the word for its absence."""
    code = ErrorCode.of(error.code)
    if code is ErrorCode.NONE:
        return {"result": done, "error": None, "message": None}
    return {"result": "refused", "error": code.name, "message": error.message}


def emit_results(options: Options, offset: int, rows: Sequence[dict[str, Any]], columns: Sequence[Column]) -> None:
    """Prints the rows, with their messages if one failed. Raises SystemExit with the code of the first failure, if any."""
    failed = [each["error"] for each in rows if each["error"] is not None]
    shown = (*columns, _MESSAGE) if failed else columns
    emit(options.output, {"offset": offset, "results": rows}, rows="results", columns=shown)
    exit_code = exit_code_of(ErrorCode[failed[0]]) if failed else EXIT_OK
    if exit_code != EXIT_OK:
        raise SystemExit(exit_code)
