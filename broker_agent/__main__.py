"""`brokerd --config FILE [--set KEY=VALUE ...]`: one broker. `brokerd report-death` reports that it has ended.

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

from broker_agent.config import BrokerConfig, load
from broker_agent.death.watcher import Watcher, report_death, start_watcher
from broker_agent.process import run_broker
from metadata_log.disk.failures import DirectoryInUse, FlushFailed
from metadata_log.disk.identity import ForeignDirectory, UnformattedDirectory
from metadata_log.format.errors import LogFormatError
from service_kit.process.clock import RealClock
from service_kit.process.logs import Logs, get_logger
from service_kit.process.release import release_line
from service_kit.process.run import EXIT_CONFIG, EXIT_FAILURE, EXIT_OK, config_report, run
from service_kit.process.settings import ConfigErrors
from service_kit.process.signals import handling_signals
from service_kit.rpc.binding import CannotBind
from service_kit.security.tls import TlsUnusable

REPORT_DEATH = "report-death"
COMMAND_TIMEOUT_S = 3.0
"""How long `report-death` tries to report: a supervisor restarts the broker only after the command has ended."""
PAGES = "docs/configuration.md lists the keys of FILE, docs/metrics.md the metrics, deploy/runbook.md what to do when it fails."


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `brokerd`."""
    parser = argparse.ArgumentParser(prog="brokerd", description="One broker of a metaquorum cluster.", epilog=PAGES)
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", REPORT_DEATH),
        default="run",
        help="run: the broker (default); report-death: prove that the last process has ended, and report it",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a YAML file, with Kafka's names for things")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one key; stronger than file and environment"
    )
    parser.add_argument("--version", action="version", version=release_line())
    options = parser.parse_args(arguments)
    if options.command == REPORT_DEATH:
        sys.exit(_report_death(options.config, options.set))
    # Images are large and immutable, so a full garbage collection would walk them in vain.
    gc.set_threshold(50_000, 50, 1_000)
    watcher = _watched(options.config, options.set)
    code = run(lambda: brokerd(options.config, options.set))
    if watcher is not None and code in (EXIT_OK, EXIT_CONFIG):
        watcher.dismiss()
    sys.exit(code)


def _report_death(path: Path | None, overrides: Sequence[str]) -> int:
    """Reports the death of the last process, if the death can be proved now."""
    try:
        config = load(path, os.environ, overrides)
    except ConfigErrors as e:
        sys.stderr.write(config_report(e))
        return EXIT_CONFIG
    return _reported(config, patience_s=0, within_s=COMMAND_TIMEOUT_S)


def _reported(config: BrokerConfig, *, patience_s: float, within_s: float) -> int:
    with Logs(config.log_level, config.log_format, node_id=config.node_id, role="broker"):
        return report_death(config, get_logger("broker_agent.death"), patience_s=patience_s, within_s=within_s)


def _watched(path: Path | None, overrides: Sequence[str]) -> Watcher | None:
    """Starts the watcher of this process; None if the configuration does not want one, or is wrong, which `brokerd` reports."""
    try:
        config = load(path, os.environ, overrides)
    except ConfigErrors:
        return None
    if not config.death_watcher_enable:
        return None
    session_s = config.broker_session_timeout_ms / 1_000
    return start_watcher(lambda: _reported(config, patience_s=session_s, within_s=session_s))


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
