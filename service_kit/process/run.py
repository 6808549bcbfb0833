"""The start of a daemon's process, and its exit codes.

A daemon does not start in two cases:

    1. The limit of open files is too low. A vote is a file too, so the daemon could not write some later vote (`descriptors`).
    2. Python runs with -O. The option removes the asserts, and asserts protect the log in production too.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from service_kit.process.descriptors import raise_file_limit, too_few
from service_kit.process.settings import ConfigErrors

EXIT_OK: Final = 0
EXIT_FAILURE: Final = 1
"""A failure. A restart of the daemon may help."""
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 78
"""EX_CONFIG: an error in the configuration or the directory that a restart does not repair. A supervisor should not restart."""
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
    """The reason why this interpreter must not run a daemon; None if there is no such reason."""
    if debug:
        return None
    return "refusing to start under python -O: asserts guard the log and must stay on"


def config_report(errors: ConfigErrors) -> str:
    """The mistakes as text: a line with their number, then one line for each mistake."""
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
