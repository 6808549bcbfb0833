"""One verdict for a cluster: each thing that can be wrong is a reason, and nothing else is."""

from typing import Any

import pytest

from quorum.cli.commands.health.verdict import notes, pending, reasons

FULL = [{"code": "disk_full", "text": "the disk is full", "blocks_ready": True}]


def controller(node_id: int, status: str = "follower", **other: Any) -> dict[str, Any]:
    return {
        "node_id": node_id, "endpoint": f"c{node_id}:1", "is_voter": True, "status": status, "lag": 0,
        "behind_for_ms": 20, "last_fetch_age_ms": 20, "problems": [], "no_leader_reason": None, "missing": None,
        "other_directory_id": None, **other,
    }  # fmt: skip


def cluster(**other: Any) -> dict[str, Any]:
    """A healthy one, but for what is said."""
    return {
        "leader_id": 1, "high_watermark": 9, "answered_by": 1, "is_leaders": True,
        "no_leader_reason": None, "no_leader_for_ms": None,
        "controllers": [controller(1, "leader"), controller(2), controller(3)],
        "brokers": [{"broker_id": 101, "state": "online", "last_contact_age_ms": 5, "data_plane": "external", "mode": None}],
        "partitions": {
            "count": 9, "leaderless": 0, "under_replicated": 0, "first_leaderless": [], "first_under_replicated": [],
        },
        "reassignments": {"count": 0, "waiting": 0, "waits_for": []},
        "error": None,
        **other,
    }  # fmt: skip


def with_third(**other: Any) -> dict[str, Any]:
    return cluster(controllers=[controller(1, "leader"), controller(2), controller(3, **other)])


def test_a_healthy_cluster_has_no_reasons() -> None:
    """Also where a voter lacks a few records of this moment."""
    for document in (cluster(), with_third(lag=7)):
        assert reasons(document) == pending(document) == notes(document) == []


def test_a_cluster_without_brokers_is_well_and_says_so() -> None:
    """Whoever waits for health before the brokers have registered reads why the first topic cannot be created."""
    document = cluster(brokers=[])
    assert reasons(document) == pending(document) == []
    assert notes(document) == ["no broker is registered, so no topic can be created yet"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            cluster(leader_id=None, no_leader_reason="2, 3 do not answer", no_leader_for_ms=12_300, brokers=None),
            "no controller leads, for 12.3 s, as controller 1 says: 2, 3 do not answer",
        ),
        (cluster(high_watermark=None), "leader 1 has not committed anything in its epoch yet"),
        (
            cluster(
                is_leaders=False,
                controllers=[controller(1, "follower"), controller(2, "unknown"), controller(3, "unknown")],
                answered_by=1, leader_id=2,
            ),
            "leader 2 could not be asked, neither from here nor by controller 1: which voters are silent is not known",
        ),
        (
            with_third(missing="connection refused", last_fetch_age_ms=1_200),
            "controller 3 cannot be asked, and the leader has not heard it for 1.2 s: connection refused",
        ),
        (
            with_third(status="silent", last_fetch_age_ms=5_000, lag=4),
            "controller 3 is silent: the leader has not heard it for 5.0 s",
        ),
        (
            with_third(status="silent", last_fetch_age_ms=None, lag=900),
            "controller 3 is silent: the leader has not heard it since its election",
        ),
        (
            with_third(lag=72_017, behind_for_ms=137_000),
            "controller 3 lacks 72,017 records, and has lacked some for 137.0 s",
        ),
        (
            with_third(lag=1, behind_for_ms=137_000),
            "controller 3 lacks 1 record, and has lacked some for 137.0 s",
        ),
        (with_third(problems=FULL), "controller 3: disk_full: the disk is full"),
        (with_third(no_leader_reason="it asks around"), "controller 3 follows no leader: it asks around"),
        (
            cluster(
                brokers=[
                    {"broker_id": 101, "state": "online", "last_contact_age_ms": 5, "data_plane": "external", "mode": None},
                    {"broker_id": 102, "state": "fenced", "last_contact_age_ms": None, "data_plane": "external", "mode": None},
                    {"broker_id": 103, "state": "fenced", "last_contact_age_ms": None, "data_plane": "external", "mode": None},
                ]
            ),
            "2 of 3 brokers are fenced: 102, 103",
        ),
        (
            cluster(
                partitions={
                    "count": 9_000, "leaderless": 1, "under_replicated": 0, "first_leaderless": ["t-0"],
                    "first_under_replicated": [],
                }
            ),
            "1 of 9,000 partitions without a leader: t-0",
        ),
        (
            cluster(
                partitions={
                    "count": 9_000, "leaderless": 0, "under_replicated": 11, "first_leaderless": [],
                    "first_under_replicated": [f"t-{i}" for i in range(10)],
                }
            ),
            "11 of 9,000 partitions with too few replicas in sync: t-0, t-1, t-2, t-3, t-4, t-5, t-6, t-7, t-8, t-9, ...",
        ),
        (
            cluster(brokers=None, partitions=None, error="nobody answered"),
            "brokers and partitions are not known: nobody answered",
        ),
    ],
)  # fmt: skip
def test_each_trouble_is_a_reason(document: dict[str, Any], reason: str) -> None:
    assert reasons(document) == [reason]


