"""`brokerd --config FILE [--set KEY=VALUE ...]`: one broker.

Exit codes: 0 it left in order; 1 it could not go on; 2 wrong usage; 78 a configuration or a directory that a restart will
not mend; 130 and 143 a second SIGINT or SIGTERM.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import structlog
import yaml

from broker_agent.agent import boot_clock_ms
from broker_agent.config import BrokerConfig, ConfigMistakes, parse
from broker_agent.process import BrokerProcess, PortInUse, open_directory
from metadata_log.errors import LogFormatError
from metadata_log.files import DirectoryInUse, FlushFailed
from metadata_log.identity import ForeignDirectory, UnformattedDirectory

EX_CONFIG = 78


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `brokerd`."""
    parser = argparse.ArgumentParser(prog="brokerd", description="One broker of a metaquorum cluster.")
    parser.add_argument("--config", required=True, type=Path, help="a YAML file with Kafka's names for things")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides one key of the file")
    options = parser.parse_args(arguments)
    try:
        config = parse(_values(options.config, options.set))
    except (ConfigMistakes, OSError, yaml.YAMLError) as e:
        mistakes = e.mistakes if isinstance(e, ConfigMistakes) else [str(e)]
        for mistake in mistakes:
            print(f"brokerd: {options.config}: {mistake}", file=sys.stderr)  # noqa: T201
        sys.exit(EX_CONFIG)
    sys.exit(asyncio.run(_run(config)))


def _values(path: Path, overrides: Sequence[str]) -> dict[str, object]:
    loaded = yaml.safe_load(path.read_text())
    values = {} if loaded is None else loaded
    if not isinstance(values, dict):
        raise ConfigMistakes(["the file is not a mapping of keys to values"])
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ConfigMistakes([f"--set {override}: KEY=VALUE expected"])
        values[key] = value
    return values


async def _run(config: BrokerConfig) -> int:
    log = structlog.get_logger().bind(node_id=config.node_id)
    try:
        directory, identity = open_directory(config)
    except (UnformattedDirectory, ForeignDirectory, LogFormatError) as e:
        log.error("cannot start", reason=str(e))
        return EX_CONFIG
    except (DirectoryInUse, OSError) as e:
        log.error("cannot start", reason=str(e))
        return 1
    process = BrokerProcess(
        config,
        directory,
        identity,
        dial=grpc.aio.insecure_channel,
        make_server=lambda: grpc.aio.server(options=[("grpc.so_reuseport", 0)]),
        now_ms=boot_clock_ms,
        log=log,
    )
    try:
        await process.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, process.stop)
        exit_ = await process.run()
        log.info("left", code=exit_.code, reason=exit_.reason)
        return exit_.code
    except (PortInUse, OSError, FlushFailed) as e:
        log.error("stopped", reason=str(e))
        return 1
    finally:
        await process.close()


if __name__ == "__main__":
    main()
