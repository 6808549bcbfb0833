"""Every change of role is one line with its reason; a node that looks for a leader in vain does not fill the disk with them."""

import io
import json
from typing import Any

from quorum.core.current_leader import Followed
from quorum.core.roles import Role
from quorum.wire.reporting.role_lines import RoleLines
from service_kit.process.logs import Logs
from tests.core.situations import follower, working_leader
from tests.core.solo import Solo


def lines_of(solo: Solo, duration_ms: int) -> list[dict[str, Any]]:
    """What is logged while time passes and nobody answers anything."""
    stream = io.StringIO()
    with Logs("info", "json", stream=stream) as logs:
        lines = RoleLines(logs)
        end_ms = solo.now_ms + duration_ms
        while True:
            for each in solo.core.take_transitions():
                lines.tell(each)
            due_ms = solo.core.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            solo.wait(due_ms - solo.now_ms)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_change_has_its_reason() -> None:
    """Role before and after, epoch, leader, log end; none is left out, however fast they follow each other."""
    solo = Solo(epochs=(1, 1))
    solo.elect()
    lines = lines_of(solo, 0)
    assert [(line["was"], line["role"], line["epoch"], line["leader_id"]) for line in lines] == [
        ("unattached", "prospective", 1, None),
        ("prospective", "candidate", 2, None),
        ("candidate", "leader", 2, 1),
    ]
    assert [line["reason"] for line in lines] == [
        "the node heard of no leader for an election timeout",
        "a majority would vote for this node",
        "a majority has voted for this node",
    ]
    assert {line["event"] for line in lines} == {"role"} and lines[0]["log_end_offset"] == 2


def test_a_node_without_a_majority_logs_the_change_and_not_each_attempt() -> None:
    """An hour alone: a handful of lines for what has happened, then one a minute that says how often it has asked."""
    solo, fetch = follower(1, 1)
    solo.good_answer(fetch)
    lines = lines_of(solo, 3_600_000)
    changes = [line for line in lines if line["event"] == "role"]
    assert [(line["was"], line["role"]) for line in changes] == [
        ("unattached", "follower"),
        ("follower", "prospective"),
        ("prospective", "follower"),
    ]
    assert changes[1]["reason"] == "the leader has not answered for the fetch timeout"
    still = [line for line in lines if line["event"] == "repeated role changes"]
    assert 55 <= len(still) <= 61 and len(lines) == len(changes) + len(still)
    assert all(line["repeated"] > 10 for line in still[1:])
    assert lines[3] == still[0] and still[0]["role"] == "prospective" and still[0]["repeated"] == 1, (
        "the log's last word before the first minute is not a role that the node has left again"
    )


def test_after_a_leader_was_followed_a_loss_is_news_again() -> None:
    """The same edge in the same epoch: it is another story, and told."""
    solo, fetch = follower(1, 1)
    told = []
    for _ in range(3):
        solo.good_answer(fetch)
        told += lines_of(solo, 5_000)
        while solo.core.role is not Role.FOLLOWER:
            solo.wait(10)
        in_flight = solo.core._state.fetch.in_flight
        assert in_flight is not None
        fetch = in_flight[1]  # type: ignore[assignment]
    assert [line["role"] for line in told if line["event"] == "role"].count("prospective") == 3


def test_a_leader_that_loses_its_majority_says_so_once() -> None:
    solo = working_leader()
    lines = [line for line in lines_of(solo, 60_000) if line["event"] == "role"]
    reasons = [line["reason"] for line in lines]
    assert reasons.count("no majority of the voters has made progress for the check-quorum timeout") == 1
    assert len(lines) <= 10 and solo.core.followed(solo.now_ms) != Followed(1)
