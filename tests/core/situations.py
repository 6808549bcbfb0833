"""Where the sentences begin: a leader, a working leader, a follower; and how their effects are read."""

from metadata_log.format.batch import Batch
from quorum.core.protocol.effects import (
    Effect,
    ElectionState,
    Reply,
    SendRequest,
)
from quorum.core.protocol.messages import (
    FetchRequest,
    FetchResponse,
)
from tests.core.fake_log import FakeLog
from tests.core.solo import Solo


def leader(voters: int = 3) -> Solo:
    """Leads epoch 3 with nothing committed in it; its log is 1 1 3 (LeaderChange) 3 (Voters)."""
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None), voters=voters)
    solo.elect()
    return solo


def working_leader() -> Solo:
    """The same, committed to its end, both followers parked there."""
    solo = leader()
    for node_id in (2, 3):
        solo.fetch(node_id)
    for node_id in (2, 3):
        solo.fetch(node_id, high_watermark=solo.log.end)
    assert solo.core.high_watermark == solo.log.end == 4
    return solo


def follower(*epochs: int) -> tuple[Solo, FetchRequest]:
    """Follows node 2 in epoch 3; its first fetch is on its way."""
    solo = Solo(epochs=epochs, election=ElectionState(3, None, None))
    return solo, solo.follow(2)


def requests(effects: list[Effect], kind: type) -> list[SendRequest]:
    return [e for e in effects if isinstance(e, SendRequest) and isinstance(e.request, kind)]


def batches_after(log: FakeLog, *epochs: int) -> tuple[Batch, ...]:
    """What a leader with the same log and these records more would send."""
    twin = FakeLog()
    twin.append_batches(tuple(log.batches))
    return tuple(twin.append(epoch) for epoch in epochs)


def fetch_reply(effects: list[Effect]) -> FetchResponse:
    """The answer to the newest fetch: it comes last."""
    response = [effect for effect in effects if isinstance(effect, Reply)][-1].response
    assert isinstance(response, FetchResponse)
    return response
