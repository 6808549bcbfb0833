"""Images that differ although the logs agree: the odd one's state machine stops, and Raft goes on."""

from pathlib import Path

import pytest

from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import FeatureLevel
from metadata_log.image.delta import MetadataDelta
from quorum.core.protocol.problem import ProblemCode
from quorum.runtime.image.digests import DIGESTS_KEPT, Digests
from quorum.runtime.loop import NodeLoop
from tests.quorum.runtime.quorum_of_three import Quorum, quorum_of_three, until

A, B, C = (ReplicaKey(node_id, bytes([node_id]) * 16) for node_id in (1, 2, 3))
VOTERS = (A, B, C)


# --- the arithmetic ---------------------------------------------------------------------------------------------------


def digests_of_a() -> Digests:
    digests = Digests()
    for offset in range(1, 10):
        digests.note(offset, b"%d" % offset)
    return digests


def test_one_differs_and_a_majority_agrees_at_that_offset_or_later() -> None:
    """Two of three have one image: the third is the odd one."""
    digests = digests_of_a()
    assert not digests.heard(B, 5, b"other")
    assert not digests.is_odd(B, VOTERS, A) and "node 2 at 5" in digests.differing()
    assert digests.heard(C, 4, b"4")
    assert not digests.is_odd(B, VOTERS, A), "before the place where they differ all may have agreed"
    assert digests.heard(C, 6, b"6")
    assert digests.is_odd(B, VOTERS, A) and not digests.am_odd(VOTERS)


def test_a_majority_has_another_image_than_the_leader() -> None:
    """The leader is the odd one only if the others have the same image, at the same offset."""
    digests = digests_of_a()
    digests.heard(B, 5, b"other")
    digests.heard(C, 6, b"other too")
    assert not digests.am_odd(VOTERS)
    digests.heard(C, 5, b"other")
    assert digests.am_odd(VOTERS) and not digests.is_odd(B, VOTERS, A)


def test_what_cannot_be_compared_is_no_difference() -> None:
    """An offset that is too old or too new, or no image at all; what is known already stays known."""
    digests = digests_of_a()
    assert digests.heard(B, 99, b"99") and digests.heard(B, 5, b"")
    digests.heard(B, 5, b"other")
    assert not digests.heard(B, 99, b"99")
    assert digests.heard(B, 6, b"6") and not digests.differing()
    for offset in range(10, 10 + DIGESTS_KEPT):
        digests.note(offset, b"")
    assert digests.heard(B, 5, b"other")


def test_an_image_that_was_loaded_anew_is_another_one() -> None:
    """A voter that was stopped for its image restarts as it is told to; stopped again at its first fetch, it never came back."""
    digests = digests_of_a()
    digests.heard(C, 5, b"5")
    digests.heard(B, 5, b"other")
    assert not digests.heard(B, 7, b"") and digests.is_odd(B, VOTERS, A), "it applies nothing any more"
    assert digests.heard(B, 0, b"") and not digests.differing()
    assert digests.heard(B, 99, b"99")
    assert not digests.heard(B, 6, b"other"), "the error came with its snapshot"


def test_two_voters_decide_nothing() -> None:
    """One word against the other."""
    digests = digests_of_a()
    digests.heard(B, 5, b"other")
    assert not digests.is_odd(B, (A, B), A) and not digests.am_odd((A, B))


# --- a quorum ---------------------------------------------------------------------------------------------------------


async def active_of(quorum: Quorum) -> NodeLoop:
    await until(lambda: any(loop.node.active.on for loop in quorum.loops.values()))
    return next(loop for loop in quorum.loops.values() if loop.node.active.on)


def corrupt(loop: NodeLoop) -> None:
    """The node's image is another from now on, at the same offset: memory has flipped, or its code is another."""
    state = loop.node.state
    delta = MetadataDelta(state.committed)
    delta.replay(FeatureLevel("memory.is.bad", 1), state.applied)
    state.load(delta.finish(state.committed.provenance))


@pytest.mark.slow
async def test_a_follower_with_another_image_stops_applying_and_goes_on_voting(tmp_path: Path) -> None:
    """The next commit shows it; the log, the leader and the other follower are as they were."""
    async with quorum_of_three(tmp_path) as quorum:
        active = await active_of(quorum)
        odd, other = (loop for loop in quorum.loops.values() if loop is not active)
        await until(lambda: odd.node.state.applied == other.node.state.applied == active.node.log.shape.end)
        corrupt(odd)
        await active.create_snapshot("so that something is committed", 5_000)
        await until(lambda: odd.node.state.stopped is not None)
        [problem] = odd.status().problems
        assert problem.code is ProblemCode.IMAGE_DIFFERS and "differs from that of a majority" in problem.text
        assert problem.blocks_ready and not any(each.blocks_ready for each in other.status().problems)
        await active.create_snapshot("and once more", 5_000)
        await until(lambda: odd.node.log.shape.end == active.node.log.shape.end)
        assert odd.node.stopped is None and odd.node.state.applied < odd.node.log.shape.end
        assert active.node.active.on and other.node.state.stopped is None
        [problem] = active.status().problems
        assert problem.code is ProblemCode.IMAGES_DISAGREE and f"node {odd.node.me.node_id}" in problem.text


@pytest.mark.slow
async def test_a_leader_with_another_image_leaves_the_lead_to_a_majority(tmp_path: Path) -> None:
    """Both others have one image, and it is not the leader's: it decides nothing by its own any more."""
    async with quorum_of_three(tmp_path) as quorum:
        first = await active_of(quorum)
        others = [loop for loop in quorum.loops.values() if loop is not first]
        await until(lambda: all(loop.node.state.applied == first.node.log.shape.end for loop in others))
        for loop in others:
            corrupt(loop)
        await first.create_snapshot("so that something is committed", 5_000)
        await until(lambda: any(loop.node.active.on for loop in others))
        assert first.node.state.stopped is not None and first.node.stopped is None
