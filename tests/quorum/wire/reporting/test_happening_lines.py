"""One line for each committed happening: its own fields, and the request that led to it; and never a flood of lines."""

import io
import json
from dataclasses import fields
from typing import Any, get_args

from quorum.controller.protocol.brokers.broker_happenings import (
    BrokerFenced,
    BrokerRegistered,
    LogDirectoriesLost,
    Registration,
    ReplicasMoved,
)
from quorum.controller.protocol.brokers.state_reason import StateReason
from quorum.controller.protocol.happenings import FeatureFinalized, Happening, LeadersElected, TopicsCreated
from quorum.controller.protocol.request_outcomes import RequestIdentity
from quorum.runtime.active.story import Told
from quorum.wire.reporting.happening_lines import LINES_MAX, HappeningLines
from service_kit.process.logs import Logs


def lines_of(*told: Told | None) -> list[dict[str, Any]]:
    """What is logged; None is a look."""
    stream = io.StringIO()
    with Logs("info", "json", stream=stream):
        lines = HappeningLines()
        for each in told:
            if each is None:
                lines.look()
            else:
                lines.tell(each)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def at(offset: int, happening: Happening, request: RequestIdentity | None = None) -> Told:
    return Told(happening, offset, request)


def test_a_line_answers_why_a_broker_was_fenced() -> None:
    """The event's name, the broker's id and epoch, the reason, and how long it was silent."""
    (line,) = lines_of(at(90, BrokerFenced(7, 42, StateReason.SESSION_ENDED, 9_003)))
    assert (line["level"], line["event"]) == ("warning", "broker fenced")
    told = {name: line[name] for name in ("broker_id", "broker_epoch", "why", "silent_ms", "offset")}
    assert told == {"broker_id": 7, "broker_epoch": 42, "why": "session_ended", "silent_ms": 9_003, "offset": 90}


def test_what_is_not_known_is_left_out() -> None:
    """No silence where an operator has asked; no earlier epoch for a new broker; no request where none has an id."""
    fenced, registered = lines_of(
        at(90, BrokerFenced(7, 42, StateReason.OPERATOR)), at(91, BrokerRegistered(8, Registration.NEW, 90))
    )
    assert "silent_ms" not in fenced and fenced["level"] == "info"
    assert "previous_epoch" not in registered and registered["why"] == "new"
    assert "principal" not in fenced


def test_a_clients_request_is_named() -> None:
    """Its principal and its id, by which the client's own log knows it."""
    request = RequestIdentity(bytes(range(16)), bytes(32), "CN=alice", 0)
    (line,) = lines_of(at(90, TopicsCreated(1, 3, ("orders",)), request))
    assert (line["principal"], line["request_id"], line["first"]) == ("CN=alice", "AAECAwQFBgcICQoLDA0ODw", ["orders"])


def test_a_happening_hides_no_field_that_every_line_has() -> None:
    """A field `level` of a happening and the level of its line would be one field, and one of the two values would be lost."""
    named = {field.name for happening in get_args(Happening) for field in fields(happening)}
    own = "ts level logger event node_id role epoch offset principal request_id"
    assert named.isdisjoint(own.split())
    (line,) = lines_of(at(1, FeatureFinalized("metadata.version", 7)))
    assert (line["level"], line["feature"], line["feature_level"]) == ("info", "metadata.version", 7)


def test_what_an_operator_should_look_at_is_a_warning() -> None:
    """Partitions without a leader or with an unclean one, lost directories; and not a shutdown that moved all leaders."""

    def moved(without_leader: int, unclean: int) -> Told:
        return at(1, ReplicasMoved(7, StateReason.STOPPING, 5, without_leader, 5, unclean))

    lines = lines_of(moved(0, 0), moved(1, 0), moved(0, 1), at(2, LogDirectoriesLost(7, 42, 1, 1)))
    assert [line["level"] for line in lines] == ["info", "warning", "warning", "warning"]
    lines = lines_of(at(3, LeadersElected(1, ("t-0: 1",))), at(4, LeadersElected(1, ("t-0: 1",), unclean=1)))
    assert [line["level"] for line in lines] == ["info", "warning"]


def test_a_thousand_topics_in_a_moment_are_a_few_lines() -> None:
    """The first few are told one by one, the others with one number at the next look. Brokers are never left out."""
    topics = [at(offset, TopicsCreated(1, 1, (f"t{offset}",))) for offset in range(1_000)]
    fenced = at(2_000, BrokerFenced(7, 42, StateReason.SESSION_ENDED, 9_000))
    lines = lines_of(*topics, fenced, None, None, at(3_000, TopicsCreated(1, 1, ("later",))))

    assert [line["event"] for line in lines] == [
        *["topics created"] * LINES_MAX, "broker fenced", "more happenings of a kind", "topics created"
    ]  # fmt: skip
    more = lines[-2]
    assert (more["kind"], more["happenings"]) == ("topics created", 1_000 - LINES_MAX)


def test_an_election_that_may_lose_data_is_never_left_out() -> None:
    """An operator gives many leaderships back, and a partition gets a leader from outside the ISR in the same moment."""
    asked = [at(offset, LeadersElected(1, (f"t{offset}-0: 101",))) for offset in range(100)]
    lines = lines_of(*asked, at(100, LeadersElected(1, ("orders-0: 102",), unclean=1)), None)

    assert [line["level"] for line in lines] == [*["info"] * LINES_MAX, "warning", "info"]
    assert (lines[-2]["first"], lines[-2]["unclean"]) == (["orders-0: 102"], 1)
    assert lines[-1]["happenings"] == 100 - LINES_MAX
