"""Bugs of what an active controller tells of itself."""

from collections.abc import Sequence

from metadata_log.format.ids import Offset
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.protocol.brokers.broker_happenings import BrokerFenced
from quorum.controller.protocol.happenings import Happening
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.runtime.active.story import Story
from tests.sim.mutants.patching import Mutant, patched

_appended = Story.appended


def _tell_at_once(
    self: Story, happenings: Sequence[Happening], offset: Offset, request: RequestIdentity | None
) -> None:
    _appended(self, happenings, offset, request)
    self.applied(offset)


def _tell_of_no_fencing(
    self: Story, happenings: Sequence[Happening], offset: Offset, request: RequestIdentity | None
) -> None:
    told = [happening for happening in happenings if not isinstance(happening, BrokerFenced)]
    _appended(self, told, offset, request)


def _drop_nothing(self: Story) -> None:
    pass


STORIES: dict[str, Mutant] = {
    "told-before-commit": Mutant(
        "a happening is told when it is appended", lambda: patched(Story, "appended", _tell_at_once)
    ),
    "told-by-the-next-leadership": Mutant(
        "a leader that lost its leadership tells what was not committed when it leads again",
        lambda: patched(Story, "drop", _drop_nothing),
    ),
    "reason-that-some-cannot-read": Mutant(
        "a record says why a broker is in its state, although a broker of an older release is registered",
        lambda: patched(BrokerView, "all_read_reasons", True),
    ),
    "fencing-not-told": Mutant(
        "the controller fences a broker and does not say so", lambda: patched(Story, "appended", _tell_of_no_fencing)
    ),
}
