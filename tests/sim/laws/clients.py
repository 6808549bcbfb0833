"""What clients were told holds: nothing acknowledged is lost, nothing refused appears, nothing happens twice (C1 to C5).

Linearizability by witness. Every answer names an offset, and offsets are one order of everything; so the history is
linearizable if that order never contradicts real time: what was answered before a request was made lies below its answer.
The highest offset answered so far is the floor of every later answer.
"""

from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import Offset
from metadata_log.image.metadata_image import MetadataImage
from tests.sim.history import History
from tests.sim.laws.broken import hold
from tests.sim.laws.metadata import MetadataLaws


class ClientLaws:
    """What all clients together were told."""

    def __init__(self, history: History, metadata: MetadataLaws) -> None:
        self._history = history
        self._metadata = metadata
        self._never: set[str] = set()
        self._once: set[str] = set()
        self.floor: Offset = 0
        """No later answer may lie below."""

    def committed(self) -> None:
        """One more batch is committed: what it has created may be there."""
        for name in self._metadata.new_topics:
            hold(name not in self._never, "C2 NoPhantom", f"topic {name} exists although its creation was refused")
            once = name not in self._once or self._metadata.created_times[name] == 1
            hold(once, "C3 AtMostOnce", f"topic {name} was created twice")

    def happens_at_most_once(self, topic: str) -> None:
        """Its creation was asked for once, over a link that repeats nothing."""
        self._once.add(topic)

    def never_happens(self, topic: str) -> None:
        """The creation of `topic` was refused for good."""
        self._never.add(topic)
        exists = topic in self._metadata.created
        hold(not exists, "C2 NoPhantom", f"the creation of {topic} was refused although it exists")

    def created(self, topic: str, end: Offset, floor: Offset) -> None:
        """A client was told that the topic was created below `end`; `floor` stood when it asked."""
        at = self._metadata.created.get(topic)
        hold(at is not None, "C1 NoLostAck", f"the creation of {topic} was acknowledged at {end}, and is not there")
        assert at is not None
        once = self._metadata.created_times[topic] == 1
        in_order = floor < at <= end or not once
        hold(in_order, "C4 Linearizable", f"{topic}, asked for at {floor}, was created at {at}, answered {end}")
        self.answered(end, floor)

    def never_meets_itself(self, topic: str, error: ErrorCode) -> None:
        """Nobody else creates a topic of this name, and its creation takes effect once."""
        exists = error is ErrorCode.TOPIC_ALREADY_EXISTS
        hold(not exists, "C3 ExactlyOnce", f"the creation of {topic} was refused because it had been done")

    def same_answer(self, first: object, again: object) -> None:
        """Two copies of one request were answered."""
        hold(first == again, "C3 ExactlyOnce", f"one request was answered {first}, and then {again}")

    def read_locally(self, as_of_offset: Offset, image: MetadataImage, at_least: Offset) -> None:
        """One node has said what it has applied, to a client that had seen `at_least`."""
        law = "C6 SerializableRead"
        hold(as_of_offset >= at_least, law, f"a local read saw {as_of_offset}, after {at_least}")
        hold(
            self._history.digest_at(as_of_offset) == image.digest_bytes,
            law,
            f"a local read as of {as_of_offset} returned another state than the history's there",
        )

    def removed(self, topic: str, end: Offset, floor: Offset) -> None:
        at = self._metadata.removed.get(topic)
        hold(at is not None, "C1 NoLostAck", f"the removal of {topic} was acknowledged at {end}, and is not there")
        self.answered(end, floor)

    def configured(self, resource: tuple[int, str, str], value: str, end: Offset, floor: Offset) -> None:
        """A client was told that this key has this value, by a change of its own or already, below `end`."""
        settings = self._metadata.settings.get(resource, [])
        found = next((each for at, each in reversed(settings) if at <= end), None)
        hold(found == value, "C1 NoLostAck", f"{resource} was set to {value}, acknowledged at {end}, and is {found}")
        self.answered(end, floor)

    def grown(self, topic: str, count: int, end: Offset, floor: Offset) -> None:
        """A client was told that the topic has so many partitions now."""
        counts = self._metadata.partition_counts.get(topic, [])
        found = next((each for at, each in reversed(counts) if at <= end), 0)
        hold(
            found == count, "C1 NoLostAck", f"{topic} grew to {count} partitions, acknowledged at {end}; it has {found}"
        )
        self.answered(end, floor)

    def answered(self, end: Offset, floor: Offset) -> None:
        """A client was told that what it asked for stands below `end`."""
        committed = self._history.end
        hold(end <= committed, "C1 NoLostAck", f"acknowledged at {end}; committed is {committed}")
        hold(end >= floor, "C4 Linearizable", f"answered with {end}, although {floor} was answered before it was asked")
        self.floor = max(self.floor, end)

    def read(self, as_of_offset: Offset, image: MetadataImage, floor: Offset) -> None:
        """A linearizable read has returned `image`."""
        law = "C5 LinearizableRead"
        hold(
            as_of_offset >= floor, law, f"a read saw {as_of_offset}, although {floor} was answered before it was asked"
        )
        hold(
            self._history.digest_at(as_of_offset) == image.digest_bytes,
            law,
            f"a read as of {as_of_offset} returned another state than the history's there",
        )
        self.floor = max(self.floor, as_of_offset)
