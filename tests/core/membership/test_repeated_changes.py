"""A change of the voters that an operator repeats at the next leader, because the first leader died with its answer."""

from dataclasses import replace

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from quorum.core.protocol.messages import RemoveVoterRequest
from tests.core.cluster import Cluster, directory


def removal(node_id: int) -> RemoveVoterRequest:
    return RemoveVoterRequest(ReplicaKey(node_id, directory(node_id)), timeout_ms=1_000)


def test_the_next_leader_finds_a_committed_change() -> None:
    """It stands in the log of each leader, so the repetition gets the first answer, and nothing is written."""
    cluster = Cluster(5).boot_all()
    first = cluster.elect()
    since, gone = first.up.high_watermark, next(node_id for node_id in cluster.nodes if node_id != first.id)
    request = replace(removal(gone), since=since)
    lost = cluster.wish(first.id, request)
    assert cluster.run(2_000, until=lambda: bool(lost))
    cluster.run(500)
    cluster.crash(first.id)
    second = cluster.elect()
    assert second.id != first.id

    again = cluster.wish(second.id, request)
    assert cluster.run(2_000, until=lambda: bool(again))
    assert [(each.error, each.offset) for each in again] == [(ErrorCode.NONE, lost[0].offset)]


def test_the_next_leader_makes_a_change_that_was_not_committed() -> None:
    """The first leader was cut off when it wrote the record: no other log has it, and the repetition is the first one."""
    cluster = Cluster(5).boot_all()
    first = cluster.elect()
    gone = next(node_id for node_id in cluster.nodes if node_id != first.id)
    request = replace(removal(gone), since=first.up.high_watermark)
    cluster.cut(first.id)
    lost = cluster.wish(first.id, request)
    assert gone not in first.up.voters.ids and not lost

    others = [node for node in cluster.nodes.values() if node.id != first.id]
    assert cluster.run(10_000, until=lambda: any(each.up.is_leading and each.up.high_watermark for each in others))
    second = next(each for each in others if each.up.is_leading)
    assert gone in second.up.voters.ids
    again = cluster.wish(second.id, request)
    assert cluster.run(2_000, until=lambda: bool(again))
    assert again[0].error is ErrorCode.NONE and gone not in second.up.voters.ids
    cluster.heal()
    cluster.run(3_000)
    assert {each.up.voters.ids for each in cluster.nodes.values()} == {second.up.voters.ids}
