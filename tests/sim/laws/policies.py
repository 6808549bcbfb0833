"""The law of policies (M12): nothing is committed that the controllers' rules forbid.

    Obeyed    no topic has more partitions than allowed, and no config is set to a forbidden value, from the first record on

The rules of a run stand in its options, and every controller has them. Example: at most 3 partitions are allowed, and orders has
2. A client asks for 5 in all. The batch with orders-3 would break the law, in whatever slice of whatever transaction it comes.
"""

from metadata_log.format.records import Config, Partition
from tests.sim.coverage import Coverage
from tests.sim.history import Step
from tests.sim.laws.broken import hold
from tests.sim.rules import FORBIDDEN, KEYS


class PolicyLaws:
    """Checks every committed batch of a run with rules."""

    def __init__(self, partitions_max: int, coverage: Coverage) -> None:
        self._partitions_max = partitions_max
        self._coverage = coverage

    def committed(self, step: Step) -> None:
        """One more batch is committed."""
        if not self._partitions_max:
            return
        for record in step.records:
            if isinstance(record, Partition):
                at = f"partition {record.partition} at {step.batch.base_offset}"
                hold(record.partition < self._partitions_max, "M12 Obeyed", f"{at}: {self._partitions_max} are allowed")
            elif isinstance(record, Config) and record.key in KEYS:
                said = f"{record.key} of {record.resource_name!r} is {record.value} at {step.batch.base_offset}"
                hold(record.value != FORBIDDEN, "M12 Obeyed", said)
                self._coverage["config set under a policy"] += 1
