"""The agent's log lines in the standard library's logging, for processes that have their own logs."""

import logging

_LOGGER = logging.getLogger("metaquorum")


class StandardLog:
    """Writes `event key=value` lines to the logger `metaquorum`."""

    def debug(self, event: str, **fields: object) -> None:
        _write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        _write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        _write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        _write(logging.ERROR, event, fields)


def _write(level: int, event: str, fields: dict[str, object]) -> None:
    if _LOGGER.isEnabledFor(level):
        error = fields.pop("exc_info", None)
        text = " ".join((event, *(f"{key}={value!r}" for key, value in fields.items())))
        _LOGGER.log(level, "%s", text, exc_info=error if isinstance(error, BaseException) else None)
