"""What is wrong with the replicas of a broker that may serve: for `BrokerStatus`, /healthz and people.

1. The log of orders-3 is damaged. The problem `replica_failed` names orders-3 and the reason; all other replicas go on.
2. Forty more logs are damaged. `REPLICAS_MAX` of them have texts; the metric `failed_replicas` counts all.
3. The broker starts again, and the log of orders-3 opens. The new process has no problem.
"""

from typing import Final, NamedTuple

from broker_agent.partitions.effects import DirectoryFailed, ReplicaFailed, StrayLogs
from broker_agent.problems import DIRECTORY_FAILED, REPLICA_FAILED, STRAY_LOGS
from metadata_log.format.ids import uuid_text

REPLICAS_MAX: Final = 20
"""Maximum number of failed replicas with a text."""
STRAYS_NAMED: Final = 3
"""How many stray logs are named."""


class DataProblem(NamedTuple):
    """One problem. It stays until the next process, or until it is gone."""

    code: str
    subject: str
    """The replica or the directory, for /healthz."""
    text: str


class DataProblems:
    """The problems of one data plane."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], DataProblem] = {}

    def all(self) -> tuple[DataProblem, ...]:
        """The problems, the oldest first."""
        return tuple(self._found.values())

    def replica_failed(self, failed: ReplicaFailed) -> None:
        name = failed.place.name
        if sum(code == REPLICA_FAILED for code, _ in self._found) < REPLICAS_MAX:
            todo = "All others go on. Look at the disk; the replica is tried again when the broker starts"
            self._put(
                DataProblem(
                    REPLICA_FAILED, f"replica {name}", f"replica {name} serves nothing: {failed.reason}. {todo}"
                )
            )

    def directory_failed(self, failed: DirectoryFailed) -> None:
        name = uuid_text(failed.directory)
        todo = "Its replicas serve nothing. Mend or replace the disk, then start the broker again"
        self._put(
            DataProblem(
                DIRECTORY_FAILED, f"log directory {name}", f"log directory {name} has failed: {failed.reason}. {todo}"
            )
        )

    def stray_logs(self, strays: StrayLogs) -> None:
        """Notes the logs of no replica of this broker; an empty effect says that none is left."""
        self._found.pop((STRAY_LOGS, "stray logs"), None)
        if strays.logs:
            named = ", ".join(place.name for _, place in strays.logs[:STRAYS_NAMED])
            todo = "They are kept. If they are needed no more, delete them while the broker is down"
            text = f"{len(strays.logs)} logs belong to no replica of this broker, for example {named}. {todo}"
            self._put(DataProblem(STRAY_LOGS, "stray logs", text))

    def _put(self, problem: DataProblem) -> None:
        self._found[problem.code, problem.subject] = problem
