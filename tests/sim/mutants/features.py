"""Bugs of features: levels that rise over nodes, fall over records, and registrations that are lost."""

from collections.abc import Iterator, Mapping, Sequence

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topic_image import TopicImage
from quorum.controller.features import support, updates
from quorum.controller.features.losses import Found, find_losses
from quorum.controller.protocol.commands import RegisterControllerCommand
from quorum.runtime.active.active_controller import ActiveController
from quorum.runtime.registration import Registration
from tests.sim.mutants.patching import Mutant, patched

_ended = Registration._ended
_brokers = support._brokers


def _online_only(image: MetadataImage, name: str, level: int) -> Iterator[str]:
    for text in _brokers(image, name, level):
        if not image.brokers[int(text.split()[1])].fenced:
            yield text


def _any_disk(image: MetadataImage, voters: Sequence[ReplicaKey], name: str, level: int) -> Iterator[str]:
    for voter in sorted(voters):
        registered = image.controllers.get(voter.node_id)
        problem = "has not registered" if registered is None else support._problem(registered.features, name, level)
        if problem is not None:
            yield f"controller {voter.node_id} {problem}"


def _ended_for_good(self: Registration, error: ErrorCode | None) -> None:
    _ended(self, error)
    self._asked = True


def _nothing_found(
    image: MetadataImage, lowered: Mapping[str, int], looked_at: dict[Uuid, TopicImage], partitions_max: int
) -> Found:
    return Found(is_complete=True)


def _looked_at_once(
    image: MetadataImage, lowered: Mapping[str, int], looked_at: dict[Uuid, TopicImage], partitions_max: int
) -> Found:
    for topic_id in image.topics_by_id:
        if topic_id in looked_at:
            looked_at[topic_id] = image.topics_by_id[topic_id]
    return find_losses(image, lowered, looked_at, partitions_max)


def _register_at_once(self: ActiveController, command: RegisterControllerCommand, now_ms: int) -> None:
    self._now_ms = now_ms
    self._deciding.decide(command, now_ms)


FEATURES: dict[str, Mutant] = {
    "raised-over-fenced-brokers": Mutant(
        "a level rises although a fenced broker does not support it",
        lambda: patched(support, "_brokers", _online_only),
    ),
    "raised-over-old-voters": Mutant(
        "a level rises although a voter does not support it",
        lambda: patched(support, "_voters", lambda image, voters, name, level: iter(())),
    ),
    "registration-of-another-disk": Mutant(
        "the registration of a voter's former disk counts for its new one",
        lambda: patched(support, "_voters", _any_disk),
    ),
    "registered-once": Mutant(
        "a controller registers with one leader only, and never asks again",
        lambda: patched(Registration, "_ended", _ended_for_good),
    ),
    "registered-inside-a-transaction": Mutant(
        "a controller's registration is taken between the slices of a transaction",
        lambda: patched(ActiveController, "register", _register_at_once),
    ),
    "lowered-without-a-look": Mutant(
        "a level falls although partitions need it",
        lambda: patched(updates, "find_losses", _nothing_found),
    ),
    "lowered-after-one-look": Mutant(
        "a downgrade does not look again at a topic that changes while it looks at others",
        lambda: patched(updates, "find_losses", _looked_at_once),
    ),
}
