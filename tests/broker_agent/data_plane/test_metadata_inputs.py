"""The data plane's knowledge of the metadata: when a lease is worth an answer."""

from types import SimpleNamespace
from typing import Any

from broker_agent.data_plane.metadata_inputs import MetadataInputs
from broker_agent.publishing.assignments import ResumePoint


class Feed:
    """Assignments that have all been carried out, up to `end`."""

    has_ended = True

    def __init__(self, end: ResumePoint) -> None:
        self.end = end

    def read(self, point: ResumePoint | None) -> tuple[tuple[()], ResumePoint]:
        return (), self.end


async def test_assignments_of_an_earlier_generation_do_not_count() -> None:
    """1. The broker has carried out the assignments up to 10,000.  2. `quorum recover` begins generation 2; its first image ends
    at 50.  3. Until the assignments of that image are carried out, an old leadership may be another broker's."""
    broker: Any = SimpleNamespace(may_serve=lambda: False)
    feed: Any = Feed(ResumePoint(1, 10_000))
    nothing: Any = None
    inputs = MetadataInputs(broker, nothing, feed, nothing, lambda: 0)
    await inputs.follow_assignments()
    update: Any = SimpleNamespace(generation=2, after=SimpleNamespace(offset=50))
    inputs.note(update)
    assert not inputs.has_caught_up
    feed.end = ResumePoint(2, 50)
    await inputs.follow_assignments()
    assert inputs.has_caught_up