def test_whom_only_this_machine_cannot_reach_is_a_note() -> None:
    """The leader hears it; where nobody leads, that it does not answer is part of the trouble."""
    document = with_third(missing="connection refused")
    assert reasons(document) == [] and "controller 3 cannot be asked from here" in notes(document)[0]
    document["leader_id"] = None
    assert "controller 3 does not answer: connection refused" in reasons(document) and notes(document) == []


def test_a_voter_that_a_new_leader_has_not_heard_yet_is_pending() -> None:
    """No alarm after every election; but who waits for health waits for it."""
    document = with_third(last_fetch_age_ms=None, lag=900, behind_for_ms=300)
    assert reasons(document) == []
    assert pending(document) == ["leader 1 has not heard controller 3 since its election"]


def test_a_follower_does_not_know_which_voters_the_leader_has_heard() -> None:
    """Its answer has no time of a last fetch, for any voter."""
    voters = [controller(1, "follower", last_fetch_age_ms=None), controller(2, "unknown", last_fetch_age_ms=None)]
    assert pending(cluster(is_leaders=False, controllers=voters)) == []


def test_brokers_that_an_operator_has_taken_out_are_noted() -> None:
    """A drained broker is online, so nothing else tells that the cluster runs with less."""
    modes = ("maintenance", None)
    brokers = [
        {"broker_id": number, "state": "online", "last_contact_age_ms": 5, "data_plane": "external", "mode": mode}
        for number, mode in enumerate(modes, 101)
    ]
    document = cluster(brokers=brokers)

    assert reasons(document) == []
    assert notes(document) == ["an operator has taken 1 of 2 brokers out of work: 101 maintenance"]


def test_brokers_without_a_data_plane_are_noted() -> None:
    """Their ISRs say who is active, and not who has the data: whoever reads a verdict is told, though it is as was wanted."""
    planes = ("none", "external", "none")
    brokers = [
        {"broker_id": number, "state": "online", "last_contact_age_ms": 5, "data_plane": plane, "mode": None}
        for number, plane in enumerate(planes, 101)
    ]
    document = cluster(brokers=brokers)

    assert reasons(document) == []
    assert notes(document) == [
        "2 of 3 brokers run without a data plane (broker.data.plane: none), so that in sync means active there: 101, 103"
    ]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, []),
        ({"count": 3, "waiting": 0, "waits_for": []}, ["partitions in reassignment: 3"]),
        (
            {"count": 3_000, "waiting": 2, "waits_for": [102, 105]},
            ["partitions in reassignment: 3,000; 2 wait for a broker that is not online: 102, 105"],
        ),
    ],
)
def test_reassignments_are_noted(found: dict[str, Any] | None, said: list[str]) -> None:
    """They are wanted, and no reason. None: a controller of an older release does not know the question."""
    document = cluster(reassignments=found)
    assert (reasons(document), notes(document)) == ([], said)


def test_a_voter_whose_directory_is_gone_does_not_vote() -> None:
    """A process of its id runs and follows, with another directory: the reason names it, and the way back."""
    (reason,) = reasons(with_third(other_directory_id="U4x5U8pyTXo3urnqz9Yt2g"))
    assert reason.startswith("controller 3 does not vote: it runs with directory U4x5U8pyTXo3urnqz9Yt2g")
    assert "remove-voter --node-id 3" in reason and "add-voter" in reason
    assert reasons(with_third(is_voter=False, other_directory_id="U4x5U8pyTXo3urnqz9Yt2g")) == []
