"""Logs for people and machines that never delay the event loop.

The calling thread formats a line and puts it into a bounded queue; another thread writes the lines to stderr. If the terminal
or the pipe behind stderr is stuck, lines are dropped and counted. (A Raft leader that waited for a log shipper would lose its
followers.)

    2026-11-21T08:50:00.123Z info quorum.runtime.loop "became leader" node_id=1 role=leader epoch=7 offset=42

Libraries that use the standard library's logging (grpc, asyncio) write to the same place. Usage:

    log = get_logger(__name__)
    log.info("became leader", epoch=7, offset=42)
"""

import copy
import json
import logging
import queue
import sys
import threading
from collections.abc import Sequence
from logging.handlers import QueueHandler
from types import TracebackType
from typing import Any, Final, Self, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

QUEUE_LINES_MAX: Final = 10_000
STOP_WAIT_S: Final = 2.0
"""How long a stop waits for a stuck terminal."""
FORMATS: Final = ("auto", "json", "logfmt", "text")
LEVELS: Final = ("debug", "info", "warning", "error")
_FIRST: Final = ("ts", "level", "logger", "event", "node_id", "role", "epoch", "offset")


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger for a module; keyword arguments become fields."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


class Logs:
    """The process's logging, from `start` (or `with`) to `stop`. Only one instance at a time may be started."""

    def __init__(
        self, level: str = "info", log_format: str = "auto", *, stream: TextIO | None = None, **fields: object
    ) -> None:
        """`fields` (such as node_id, role) are on every line. `log_format`: json, logfmt (or text, its other name), or auto:
        logfmt on a terminal, else json."""
        assert level in LEVELS, level
        assert log_format in FORMATS, log_format
        self._stream = sys.stderr if stream is None else stream
        self._fields = dict(fields)
        json_lines = log_format == "json" or (log_format == "auto" and not self._stream.isatty())
        shared: list[Processor] = [
            self._add_fields,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
        ]
        last = _json_line if json_lines else _logfmt_line
        formatter = structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _in_order, last],
        )
        lines: queue.Queue[logging.LogRecord | None] = queue.Queue(QUEUE_LINES_MAX)
        self._handler = _DroppingHandler(lines)
        self._handler.setFormatter(formatter)
        self._writer = _Writer(lines, self._stream)
        self._level = getattr(logging, level.upper())
        self._level_before = logging.WARNING
        self._shared = shared

    def bind(self, **fields: object) -> None:
        """Changes the fields on every line; None removes a field."""
        self._fields = {name: value for name, value in (self._fields | fields).items() if value is not None}

    def set_level(self, level: str) -> None:
        """Changes the level from now on (SIGHUP)."""
        assert level in LEVELS, level
        logging.getLogger().setLevel(getattr(logging, level.upper()))

    @property
    def dropped(self) -> int:
        """How many lines were dropped because the writer was too slow."""
        return self._handler.dropped

    def start(self) -> Self:
        """Takes over the process's logging."""
        root = logging.getLogger()
        self._level_before = root.level
        root.addHandler(self._handler)
        root.setLevel(self._level)
        # Never debug: at that level grpc's servers log *themselves* while they are being freed, and a handler that keeps such a
        # record (pytest's does) crashes the process later.
        logging.getLogger("grpc").setLevel(logging.INFO)
        # This logger writes a traceback for each answer that cannot be decoded. The caller of each method reports such an answer
        # in its own words, and with a limit.
        logging.getLogger("grpc._common").setLevel(logging.CRITICAL)
        logging.captureWarnings(True)
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                *self._shared,
                structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
            ],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
        )
        self._writer.start()
        return self

    def stop(self) -> None:
        """Writes the queued lines, and restores the process's logging."""
        root = logging.getLogger()
        root.removeHandler(self._handler)
        root.setLevel(self._level_before)
        logging.captureWarnings(False)
        structlog.reset_defaults()
        self._writer.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _add_fields(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        for name, value in self._fields.items():
            event.setdefault(name, value)
        return event


class _DroppingHandler(QueueHandler):
    """Formats in the calling thread (later the fields could have changed), and never waits."""

    dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        line = copy.copy(record)
        line.msg, line.args, line.exc_info, line.exc_text, line.stack_info = self.format(record), None, None, None, None
        return line

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class _Writer:
    """The writing thread. (The standard QueueListener cannot be stopped while its queue is full or its stream is stuck.)"""

    def __init__(self, lines: "queue.Queue[logging.LogRecord | None]", stream: TextIO) -> None:
        self._lines = lines
        self._handler = logging.StreamHandler(stream)
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Writes the queued lines if the stream takes them in time; otherwise they are lost."""
        try:
            self._lines.put(None, timeout=STOP_WAIT_S)
        except queue.Full:
            return
        self._thread.join(STOP_WAIT_S)

    def _write(self) -> None:
        while (record := self._lines.get()) is not None:
            self._handler.emit(record)


def _in_order(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    first = {name: event[name] for name in _FIRST if name in event}
    return first | {name: value for name, value in event.items() if name not in first}


def _json_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    return json.dumps(event, default=_plain, ensure_ascii=False)


def _logfmt_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    heads: Sequence[str] = [str(event.pop(name)) for name in ("ts", "level", "logger") if name in event]
    trace = event.pop("exception", None)
    line = " ".join(
        [*heads, _quoted(event.pop("event", ""), always=True), *(f"{k}={_quoted(v)}" for k, v in event.items())]
    )
    return line if trace is None else f"{line}\n{trace}"


def _quoted(value: Any, *, always: bool = False) -> str:
    text = str(_plain(value)) if not isinstance(value, bool) and value is not None else json.dumps(value)
    if always or not text or any(c in ' ="\\' or not c.isprintable() for c in text):
        return json.dumps(text, ensure_ascii=False)
    return text


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value if isinstance(value, int | float) else str(value)
