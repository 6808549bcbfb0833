"""What an operator may have done to a broker: fence it, or forget it. Neither is done where it would not last.

    FenceBroker        a broker that is heard is back with its next fetch: it is unfenced within milliseconds, and everything that
                       it led, and every ISR that it stood in, is gone for good
    UnregisterBroker   a broker that is heard registers again at once; and of one that has replicas, partitions would go on
                       naming a broker that does not exist

An operator who wants a broker out stops its process: its leaderships move away first, and then it is fenced, until the process
is started again. A process that died without a word is fenced when its session ends, 9 s after it was last heard. A broker that
is fenced and holds no replicas may be forgotten.

The rules are for what is admitted. A fencing that is under way goes on by `ContinueFencing`, whoever is heard meanwhile.
"""

from typing import Final

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import RegisterBroker
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.brokers.sessions import Sessions
from quorum.controller.protocol.decision import ControllerError

NAMED_MAX: Final = 3
"""So many topics are named; of the others only the number is said."""


def check_may_be_fenced(broker: RegisterBroker, sessions: Sessions, now_ms: int) -> None:
    """Raises ControllerError(POLICY_VIOLATION) where the fence would not last."""
    heard = _heard(broker, sessions, now_ms)
    if heard is not None:
        raise ControllerError(
            ErrorCode.POLICY_VIOLATION,
            f"broker {broker.broker_id} {heard}: it would be back with its next fetch, without its leaderships; nothing was "
            f"done. Stop its process instead: it is fenced when its leaderships have moved, or, if it is dead, when its "
            f"session of {sessions.timeout_ms} ms has ended",
        )


def check_may_be_unregistered(image: MetadataImage, broker: RegisterBroker, sessions: Sessions, now_ms: int) -> None:
    """Raises ControllerError(POLICY_VIOLATION) where the broker would register again, or is still named by partitions."""
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
            "nothing was done. Delete these topics first, or leave the broker registered: a fenced broker does no harm"
        )
    if problem is not None:
        raise ControllerError(ErrorCode.POLICY_VIOLATION, f"broker {broker.broker_id} {problem}: {advice}")


def _heard(broker: RegisterBroker, sessions: Sessions, now_ms: int) -> str | None:
    """When the broker was heard, if its session has not ended."""
    if not sessions.is_live(broker.broker_id, broker.broker_epoch, now_ms):
        return None
    session = sessions.of(broker.broker_id, broker.broker_epoch)
    assert session is not None
    if session.last_contact_ms is None:
        return "may be alive (this controller began to lead less than a session ago, and has not heard it yet)"
    return f"is alive (it was heard {now_ms - session.last_contact_ms} ms ago)"


def _replicas(image: MetadataImage, broker: RegisterBroker) -> str | None:
    """What is placed on the broker. Looks at every topic, which takes 0.3 us each."""
    names = [topic.name for topic in image.topics_by_id.unordered_values() if topic.has_replica_on(broker.broker_id)]
    if not names:
        return None
    shown = ", ".join(repr(name) for name in sorted(names)[:NAMED_MAX])
    others = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return f"has replicas of {'1 topic' if len(names) == 1 else f'{len(names):,} topics'} ({shown}{others})"
