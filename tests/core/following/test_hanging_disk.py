"""A hanging disk: a flush neither ends nor fails. A leader with such a disk commits by others' disks, and applies
nothing.
"""

from metadata_log.format.ids import NodeId
from quorum.core.leader import FLUSH_PATIENCE
from quorum.core.protocol.effects import Effect, ElectionState
from quorum.core.protocol.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest
from quorum.core.roles import Role
from tests.core.situations import requests, working_leader
from tests.core.solo import Solo, key, problem_texts


def live(solo: Solo, duration_ms: int, of: tuple[NodeId, ...] = (2, 3)) -> list[Effect]:
    """Lets these followers fetch all records, and hold them durably."""
    done: list[Effect] = []
    for _ in range(duration_ms // 100):
        for node_id in of:
            done += solo.fetch(node_id, high_watermark=solo.core.high_watermark or 0)
        done += solo.wait(100)
    return done


def hanging_leader() -> Solo:
    solo = working_leader()
    solo.auto_flush = False
    solo.append()
    return solo


def patience_ms(solo: Solo) -> int:
    return FLUSH_PATIENCE * solo.config.check_quorum_ms


def test_a_leader_whose_disk_hangs_resigns() -> None:
    """The leader cannot apply its commits: every change would end as "may have happened", and every read as "not
    ready".
    """
    solo = hanging_leader()
    before = live(solo, patience_ms(solo) - 100)
    assert solo.core.is_leading and not requests(before, EndQuorumEpochRequest)
    assert solo.core.high_watermark == solo.log.end > solo.log.flushed_end
    assert problem_texts(solo.core) == ""

    after = live(solo, 200)
    assert solo.core.role is Role.RESIGNED
    assert [effect.destination for effect in requests(after, EndQuorumEpochRequest)] == [2, 3]
    assert "flush" in problem_texts(solo.core)


def test_it_does_not_run_before_its_disk_has_got_further() -> None:
    """Another leader comes and goes meanwhile. After the flush this node is normal again."""
    solo = hanging_leader()
    live(solo, patience_ms(solo) + 100)
    effects = solo.wait(5_000)
    solo.request(BeginQuorumEpochRequest(key(2), solo.core.me, solo.core.epoch + 1))
    effects += solo.wait(5_000)
    assert not requests(effects, VoteRequest)

    effects = solo.flush()
    assert requests(effects + solo.wait(2_000), VoteRequest)
    assert problem_texts(solo.core) == ""


def test_a_slow_disk_costs_nobody_the_lead() -> None:
    """Each flush takes a second, under constant writes."""
    solo = hanging_leader()
    for _ in range(3 * FLUSH_PATIENCE):
        live(solo, 1_000)
        solo.append()
        solo.flush()
        solo.append()
    assert solo.core.is_leading


def test_an_idle_leader_has_nothing_to_flush() -> None:
    solo = working_leader()
    live(solo, 2 * patience_ms(solo))
    assert solo.core.is_leading


def test_the_only_voter_waits_for_its_disk() -> None:
    """No other node could do better."""
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None), voters=1)
    solo.auto_flush = False
    solo.append()
    solo.wait(60_000)
    assert solo.core.is_leading


def test_a_leader_without_whom_there_is_no_majority_waits_for_its_disk() -> None:
    """A successor would need this node's vote, and the vote would wait for the same disk."""
    solo = hanging_leader()
    live(solo, 2 * patience_ms(solo), of=(2,))
    assert solo.core.is_leading

    live(solo, 200)
    assert solo.core.role is Role.RESIGNED, "the third is there again"


def test_one_of_two_waits_for_its_disk() -> None:
    solo = Solo(epochs=(1, 1), election=ElectionState(2, None, None), voters=2)
    solo.elect()
    solo.auto_flush = False
    solo.append()
    live(solo, 2 * patience_ms(solo), of=(2,))
    assert solo.core.is_leading
