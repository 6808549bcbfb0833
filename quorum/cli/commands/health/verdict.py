"""Judges the health of a cluster from the answers of its nodes: a list of reasons, empty for a healthy cluster.

    controllers   a leader has committed in its epoch; the leader hears every voter, and no voter lacks records for long;
                  no controller has a problem (a full disk, a damaged log, a follower that cannot keep up, ...)
    brokers       every registered broker is online
    partitions    every partition has a leader, and all of its replicas in sync

A new leader needs a moment until it has heard every voter. That moment is `pending` and not a reason, because otherwise every
election would raise an alarm. For example: controller 2 is elected; 200 ms later it has heard controller 1 and not yet
controller 3; the verdict is healthy with controller 3 pending, and `--exit-when-healthy` waits on.

Pure functions of the document that `quorumctl health -o json` prints.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from metadata_log.format.records import NO_DATA_PLANE
from quorum.cli.replicas import SILENT, no_leader_text
from quorum.wire.words import counted

BEHIND_MS_MAX: Final = 10_000
"""How long a healthy voter may lack records, in ms. (Under load a healthy voter lacks a few records for milliseconds.)"""
HEARD_MS_MAX: Final = 1_000
"""How long the leader may not have heard a voter that cannot be asked, in ms. A live voter fetches several times a second."""
NAMED: Final = 10
"""Maximum number of partitions or brokers that one reason names."""

Document = Mapping[str, Any]


def reasons(document: Document) -> list[str]:
    """The reasons why the cluster is unhealthy, the gravest first; empty for a healthy cluster."""
    return [
        *_of_the_leader(document),
        *(reason for each in document["controllers"] for reason in _of_controller(document, each)),
        *_of_brokers(document["brokers"] or ()),
        *_of_partitions(document["partitions"]),
        *([f"brokers and partitions are not known: {document['error']}"] if document["error"] else []),
    ]


def pending(document: Document) -> list[str]:
    """The voters that a leader, elected a moment ago, has not heard yet."""
    return [
        f"leader {document['leader_id']} has not heard controller {each['node_id']} since its election"
        for each in document["controllers"]
        if document["is_leaders"] and each["status"] == "follower" and each["last_fetch_age_ms"] is None
    ]


def notes(document: Document) -> list[str]:
    """Facts that an operator should know and that are no reason to call the cluster unhealthy."""
    unasked = [
        f"controller {each['node_id']} cannot be asked from here, so it is not known what is wrong with it, if anything: "
        f"{each['missing']}"
        for each in document["controllers"]
        if each["missing"] is not None and not _is_lost(document, each) and not _is_gone(each)
    ]
    brokers = document["brokers"]
    lonely = ["no broker is registered, so no topic can be created yet"] if brokers == [] else []
    of_brokers = [*_without_data_plane(brokers or ()), *_with_a_mode(brokers or ())]
    return [*unasked, *lonely, *of_brokers, *_moving(document["reassignments"])]


def _moving(reassignments: Document | None) -> Iterable[str]:
    if reassignments is None or not reassignments["count"]:
        return
    count, waiting = reassignments["count"], reassignments["waiting"]
    ids = [str(each) for each in reassignments["waits_for"]]
    held_up = f"; {waiting:,} wait for a broker that is not online: {_first(ids, len(ids))}" if waiting else ""
    yield f"partitions in reassignment: {count:,}{held_up}"


def _without_data_plane(brokers: Sequence[Document]) -> Iterable[str]:
    ids = [str(each["broker_id"]) for each in brokers if each["data_plane"] == NO_DATA_PLANE]
    if ids:
        yield (
            f"{len(ids)} of {len(brokers)} brokers run without a data plane (broker.data.plane: none), so that in sync "
            f"means active there: {_first(ids, len(ids))}"
        )


def _with_a_mode(brokers: Sequence[Document]) -> Iterable[str]:
    named = [f"{each['broker_id']} {each['mode']}" for each in brokers if each["mode"] is not None]
    if named:
        yield f"an operator has taken {len(named)} of {len(brokers)} brokers out of work: {_first(named, len(named))}"


def _of_the_leader(document: Document) -> Iterable[str]:
    if document["leader_id"] is None:
        yield f"no controller leads, {no_leader_text(document)}"
        return
    if not document["is_leaders"]:
        yield (
            f"leader {document['leader_id']} could not be asked, neither from here nor by controller {document['answered_by']}: "
            "which voters are silent is not known"
        )
    if document["high_watermark"] is None:
        yield f"leader {document['leader_id']} has not committed anything in its epoch yet"


def _is_lost(document: Document, controller: Document) -> bool:
    return document["leader_id"] is None or controller["status"] == SILENT


def _is_gone(controller: Document) -> bool:
    """True for a voter that cannot be asked, and that the leader has not heard for a while either."""
    age_ms = controller["last_fetch_age_ms"]
    is_follower = controller["is_voter"] and controller["status"] == "follower"
    return is_follower and controller["missing"] is not None and age_ms is not None and age_ms >= HEARD_MS_MAX


def _of_controller(document: Document, each: Document) -> Iterable[str]:
    name = f"controller {each['node_id']}"
    if each["status"] == SILENT:
        yield f"{name} is silent: the leader has not heard it {_seconds(each['last_fetch_age_ms'], 'since its election')}"
    elif _is_gone(each):
        heard = f"the leader has not heard it {_seconds(each['last_fetch_age_ms'])}"
        yield f"{name} cannot be asked, and {heard}: {each['missing']}"
    elif each["is_voter"] and each["lag"] and each["behind_for_ms"] >= BEHIND_MS_MAX:
        yield f"{name} lacks {counted(each['lag'], 'record')}, and has lacked some {_seconds(each['behind_for_ms'])}"
    if each["is_voter"] and each["other_directory_id"] is not None:
        yield (
            f"{name} does not vote: it runs with directory {each['other_directory_id']}, and not with the one that voted. "
            f"`quorumctl quorum remove-voter --node-id {each['node_id']}` and then `quorumctl quorum add-voter` let it vote again"
        )
    if each["missing"] is not None and document["leader_id"] is None:
        yield f"{name} does not answer: {each['missing']}"
    if each["no_leader_reason"] and document["leader_id"] is not None and each["status"] != SILENT:
        yield f"{name} follows no leader: {each['no_leader_reason']}"
    for problem in each["problems"]:
        yield f"{name}: {problem['code']}: {problem['text']}"


def _of_brokers(brokers: Sequence[Document]) -> Iterable[str]:
    states = sorted({each["state"] for each in brokers} - {"online"})
    for state in states:
        ids = [str(each["broker_id"]) for each in brokers if each["state"] == state]
        yield f"{len(ids)} of {len(brokers)} brokers {'is' if len(ids) == 1 else 'are'} {state}: {_first(ids, len(ids))}"


def _of_partitions(partitions: Document | None) -> Iterable[str]:
    if partitions is None:
        return
    for kind, text in (("leaderless", "without a leader"), ("under_replicated", "with too few replicas in sync")):
        count = partitions[kind]
        if count:
            yield f"{count:,} of {partitions['count']:,} partitions {text}: {_first(partitions['first_' + kind], count)}"


def _first(names: Sequence[str], count: int) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if count <= NAMED else f"{shown}, ..."


def _seconds(duration_ms: int | None, otherwise: str = "") -> str:
    return otherwise if duration_ms is None else f"for {duration_ms / 1_000:.1f} s"
