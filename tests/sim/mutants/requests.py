"""Bugs of requests with ids: what is remembered, what is forgotten, and what is taken for new."""

from collections.abc import Sequence

from metadata_log.format.records import MetadataRecord, RequestOutcome
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.commands import CommandReply
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.request_outcomes import RequestIdentity, earlier_outcome, outcome_of
from quorum.runtime.active import decisions
from quorum.runtime.active.decisions import Deciding, Prepared
from tests.sim.mutants.patching import Mutant, patched

_staged = Deciding._staged


def _do_it_again(image: MetadataImage, identity: RequestIdentity) -> None:
    return None


def _remember_all_that_is_remembered(image: MetadataImage, identity: RequestIdentity) -> RequestOutcome | None:
    return image.request_outcome(identity.request_id)


def _forget_one_more(
    image: MetadataImage, identity: RequestIdentity, reply: CommandReply, outcomes_max: int
) -> RequestOutcome:
    outcome = outcome_of(image, identity, reply, outcomes_max)
    return outcome._replace(horizon=max(0, outcome.horizon - 1))


def _one_above_the_horizon_will_not_do(image: MetadataImage, identity: RequestIdentity) -> RequestOutcome | None:
    seen = identity.client_high_watermark
    return earlier_outcome(image, identity._replace(client_high_watermark=seen - 1))


def _one_below_the_horizon_will_do(image: MetadataImage, identity: RequestIdentity) -> RequestOutcome | None:
    seen = identity.client_high_watermark
    return earlier_outcome(image, identity._replace(client_high_watermark=seen + 1))


def _append_the_outcome_by_itself(self: Deciding, decision: Decision, records: Sequence[MetadataRecord]) -> Prepared:
    if len(records) > 1 and isinstance(records[-1], RequestOutcome):
        self._write(_staged(self, decision, records[:-1]))
        return _staged(self, decision, records[-1:])
    return _staged(self, decision, records)


def _append_effects_alone(self: Deciding, decision: Decision, records: Sequence[MetadataRecord]) -> Prepared:
    if all(isinstance(record, RequestOutcome) for record in records):
        return Prepared(decision)
    return _staged(self, decision, records)


REQUESTS: dict[str, Mutant] = {
    "request-done-again": Mutant(
        "a request that comes again is decided again, whatever its id",
        lambda: patched(decisions, "earlier_outcome", _do_it_again),
    ),
    "forgotten-request-done-again": Mutant(
        "an id that may have been forgotten is taken for a new one",
        lambda: patched(decisions, "earlier_outcome", _remember_all_that_is_remembered),
    ),
    "nothing-to-do-forgotten": Mutant(
        "a request that found nothing to do is answered, and not remembered",
        lambda: patched(Deciding, "_staged", _append_effects_alone),
    ),
    "request-horizon-one-too-low": Mutant(
        "the outcome that was forgotten last counts as remembered",
        lambda: patched(decisions, "outcome_of", _forget_one_more),
    ),
    "forgotten-by-one-done-again": Mutant(
        "a request that may be the one that was forgotten last is taken for a new one",
        lambda: patched(decisions, "earlier_outcome", _one_below_the_horizon_will_do),
    ),
    "new-request-called-forgotten": Mutant(
        "a request whose client has seen no more than the horizon is refused, although it is new",
        lambda: patched(decisions, "earlier_outcome", _one_above_the_horizon_will_not_do),
    ),
    "outcome-in-another-batch": Mutant(
        "the outcome of a request is in a batch of its own, which may be lost alone",
        lambda: patched(Deciding, "_staged", _append_the_outcome_by_itself),
    ),
}
