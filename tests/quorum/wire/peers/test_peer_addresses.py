"""Where a controller is dialled, when the log, the configuration, the leader and others do not say the same."""

from metadata_log.format.records import Endpoint
from quorum.wire.peers.peer_addresses import PeerAddresses

OLD, NEW, ELSEWHERE = (Endpoint("CONTROLLER", f"host-{number}", 9090) for number in (1, 2, 3))


def test_the_leaders_own_word_counts_more_than_the_log_until_that_says_something_newer() -> None:
    where = PeerAddresses()
    assert where.record({1: OLD})
    assert where.tell(1, NEW) and where.endpoints == {1: NEW}
    assert where.record({1: OLD, 2: OLD}) and where.endpoints == {1: NEW, 2: OLD}, "of 1 the log says nothing newer"
    assert where.record({1: ELSEWHERE, 2: OLD}) and where.endpoints[1] == ELSEWHERE


def test_what_is_configured_counts_most() -> None:
    where = PeerAddresses(configured=[1])
    where.record({1: OLD})
    assert not where.tell(1, NEW) and not where.hear(1, NEW)
    assert where.endpoints == {1: OLD}


def test_hearsay_counts_until_the_log_says_something_newer_and_less_than_the_leaders_own_word() -> None:
    """An observer, or a voter that has moved as well, is not reached by a leader that has moved, and hears of it from others."""
    where = PeerAddresses()
    where.record({1: OLD})
    assert where.hear(1, NEW) and where.endpoints == {1: NEW}
    assert where.record({1: OLD, 2: OLD}) and where.endpoints == {1: NEW, 2: OLD}, "of 1 the log says nothing newer"
    assert where.tell(1, ELSEWHERE) and not where.hear(1, NEW) and where.endpoints[1] == ELSEWHERE
    assert where.record({1: OLD}) and where.record({1: NEW}) and where.endpoints == {1: NEW}


def test_hearsay_of_one_leader_is_over_when_the_next_one_speaks() -> None:
    """2 was heard of at a wrong place; now 1 leads, and goes: 2 must be found again, where the log says."""
    where = PeerAddresses()
    where.record({1: OLD, 2: OLD})
    where.hear(2, ELSEWHERE)
    assert where.tell(1, NEW) and where.endpoints == {1: NEW, 2: OLD}


def test_there_is_one_leader() -> None:
    where = PeerAddresses()
    where.record({1: OLD})
    assert where.hear(8, NEW) and where.endpoints == {1: OLD, 8: NEW}
    assert where.hear(9, NEW) and where.endpoints == {1: OLD, 9: NEW}


def test_who_left_is_where_it_was_unless_it_is_heard_of_elsewhere() -> None:
    """It was added again at another host, and leads: the log that lacks that names the old one."""
    where = PeerAddresses()
    where.hear(1, ELSEWHERE)
    where.record({1: OLD})
    assert where.record({2: OLD}, last_named={1: OLD}) and where.endpoints == {1: OLD, 2: OLD}, "heard before it left"
    assert where.hear(1, NEW) and where.endpoints[1] == NEW
    assert where.record({2: OLD}) is False, "still heard of"


def test_the_same_again_changes_nothing() -> None:
    """Or every answer would dial everybody anew."""
    where = PeerAddresses()
    assert where.record({1: OLD})
    assert not where.record({1: OLD})
    assert not where.tell(1, OLD)
    assert where.hear(8, NEW)
    assert not where.hear(8, NEW)
