"""Bugs of the broker's own process: what it believes of whom, when it gives up, and what its end is taken for."""

from collections.abc import Iterator
from contextlib import contextmanager

from broker_agent.session import registration
from broker_agent.session.fetch_schedule import FetchSchedule, Sent
from broker_agent.session.lease import Lease
from broker_agent.session.lifecycle import FetchAnswered, FetchRequest, Input
from broker_agent.session.session import Session
from metadata_log.disk.files import Directory
from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import RegisterBroker
from metadata_log.image.broker_delta import BrokerDelta
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers import broker_commands
from quorum.controller.protocol.commands import ReportDeath
from quorum.controller.protocol.feature_gate import require_level
from tests.sim.mutants.patching import Mutant, patched
from tests.sim.nodes import dying
from tests.sim.nodes.dying import Dying

_take = Session._take
_renew = Lease.renew


def _take_any_answer(self: FetchSchedule, number: int) -> tuple[Sent, FetchRequest] | None:
    sent = self.in_flight
    if sent is None or sent.request is None:
        return None
    self.in_flight = None
    return sent, sent.request


def _believe_the_last_word(self: Session, happened: Input, now_ms: int) -> None:
    if isinstance(happened, FetchAnswered):
        self.high_watermark = happened.answer.high_watermark
    _take(self, happened, now_ms)


def _renew_from_receiving(self: Lease, sent_ms: int, lease_ms: int, now_ms: int) -> bool:
    return _renew(self, now_ms, lease_ms, now_ms)


def _alive(broker: RegisterBroker, what: str) -> None:
    return


@contextmanager
def _let_the_dead_fetch() -> Iterator[None]:
    """The replay would refuse the record that unfences a dead process, so the bug is there, too."""
    revivable = staticmethod(lambda broker: None)
    with patched(broker_commands, "check_alive", _alive), patched(BrokerDelta, "_check_death", revivable):
        yield


def _take_any_report(image: MetadataImage, broker: RegisterBroker, command: ReportDeath) -> None:
    require_level(image, 2, "the death of a broker's process")


def _see_no_data_plane(self: Dying) -> bool:
    return False


def _forget_nothing(directory: Directory) -> None:
    return


BROKER_PROCESSES: dict[str, Mutant] = {
    "any-answer-taken": Mutant(
        "a broker takes any answer, late or repeated, for that to its last question",
        lambda: patched(FetchSchedule, "fetch_completed", _take_any_answer),
    ),
    "late-watermark-believed": Mutant(
        "a broker takes the high watermark of any answer, however late, for the newest",
        lambda: patched(Session, "_take", _believe_the_last_word),
    ),
    "lease-counted-from-receiving": Mutant(
        "a broker counts its lease from the arrival of the answer, not from the sending of the fetch",
        lambda: patched(Lease, "renew", _renew_from_receiving),
    ),
    "broker-gives-up": Mutant(
        "a broker that asks a controller which does not lead ends, instead of asking another",
        lambda: patched(registration, "FATAL", registration.FATAL | {ErrorCode.NOT_CONTROLLER}),
    ),
    "late-fetch-unfences": Mutant(
        "a late fetch of a process that is dead in the log unfences its broker",
        _let_the_dead_fetch,
    ),
    "living-data-plane-is-reported-dead": Mutant(
        "a watcher reports the end of an agent although the data plane beside it still serves",
        lambda: patched(Dying, "holds_serving_lock", _see_no_data_plane),
    ),
    "restart-beside-a-living-data-plane": Mutant(
        "a process names its predecessor although a data plane still serves with leases of the predecessor",
        lambda: patched(dying, "forget_incarnations", _forget_nothing),
    ),
    "old-death-kills-the-next-process": Mutant(
        "a controller takes a late report about an older process for the death of the registered one",
        lambda: patched(broker_commands, "check_report", _take_any_report),
    ),
}
