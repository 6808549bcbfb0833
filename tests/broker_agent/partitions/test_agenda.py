"""The times of items: which entries stay in memory."""

from broker_agent.partitions.agenda import Agenda


def test_items_that_were_dropped_leave_the_memory() -> None:
    """A thousand fetches with a late deadline are answered while one with an early deadline waits."""
    agenda: Agenda[str] = Agenda()
    agenda.set("waits", 5)
    for number in range(1_000):
        agenda.set(f"answered {number}", 60_000)
        agenda.drop(f"answered {number}")
    assert len(agenda._heap) < 100
    assert (agenda.due(4), agenda.due(5), agenda.next_ms()) == (None, "waits", None)
