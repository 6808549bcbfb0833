"""The history's act of the demo: Spark turns the log into tables, and Spark SQL finds in them what the demo has done."""

from pathlib import Path
from typing import Any, Final

from narrator import Step, expect
from spark import Spark
from stage import Stage

FENCINGS: Final = """
    SELECT broker_id, reason, count(*) AS times, sum(duration_ms) AS ms FROM broker_states
    WHERE state = 'fenced' GROUP BY broker_id, reason ORDER BY broker_id, reason
"""
LEADER_CHANGES: Final = """
    SELECT cause, count(*) AS changes FROM leader_changes GROUP BY cause ORDER BY changes DESC, cause
"""
ELECTIONS: Final = """
    SELECT epoch, leader_id, why FROM elections ORDER BY epoch
"""
OUTAGES: Final = """
    SELECT count(DISTINCT topic_id, partition) AS partitions, coalesce(max(duration_ms), 0) AS longest_ms FROM outages
"""
END: Final = """
    SELECT end_offset, (SELECT count(*) FROM changes) AS changes FROM history_end
"""
KILLED: Final = {"process_dead", "session_ended"}
"""A broker that was killed is fenced because its watcher saw the end of its process, or because it was silent."""


class HistoryAct:
    """The step of the demo that asks questions about the demo."""

    def __init__(self, stage: Stage, spark: Spark, report: Path) -> None:
        self.stage = stage
        self.spark = spark
        self.report = report

    async def told(self, step: Step) -> None:
        """Spark turns the log into tables: they know each broker that was killed, and why leaders moved"""
        step.waiting_for("Spark to write the tables and the report")
        found = await self.spark.ask(
            job="history",
            directories=[str(node.data_directory) for node in self.stage.controllers],
            out=str(self.stage.cluster.layout.directory / "history"),
            report=str(self.report),
            questions=[FENCINGS, LEADER_CHANGES, ELECTIONS, OUTAGES, END],
        )
        fencings, leader_changes, elections, (outages,), (end,) = found["answers"]
        killed, stopped = (node.node_id for node in self.stage.brokers[:2])
        expect(
            bool(KILLED & _reasons(fencings, killed)), f"broker {killed} fenced for one of {sorted(KILLED)}", fencings
        )
        expect("shut_down" in _reasons(fencings, stopped), f"broker {stopped} fenced because it shut down", fencings)
        expect(len(elections) >= 2, "an election for each kill of the active controller", elections)
        step.proof(f"{end['end_offset']:,} records made {end['changes']:,} changes; {_fenced(fencings)}")
        causes = ", ".join(f"{row['changes']:,} {row['cause'].replace('_', ' ')}" for row in leader_changes)
        led = ", ".join(f"{row['epoch']} by {row['leader_id']} ({row['why'].replace('_', ' ')})" for row in elections)
        step.proof(f"leaders moved: {causes}; epochs of the quorum: {led}")
        step.proof(
            f"{outages['partitions']:,} partitions were without a leader for a time, the longest {outages['longest_ms']:,} ms"
        )


def _reasons(fencings: list[dict[str, Any]], broker_id: int) -> set[str]:
    return {row["reason"] for row in fencings if row["broker_id"] == broker_id}


def _fenced(fencings: list[dict[str, Any]]) -> str:
    each = (f"broker {row['broker_id']} {row['times']} x {row['reason'].replace('_', ' ')}" for row in fencings)
    return f"fenced were {', '.join(each)}"
