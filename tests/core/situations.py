"""Starting points of the tests: a leader, a working leader, a follower; and readers for their effects."""

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
    """A leader of epoch 3 without a commit in the epoch. Its log is 1 1 3 (LeaderChange) 3 (Voters)."""
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None), voters=voters)
    solo.elect()
    return solo


def working_leader() -> Solo:
    """A leader of epoch 3 with a committed log and parked fetches of both followers."""
    solo = leader()
    for node_id in (2, 3):
        solo.fetch(node_id)
    for node_id in (2, 3):
        solo.fetch(node_id, high_watermark=solo.log.end)
    assert solo.core.high_watermark == solo.log.end == 4
    return solo


def follower(*epochs: int) -> tuple[Solo, FetchRequest]:
    """A follower of node 2 in epoch 3, with its first fetch in flight."""
    solo = Solo(epochs=epochs, election=ElectionState(3, None, None))
    return solo, solo.follow(2)


def requests(effects: list[Effect], kind: type) -> list[SendRequest]:
    return [e for e in effects if isinstance(e, SendRequest) and isinstance(e.request, kind)]


def batches_after(log: FakeLog, *epochs: int) -> tuple[Batch, ...]:
    """The batches from a leader with the same log and these additional records."""
    twin = FakeLog()
    twin.append_batches(tuple(log.batches))
    return tuple(twin.append(epoch) for epoch in epochs)


def fetch_reply(effects: list[Effect]) -> FetchResponse:
    """The answer to the newest fetch, which is the last of the replies."""
    response = [effect for effect in effects if isinstance(effect, Reply)][-1].response
    assert isinstance(response, FetchResponse)
    return response
