"""The watcher: a small process beside `brokerd` that waits for the end of `brokerd`, proves it, and reports it.

`brokerd` forks the watcher before it opens anything. So the watcher has no lock, no socket and no thread of the broker, and its
imports are loaded: after `kill -9` the report leaves within milliseconds.

    1. `brokerd` opens a pidfd of itself, and forks. The pidfd names this process, even if its pid is used again.
    2. The watcher waits for the pidfd. A process that is stopped (SIGSTOP) or hangs has not ended: nothing happens.
    3. `brokerd` is killed. The watcher proves the death (`proof`), and reports it (`report`).
    4. While a data plane beside the broker holds `serving.lock`, the watcher tries again, until the session has ended.

After a controlled shutdown `brokerd` dismisses the watcher: the controllers have fenced the broker already.
"""

import asyncio
import gc
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final

from broker_agent.config import BrokerConfig
from broker_agent.death.proof import DeathCertificate, NoProof, StillServing, prove_death
from broker_agent.death.report import Outcome, Reported, report
from broker_agent.metadata_loader import Log
from service_kit.process.run import EXIT_FAILURE, EXIT_OK, loop_factory
from service_kit.rpc.controller_channels import ControllerChannels
from service_kit.rpc.dial import Dialer
from service_kit.rpc.doors import doors_of
from service_kit.security.node_identity import BROKER, Node
from service_kit.security.tls import TlsUnusable

PAUSE_S: Final = 0.02
_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that a supervisor or a terminal sends to all processes of the broker: the watcher ends when its work is done."""


class Watcher:
    """The watcher of this process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def dismiss(self) -> None:
        """Ends the watcher without a report."""
        os.kill(self._pid, signal.SIGKILL)  # a child that nobody has waited for: the pid is still its own
        os.waitpid(self._pid, 0)


def start_watcher(work: Callable[[], int]) -> Watcher | None:
    """Forks a process that calls `work` when this process has ended. None: this kernel has no pidfd.

    Call this before anything is opened, and before any thread is started.
    """
    try:
        ended = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return None
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        _watch(ended, work)
    os.close(ended)
    return Watcher(pid)


def _watch(ended: int, work: Callable[[], int]) -> None:
    code = EXIT_FAILURE
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, 0)
        os.dup2(null, 1)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.poll()
        code = work()
    finally:
        os._exit(code)


def report_death(config: BrokerConfig, log: Log, *, patience_s: float, within_s: float) -> int:
    """Proves the death of the last process of the broker's directory, and reports it; returns an exit code.

    `patience_s`: how long to wait for a data plane that still serves. `within_s`: how long to try to report.
    """
    try:
        certificate = _proved(config, patience_s)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            told = runner.run(_report(config, certificate, log, within_s))
    except NoProof as e:
        log.info("no death certificate", reason=str(e))
        return EXIT_FAILURE
    except TlsUnusable as e:
        log.warning("death not reported", reason=str(e))
        return EXIT_FAILURE
    if told.outcome in (Outcome.FENCED, Outcome.NOTHING_TO_DO):
        log.info("death reported", outcome=told.outcome.value, reason=told.reason)
        return EXIT_OK
    log.warning("death not reported", outcome=told.outcome.value, reason=told.reason)
    return EXIT_FAILURE


def _proved(config: BrokerConfig, patience_s: float) -> DeathCertificate:
    for _ in range(int(patience_s / PAUSE_S)):
        try:
            return prove_death(config.metadata_log_dir)
        except StillServing:
            time.sleep(PAUSE_S)
    return prove_death(config.metadata_log_dir)


async def _report(config: BrokerConfig, certificate: DeathCertificate, log: Log, within_s: float) -> Reported:
    node = Node(BROKER, certificate.broker_id)
    doors = doors_of(node, certificate.cluster_id, config.tls_files, config.access, log.warning)
    async with Dialer(config.tls_files) as dialer:
        reach = ControllerChannels(dialer, doors.names, config.tls_files)
        controllers = config.controller_quorum_bootstrap_servers
        return await report(certificate, controllers, reach, within_s)
