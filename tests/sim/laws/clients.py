"""The laws of clients: no acknowledged change is lost, no refused change appears, no change happens twice (C1 to C5, C8).

The check is linearizability by witness. Every answer names an offset, and offsets order all changes. A history is
linearizable if this order never contradicts real time: a change answered before another request was sent has a lower
offset than the other's answer. The highest offset answered so far is the floor of every later answer.

Example: client 1 creates topic a and gets offset 40. Client 2 then sends a read. An answer as of offset 39 breaks C5,
because the floor is 40.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.history import History
from tests.sim.laws.broken import hold
from tests.sim.laws.metadata import MetadataLaws


class ClientLaws:
    """The answers to all clients together."""

    def __init__(self, history: History, metadata: MetadataLaws) -> None:
        self._history = history
        self._metadata = metadata
        self._never: set[str] = set()
        self._once: set[str] = set()
        self.floor: Offset = 0
        """The minimum offset of every later answer."""

    def committed(self) -> None:
        """Checks the topics created by a newly committed batch."""
        for name in self._metadata.new_topics:
            hold(name not in self._never, "C2 NoPhantom", f"topic {name} exists although its creation was refused")
            once = name not in self._once or self._metadata.created_times[name] == 1
            hold(once, "C3 AtMostOnce", f"topic {name} was created twice")

    def happens_at_most_once(self, topic: str) -> None:
        """Notes a creation requested once, over a link which repeats no message."""
        self._once.add(topic)

    def never_happens(self, topic: str) -> None:
        """Notes that the creation of `topic` was refused for good."""
        self._never.add(topic)
        exists = topic in self._metadata.created
        hold(not exists, "C2 NoPhantom", f"the creation of {topic} was refused although it exists")

    def created(self, topic: str, end: Offset, floor: Offset) -> None:
        """Checks an answer "the topic was created below `end`"; `floor` was the floor at the request."""
        at = self._metadata.created.get(topic)
        hold(at is not None, "C1 NoLostAck", f"the creation of {topic} was acknowledged at {end}, and is not there")
        assert at is not None
        once = self._metadata.created_times[topic] == 1
        in_order = floor < at <= end or not once
        hold(in_order, "C4 Linearizable", f"{topic}, asked for at {floor}, was created at {at}, answered {end}")
        self.answered(end, floor)

    def never_meets_itself(self, topic: str, error: ErrorCode) -> None:
        """Checks a refusal: no other request creates a topic of this name, and the creation takes effect once."""
        exists = error is ErrorCode.TOPIC_ALREADY_EXISTS
        hold(not exists, "C3 ExactlyOnce", f"the creation of {topic} was refused because it had been done")

    def same_answer(self, first: object, again: object) -> None:
        """Checks the answers to two copies of one request."""
        hold(first == again, "C3 ExactlyOnce", f"one request was answered {first}, and then {again}")

    def read_locally(self, as_of_offset: Offset, image: MetadataImage, at_least: Offset) -> None:
        """Checks a local read of one node's applied image, for a client which had seen `at_least`."""
        law = "C6 SerializableRead"
        hold(as_of_offset >= at_least, law, f"a local read saw {as_of_offset}, after {at_least}")
        hold(
            self._history.agrees(as_of_offset, image.digest_bytes),
            law,
            f"a local read as of {as_of_offset} returned another state than the history's there",
        )

    def removed(self, topic: str, end: Offset, floor: Offset) -> None:
        at = self._metadata.removed.get(topic)
        hold(at is not None, "C1 NoLostAck", f"the removal of {topic} was acknowledged at {end}, and is not there")
        self.answered(end, floor)

    def configured(self, resource: tuple[int, str, str], value: str, end: Offset, floor: Offset) -> None:
        """Checks an answer "this key has this value below `end`", after the client's own change or an earlier one."""
        settings = self._metadata.settings.get(resource, [])
        found = next((each for at, each in reversed(settings) if at <= end), None)
        hold(found == value, "C1 NoLostAck", f"{resource} was set to {value}, acknowledged at {end}, and is {found}")
        self.answered(end, floor)

    def grown(self, topic: str, count: int, end: Offset, floor: Offset) -> None:
        """Checks an answer "the topic now has `count` partitions"."""
        counts = self._metadata.partition_counts.get(topic, [])
        found = next((each for at, each in reversed(counts) if at <= end), 0)
        hold(
            found == count, "C1 NoLostAck", f"{topic} grew to {count} partitions, acknowledged at {end}; it has {found}"
        )
        self.answered(end, floor)

    def not_inside_transaction(self, end: Offset) -> None:
        """Checks the offset of an answer to anybody: clients, brokers, or an operator who asked for a mark."""
        inside = self._history.is_inside_transaction(end)
        hold(not inside, "C8 OutsideOfTransactions", f"acknowledged at {end}, inside of another request's transaction")

    def answered(self, end: Offset, floor: Offset) -> None:
        """Checks an answer "the change is in effect below `end`"."""
        committed = self._history.end
        self.not_inside_transaction(end)
        hold(end <= committed, "C1 NoLostAck", f"acknowledged at {end}; committed is {committed}")
        hold(end >= floor, "C4 Linearizable", f"answered with {end}, although {floor} was answered before it was asked")
        self.floor = max(self.floor, end)

    def read(self, as_of_offset: Offset, image: MetadataImage, floor: Offset) -> None:
        """Checks the `image` returned by a linearizable read."""
        law = "C5 LinearizableRead"
        hold(
            as_of_offset >= floor, law, f"a read saw {as_of_offset}, although {floor} was answered before it was asked"
        )
        hold(
            self._history.agrees(as_of_offset, image.digest_bytes),
            law,
            f"a read as of {as_of_offset} returned another state than the history's there",
        )
        self.floor = max(self.floor, as_of_offset)
