"""The operator's requests to fence or to unregister a broker. The controller refuses a request whose effect would not last.

    FenceBroker        below `metadata.version` 2 refused for a live broker: its next fetch would unfence the broker within
                       milliseconds, but its leaderships and its places in ISRs would stay lost. From 2 on a fence lasts (`modes`)
    UnregisterBroker   refused for a live broker: the broker would register again at once. Refused for a broker with replicas:
                       partitions would name a broker that does not exist

Example. An operator wants broker 7 out of the cluster.
    1  The operator stops the process of broker 7. Its leaderships move to other brokers, and then broker 7 is fenced.
    2  If the process dies instead, the controller fences broker 7 when its session ends, 9 s after its last fetch.
    3  The operator moves the replicas of broker 7 to other brokers, and unregisters it (`brokers unregister --reassign`).

The rules hold for new requests only. A fencing that is under way continues (`ContinueFencing`), even if the broker fetches again.
"""

from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.sessions import Sessions
from quorum.controller.protocol.decision import ControllerError

NAMED_MAX: Final = 3
"""How many topics a refusal names at most; it says only the number of the others."""


def check_may_be_fenced(broker: RegisterBroker, sessions: Sessions, now_ms: int) -> None:
    """Raises ControllerError(POLICY_VIOLATION) if the fence would not last."""
    heard = _heard(broker, sessions, now_ms)
    if heard is not None:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"broker {broker.broker_id} {heard}: it would be back with its next fetch, without its leaderships; nothing was "
            f"done. Stop its process instead: it is fenced when its leaderships have moved, or, if it is dead, when its "
            f"session of {sessions.timeout_ms} ms has ended",
        )


def check_may_be_unregistered(image: MetadataImage, broker: RegisterBroker, sessions: Sessions, now_ms: int) -> None:
    """Raises ControllerError(POLICY_VIOLATION) if the broker would register again, or if partitions still name it."""
    problem = _heard(broker, sessions, now_ms)
    if problem is not None:
        advice = "it would register again at once; nothing was done. Stop its process first"
    elif not broker.fenced:
        problem, advice = (
            "is being fenced",
            "nothing was done. Try again when `quorumctl brokers list` shows it as fenced",
        )
    else:
        problem = _replicas(image, broker)
        advice = (
            "nothing was done. Move them first (`quorumctl brokers unregister --reassign --wait`), or leave the broker "
            "registered: a fenced broker does no harm"
        )
    if problem is not None:
        raise ControllerError(ErrorCode.POLICY_VIOLATION, f"broker {broker.broker_id} {problem}: {advice}")


def _heard(broker: RegisterBroker, sessions: Sessions, now_ms: int) -> str | None:
    """Says when the broker was heard; None if its session has ended, or if its process is dead."""
    if broker.dead or not sessions.is_live(broker.broker_id, broker.broker_epoch, now_ms):
        return None
    session = sessions.of(broker.broker_id, broker.broker_epoch)
    assert session is not None
    if session.last_contact_ms is None:
        return "may be alive (this controller began to lead less than a session ago, and has not heard it yet)"
    return f"is alive (it was heard {now_ms - session.last_contact_ms} ms ago)"


def _replicas(image: MetadataImage, broker: RegisterBroker) -> str | None:
    """Names the topics with replicas on the broker; None if there are none. Looks at every topic, 0.3 us each."""
    names = [topic.name for topic in image.topics_by_id.unordered_values() if topic.has_replica_on(broker.broker_id)]
    if not names:
        return None
    shown = ", ".join(repr(name) for name in sorted(names)[:NAMED_MAX])
    others = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return f"has replicas of {'1 topic' if len(names) == 1 else f'{len(names):,} topics'} ({shown}{others})"
