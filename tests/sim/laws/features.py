"""The laws of features: who must support a level before it rises, and what must not be lost when it falls (M14 to M16).

Example:

    1. Broker 102 supports `metadata.version` 1 to 1. A committed record raises the level to 2: M15 is broken.
    2. A reassignment of t-0 is in progress. A committed record lowers the level to 1: M16 is broken.
    3. At level 1 a reassignment begins: M14 is broken.
    4. At level 2 the log adds voter 4, whose controller has not registered: M15 is broken.
"""

from metadata_log.format.ids import Offset, ReplicaKey
from metadata_log.format.records import METADATA_VERSION, FeatureLevel, FeatureRange, Voters, level_problem
from metadata_log.image.metadata_image import MetadataImage
from quorum.core.protocol.voters import VoterSet
from tests.sim.coverage import Coverage
from tests.sim.history import History, Step
from tests.sim.laws.broken import hold


class FeatureLaws:
    """Checks every committed batch, in order."""

    def __init__(self, history: History, coverage: Coverage) -> None:
        self._history = history
        self._coverage = coverage

    def committed(self, step: Step) -> None:
        """Checks a newly committed batch."""
        level = step.before.metadata_version
        for offset, record in enumerate(step.records, step.batch.base_offset):
            if isinstance(record, Voters):
                self._voters_added(step, offset, VoterSet(record.voters))
            if isinstance(record, FeatureLevel) and record.name == METADATA_VERSION:
                self._changed(step, level, record.level)
                level = record.level
            if isinstance(record, tuple):
                problem = level_problem(record, level)
                hold(problem is None, "M14 LevelInForce", f"at {step.batch.base_offset}: {problem}")

    def _voters_added(self, step: Step, offset: Offset, voters: VoterSet) -> None:
        level = step.before.metadata_version
        for key in sorted(set(voters.keys).difference(self._history.voters_below(offset).keys)):
            self._coverage[f"voter added at level {level}"] += 1
            fits = level == 1 or _voter_supports(step.before, key, level)
            hold(fits, "M15 SupportedByAll", f"voter {key} was added at {offset}, and does not support level {level}")

    def _changed(self, step: Step, before: int, level: int) -> None:
        where = f"metadata.version {level} at {step.batch.base_offset}"
        self._coverage["feature level raised" if level > before else "feature level lowered"] += 1
        if not step.before.record_count:
            return  # the first record of the cluster
        for broker in step.before.brokers.values():
            hold(
                _supports(broker.features, level), "M15 SupportedByAll", f"{where}: broker {broker.broker_id} does not"
            )
        for key in self._history.voters_below(step.batch.base_offset).keys:
            hold(_voter_supports(step.before, key, level), "M15 SupportedByAll", f"{where}: voter {key} does not")
        if level < before:
            for record in step.after.canonical_records():
                problem = level_problem(record, level)
                hold(problem is None, "M16 NothingLost", f"{where}: {problem}")
            untouched = step.after.topics_by_id is step.before.topics_by_id
            hold(untouched, "M16 NothingLost", f"{where} changes topics")


def _voter_supports(image: MetadataImage, key: ReplicaKey, level: int) -> bool:
    registered = image.controllers.get(key.node_id)
    is_known = registered is not None and registered.incarnation_id == key.directory_id
    return is_known and _supports(registered.features, level)


def _supports(features: tuple[FeatureRange, ...], level: int) -> bool:
    return any(each.name == METADATA_VERSION and each.min_level <= level <= each.max_level for each in features)
