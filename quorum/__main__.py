"""`quorumd --config FILE [--set KEY=VALUE ...]`: one controller.

Exit codes: 0 stopped in order; 1 failed, and a restart may help; 2 wrong usage; 78 the configuration or the directory is wrong,
and a restart does not help; 128 + n after a second SIGINT or SIGTERM.
"""

import argparse
import asyncio
import gc
import os
import random
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import grpc

from metadata_log.disk.failures import DirectoryInUse, FlushFailed
from metadata_log.disk.files import RealDirectory
from metadata_log.disk.identity import ForeignDirectory, Identity, UnformattedDirectory, check_identity, read_identity
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NodeId, uuid_text
from metadata_log.format.records import Endpoint
from quorum.config import QuorumConfig
from quorum.core.protocol.problem import ProblemCode
from quorum.runtime.disk.open_directory import Opened, open_directory
from quorum.runtime.loop import NodeLoop
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.wire.peers.peers import Peers
from quorum.wire.reporting.cluster_figures import ClusterFigures
from quorum.wire.reporting.metric_table import add_metrics
from quorum.wire.reporting.observe import watch
from quorum.wire.server import serve
from service_kit.process.background import in_background
from service_kit.process.clock import RealClock
from service_kit.process.config import load_config
from service_kit.process.endpoints import HostPort
from service_kit.process.logs import Logs, get_logger
from service_kit.process.metrics import Metrics
from service_kit.process.release import release_line
from service_kit.process.run import EXIT_CONFIG, EXIT_FAILURE, EXIT_OK, run
from service_kit.process.signals import handling_signals
from service_kit.rpc.binding import CannotBind
from service_kit.rpc.call_tallies import CallTallies
from service_kit.rpc.dial import Dialer, open_channel
from service_kit.rpc.doors import doors_of
from service_kit.rpc.grpc_options import RECONNECT_BACKOFF_MAX_MS, channel_options
from service_kit.rpc.health import Health, serving_http
from service_kit.security.node_identity import CONTROLLER, Node, NodeNames
from service_kit.security.served_certificate import ServedCertificate
from service_kit.security.tls import InsecureListener, TlsUnusable, channel_credentials, check_listener
from watches.service.tallies import WatchTallies

log = get_logger("quorumd")

PAGES = "docs/configuration.md lists the keys of FILE, docs/metrics.md the metrics, deploy/runbook.md what to do when it fails."


