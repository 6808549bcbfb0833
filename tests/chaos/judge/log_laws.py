"""The laws of the simulator over the committed log of real daemons, batch by batch.

Each law needs to know which replicas and which losses somebody has asked for; the calls of the operators tell it. Brokers of a
chaos run never end with a controlled shutdown before the run is over, so each new process of a broker follows a crash.
"""

import sys
from collections.abc import Sequence
from typing import Final

from quorum_rpc.v1 import admin_pb2

from quorum.controller.protocol.reassignment_commands import Reassignment
from tests.chaos.operators.calls import OperatorCall
from tests.sim.coverage import Coverage
from tests.sim.history import History, Step
from tests.sim.laws.broken import hold
from tests.sim.laws.eligible import EligibleLaws
from tests.sim.laws.features import FeatureLaws
from tests.sim.laws.metadata import MetadataLaws
from tests.sim.laws.modes import ModeLaws
from tests.sim.laws.replicas.directories import DirectoryLaws

ANY_OFFSET: Final = sys.maxsize
"""Stands for "has applied everything": nobody has watched the images of the brokers."""


class LogLaws:
    """Checks every committed batch, in order. Raises LawBroken."""

    def __init__(self, history: History, calls: Sequence[OperatorCall]) -> None:
        coverage = Coverage()
        self._directories = DirectoryLaws(coverage)
        self._metadata = MetadataLaws(coverage, lambda broker_id, broker_epoch: ANY_OFFSET, self._directories)
        self._modes = ModeLaws(coverage)
        self._eligible = EligibleLaws(coverage)
        self._features = FeatureLaws(history, coverage)
        self._counts: dict[str, set[int]] = {}
        """By topic that operators create: the numbers of partitions that they have asked for."""
        for call in calls:
            self._asked(call.ask.request)

    def _asked(self, request: object) -> None:
        """A request may have arrived at any time, whatever its client was told."""
        match request:
            case admin_pb2.AlterPartitionReassignmentsRequest():
                for each in request.partitions:
                    target = tuple(each.target.broker_ids) if each.HasField("target") else None
                    self._metadata.reassignments.asked(Reassignment(each.topic, each.partition, target))
            case admin_pb2.ElectLeadersRequest(election_type=admin_pb2.ElectLeadersRequest.UNCLEAN):
                for named in request.topics:
                    self._metadata.elected_uncleanly(named.topic)
            case admin_pb2.CreateTopicsRequest():
                for topic in request.topics:
                    self._counts.setdefault(topic.name, set()).add(topic.partitions)
            case _:
                pass

    def committed(self, step: Step) -> None:
        """Checks a committed batch."""
        self._metadata.committed(step)
        for name in self._metadata.new_topics:
            created = step.after.topic(name)
            if created is not None and name in self._counts:
                count = created.partition_count
                hold(count in self._counts[name], "C7 Atomic", f"{name} at {step.end} has {count} partitions")
        self._modes.committed(step)
        self._eligible.committed(step)
        self._directories.committed(step)
        self._features.committed(step)

    def at_the_end(self, history: History) -> None:
        """Checks the last image as a whole."""
        self._metadata.check_whole(history.image)
