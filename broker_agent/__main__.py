"""`brokerd --config FILE [--set KEY=VALUE ...]`: one broker.

Exit codes: 0 controlled shutdown; 1 failure, a restart may help; 2 wrong usage; 78 a configuration or a directory that a restart
does not repair; 130 and 143 a second SIGINT or SIGTERM.
"""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from broker_agent.config import load
from broker_agent.process import run_broker
from metadata_log.disk.failures import DirectoryInUse, FlushFailed
from metadata_log.disk.identity import ForeignDirectory, UnformattedDirectory
from metadata_log.format.errors import LogFormatError
from service_kit.process.clock import RealClock
from service_kit.process.logs import Logs, get_logger
from service_kit.process.release import release_line
from service_kit.process.run import EXIT_CONFIG, EXIT_FAILURE, run
from service_kit.process.signals import handling_signals
from service_kit.rpc.binding import CannotBind
from service_kit.security.tls import TlsUnusable

PAGES = "docs/configuration.md lists the keys of FILE, docs/metrics.md the metrics, deploy/runbook.md what to do when it fails."


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `brokerd`."""
    parser = argparse.ArgumentParser(prog="brokerd", description="One broker of a metaquorum cluster.", epilog=PAGES)
    parser.add_argument("--config", type=Path, metavar="FILE", help="a YAML file, with Kafka's names for things")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one key; stronger than file and environment"
    )
    parser.add_argument("--version", action="version", version=release_line())
    options = parser.parse_args(arguments)
    # Images are large and immutable, so a full garbage collection would walk them in vain.
    gc.set_threshold(50_000, 50, 1_000)
    sys.exit(run(lambda: brokerd(options.config, options.set)))


async def brokerd(path: Path | None, overrides: Sequence[str]) -> int:
    """Runs one broker, from its configuration to its exit code.

    Raises:
        ConfigErrors: the configuration is wrong; the error lists every mistake.
    """
    config = load(path, os.environ, overrides)
    with Logs(config.log_level, config.log_format, node_id=config.node_id, role="broker"):
        log = get_logger("broker_agent")

        def stopped_by(stop: Callable[[], None]) -> AbstractContextManager[object]:
            return handling_signals(lambda signal: stop())

        try:
            exit_ = await run_broker(config, RealClock().now_ms, log, stopped_by=stopped_by)
        except (UnformattedDirectory, ForeignDirectory, LogFormatError, TlsUnusable) as e:
            log.error("cannot start", reason=str(e))
            return EXIT_CONFIG
        except (DirectoryInUse, CannotBind, OSError, FlushFailed) as e:
            log.error("stopped", reason=str(e))
            return EXIT_FAILURE
        if exit_.code:
            log.error("gave up", reason=exit_.reason)
        else:
            log.info("left", reason=exit_.reason)
        return exit_.code


if __name__ == "__main__":
    main()