GC_THRESHOLDS: Final = (500, 2, 2_000_000)
"""How many new objects, and how many looks of the lower kind, come before Python looks for cyclic garbage.

Nearly nothing here is cyclic garbage. A look at 500 new objects takes up to 1 ms, and one at 1,500 up to 5 ms. A look at all
objects would take seconds, in which other nodes elect a leader: it comes after 2,000,000,000 new objects."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `quorumd`."""
    parser = argparse.ArgumentParser(
        prog="quorumd", description="One controller of a metaquorum cluster.", epilog=PAGES
    )
    parser.add_argument(
        "--config", required=True, type=Path, metavar="FILE", help="a YAML file with Kafka's names for things"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides one key of the file")
    parser.add_argument("--version", action="version", version=release_line())
    options = parser.parse_args(arguments)
    gc.set_threshold(*GC_THRESHOLDS)
    sys.exit(run(lambda: _configured(options.config, options.set)))


async def _configured(path: Path, overrides: Sequence[str]) -> int:
    config = load_config(QuorumConfig, path, os.environ, overrides)
    node_config = config.node_config()
    with Logs(config.log_level, config.log_format, node_id=config.node_id) as logs:
        try:
            return await _run(config, node_config, logs)
        except (UnformattedDirectory, ForeignDirectory, LogFormatError, InsecureListener, TlsUnusable) as e:
            log.error("cannot start", reason=str(e))
            return EXIT_CONFIG
        except (DirectoryInUse, CannotBind, FlushFailed, OSError) as e:
            log.error("cannot go on", reason=str(e))
            return EXIT_FAILURE


async def _run(config: QuorumConfig, node_config: NodeConfig, logs: Logs) -> int:
    warning = check_listener(
        config.listener.address, config.tls_files, allow_insecure_remote=config.allow_insecure_remote
    )
    if warning is not None:
        log.warning("insecure", reason=warning)
    opened = open_locked(config, node_config)
    identity, node = opened.identity, Node(CONTROLLER, config.node_id)
    names = doors_of(node, identity.cluster_id, config.tls_files, config.access, log.warning).names
    certificate = None if config.tls_files is None else ServedCertificate(config.tls_files, names, node)
    peers = _peers(config, opened, names)
    loop = NodeLoop(opened, node_config, peers, RealClock(), random.Random(secrets.randbits(64)))
    loop.add_problem(ProblemCode.CERTIFICATE_UNUSABLE, lambda: "" if certificate is None else certificate.problem)
    health, metrics = Health(), Metrics(process=True)
    calls, figures, watches = CallTallies(), ClusterFigures(), WatchTallies()
    add_metrics(metrics, loop, calls, figures, certificate, watches)
    asked_to_stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = serve(
        loop,
        identity,
        config.listener.address,
        tls=config.tls_files,
        health=health,
        learn=peers.told_by,
        dial=(dialer := Dialer(config.tls_files)),
        access=config.access,
        calls=calls,
        certificate=certificate,
        watches=watches,
        watches_max=config.watches_max,
    )
    # The dialer closes last: until the server has stopped, forwarded calls may use its channels.
    async with dialer, AsyncExitStack() as stack:
        stack.enter_context(handling_signals(lambda number: asked_to_stop.set_result(number.name)))
        port = await stack.enter_async_context(_running(loop, serving))
        log.info("listening", host=config.listener.address.host, port=port, cluster_id=identity.cluster_id)
        if certificate is not None:
            stack.enter_context(in_background("certificate", certificate.keep()))
        if config.metrics_listener is not None:
            stack.enter_context(in_background("cluster figures", figures.keep(loop)))
            log.info(
                "metrics",
                port=await stack.enter_async_context(serving_http(config.metrics_listener, health, metrics)),
            )
        watching = asyncio.ensure_future(watch(loop, health, logs))
        stack.callback(watching.cancel)
        await asyncio.wait((asked_to_stop, loop.stopped, watching), return_when=asyncio.FIRST_COMPLETED)
        if loop.stopped.done():
            log.error("stopped", reason=loop.stopped.result())
            return EXIT_FAILURE
        if watching.done():
            watching.result()
        log.info("stopping", signal=asked_to_stop.result())
    return EXIT_OK


@asynccontextmanager
async def _running(loop: NodeLoop, serving: AbstractAsyncContextManager[int]) -> AsyncIterator[int]:
    """Runs the node and its server inside the block, and yields the server's port.

    The node starts before the server, so that every answer is from a node that can vote. A node sends nothing before its first
    election timeout. So a process whose port is in use ends before its node has sent a message.

    At the end the node stops before the server: a leader hands its leadership over while its server still answers.
    """
    async with AsyncExitStack() as stack:
        await loop.start()
        try:
            port = await stack.enter_async_context(serving)
        except BaseException:
            await loop.stop()
            raise
        stack.push_async_callback(loop.stop)
        yield port


def open_locked(config: QuorumConfig, node_config: NodeConfig) -> Opened:
    """Locks the node's directory for this process, and opens it.

    Raises:
        UnformattedDirectory, ForeignDirectory: the message says what to do.
        DirectoryInUse: another process has locked the directory.
        LogFormatError: a file in the directory cannot be trusted.
    """
    path = config.metadata_log_dir
    directory = RealDirectory(path) if path.is_dir() else None

    def identity() -> Identity:
        found = None if directory is None else read_identity(directory)
        return check_identity(found, node_id=config.node_id, role="controller", where=str(path))

    identity()  # before the lock: its file must not appear in an empty mount point
    assert directory is not None
    directory.lock()
    try:
        # Read again: before this lock `quorumctl quorum recover` may have held the lock and changed the generation.
        opened = open_directory(directory, identity(), node_config, new_directory_id=lambda: secrets.token_bytes(16))
    except BaseException:
        directory.unlock()
        raise
    _log_opened(opened.identity, opened)
    return opened


def _log_opened(identity: Identity, opened: Opened) -> None:
    shape = opened.log.shape
    log.info(
        "opened",
        cluster_id=identity.cluster_id,
        directory_id=uuid_text(identity.directory_id),
        log_start_offset=shape.start.offset,
        log_end_offset=shape.end,
        epoch=opened.election.epoch,
        voters=str(opened.voters.latest),
    )


def _peers(config: QuorumConfig, opened: Opened, names: NodeNames | None) -> Peers:
    """Makes the connections to the other controllers. Over TLS each controller has to show its own certificate."""
    backoff_ms = min(RECONNECT_BACKOFF_MAX_MS, config.controller.quorum.election_timeout_ms // 2)
    options = channel_options(reconnect_backoff_max_ms=backoff_ms)
    # Read once: a dial during a rotation of certificates could read a new certificate with the old key.
    credentials = channel_credentials(config.tls_files)

    def dial(node_id: NodeId, endpoint: Endpoint) -> grpc.aio.Channel:
        name = None if names is None else names.demanded(Node(CONTROLLER, node_id))
        return open_channel(HostPort(endpoint.host, endpoint.port).target, credentials, options, name)

    return Peers(opened.identity, dial, config.voter_endpoints)


if __name__ == "__main__":
    main()
