"""Deaths: a watcher on the broker's host has proved that processes of the broker have ended, and the controller fences at once.

A session's end is a guess after 9 s of silence: the process may live, cut off. A death is a proof, so the log keeps it: `dead` in
the registration. A dead process is never unfenced again, and its fetches are refused as STALE_BROKER_EPOCH. Example:

    1  Incarnation A of broker 7 is killed. Its last fetch is still in a queue of the network.
    2  The watcher reports A. The controller moves the leaderships of broker 7; the last record fences A, and says that A is dead.
    3  The fetch of step 1 arrives, at this controller or at the next one. It changes nothing, and renews no session.
    4  Incarnation B registers as broker 7. It need not wait for the session of A, even if it does not know A.

A death says no more about the data than a session's end: the broker stays an eligible leader (KIP-966) until its next
registration, which proves or does not prove a clean shutdown.
"""

from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import uuid_text
from metadata_log.format.records import BrokerRegistrationChange, RegisterBroker
from metadata_log.format.records.levels import FIELD_LEVELS
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.brokers.broker_happenings import BrokerDied
from quorum.controller.protocol.commands import ReportDeath, ReportDeathReply
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.feature_gate import require_level

_LEVEL: Final = FIELD_LEVELS[BrokerRegistrationChange]["dead"]


def check_report(image: MetadataImage, broker: RegisterBroker, command: ReportDeath) -> None:
    """Raises ControllerError: UNSUPPORTED_VERSION, or STALE_BROKER_EPOCH if the registered process is not a reported one."""
    require_level(image, _LEVEL, "the death of a broker's process")
    if broker.incarnation_id not in command.incarnation_ids:
        raise ControllerError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker.broker_id} is registered as incarnation {uuid_text(broker.incarnation_id)}, which is none of the "
            f"{len(command.incarnation_ids)} processes that are reported as dead: another process has registered meanwhile; "
            "nothing was done, and nothing has to be done",
        )


def check_alive(broker: RegisterBroker, what: str) -> None:
    """Raises ControllerError(STALE_BROKER_EPOCH) for a request of a dead process; then the request has no effect (M2)."""
    if broker.dead:
        raise ControllerError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"the process of broker {broker.broker_id} with epoch {broker.broker_epoch} was reported as dead; its {what} was "
            "ignored. If the process is alive, restart it: a new process is welcome at once",
        )


def died_fenced(broker: RegisterBroker) -> Decision:
    """Records the death of a process that is fenced already; nothing if it is recorded. The reason of the fence stays."""
    reply = ReportDeathReply(broker_epoch=broker.broker_epoch)
    if broker.dead:
        return Decision((), reply)
    record = BrokerRegistrationChange(broker.broker_id, broker.broker_epoch, dead=True)
    return Decision((record,), reply, happenings=(BrokerDied(broker.broker_id, broker.broker_epoch),))
