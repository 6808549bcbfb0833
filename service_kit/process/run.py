"""How a daemon's process starts and how it says why it ended.

A process that may have too few files open does not start either: it would run out of them at some vote (`descriptors`).

Asserts are part of the protection of the log, in production too, so a process under `python -O` refuses to start.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from service_kit.process.descriptors import raise_file_limit, too_few
from service_kit.process.settings import ConfigErrors

EXIT_OK: Final = 0
EXIT_FAILURE: Final = 1
"""It could not go on; starting it again may help."""
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 78
"""EX_CONFIG: a configuration or a directory that a restart will not mend; supervisors should not try."""
EXIT_INTERRUPTED: Final = 130


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs `main` on an event loop (uvloop where there is one), and gives its exit code.

    `ConfigErrors` are written to stderr, one a line, and become EXIT_CONFIG.
    """
    problem = refusal(debug=__debug__) or too_few(raise_file_limit())
    if problem is not None:
        sys.stderr.write(problem + "\n")
        return EXIT_CONFIG
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(main())
    except ConfigErrors as e:
        sys.stderr.write(config_report(e))
        return EXIT_CONFIG
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def refusal(*, debug: bool) -> str | None:
    """Why this interpreter must not run a daemon, or None."""
    if debug:
        return None
    return "refusing to start under python -O: asserts guard the log and must stay on"


def config_report(errors: ConfigErrors) -> str:
    """All mistakes for a person's eyes, one a line, after a line that says how many."""
    count = len(errors.problems)
    title = "1 mistake in the configuration" if count == 1 else f"{count} mistakes in the configuration"
    return "\n".join([title + ":", *(f"  {problem}" for problem in errors.problems)]) + "\n"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's loop (streams: 2.9 times as many round trips, measured), or asyncio's own where uvloop is not to be had."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
