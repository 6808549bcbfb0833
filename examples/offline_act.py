"""The offline act of the demo: Spark compacts and audits the logs, turns them into tables, and asks the tables what happened."""

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

from evidence import flip_one_byte, sha256
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


class OfflineAct:
    """The steps of the demo after the last kill: a snapshot, and what Spark says of the logs."""

    def __init__(self, stage: Stage, spark: Spark, report: Path) -> None:
        self._stage = stage
        self._controllers, self._client = stage.controllers, stage.client
        self._root = stage.cluster.layout.directory
        self._spark = spark
        self._report = report
        self._snapshot = Path()

    async def snapshot_everywhere(self, step: Step) -> None:
        """A snapshot at one mark, on each controller: byte for byte the same file"""
        marked = await self._client.create_snapshot("the demo asks for one")
        files: dict[str, Path] = {}
        for node in self._controllers:
            files[node.name] = await self._stage.snapshot_of(node, marked.offset)
        sums = {name: sha256(path) for name, path in files.items()}
        expect(len(set(sums.values())) == 1, "one sha256 on all controllers", sums)
        self._snapshot = files[self._controllers[0].name]
        step.proof(f"{len(files)} x {self._snapshot.name}, {self._snapshot.stat().st_size:,} bytes")
        step.proof(f"sha256 {next(iter(sums.values()))}")

    async def compacted(self, step: Step) -> None:
        """Spark compacts the log of a controller: the same file again, byte for byte"""
        source = self._controllers[-1]
        out = self._root / "compacted"
        step.waiting_for("Spark to start, and to fold the log")
        end = int(self._snapshot.name.partition("-")[0])
        answer = await self._spark.ask(job="compact", directory=str(source.data_directory), offset=end, out=str(out))
        made = Path(answer["path"])
        expect(made.name == self._snapshot.name, self._snapshot.name, made.name)
        sums = sha256(self._snapshot), sha256(made)
        expect(made.read_bytes() == self._snapshot.read_bytes(), f"sha256 {sums[0]}", sums[1])
        step.proof(
            f"Spark {self._spark.version} (its start took {self._spark.start_s:.1f} s) folded the log of {source.name} "
            f"into {answer['records']:,} records"
        )
        step.proof(f"sha256 {sums[1]}, the controllers' own")

    async def audited(self, step: Step) -> None:
        """Spark audits all three logs: clean"""
        logs = [str(node.data_directory) for node in self._controllers]
        found = await self._spark.ask(job="audit", directories=logs)
        expect(found["verdict"] == "clean" and not found["findings"], "a clean audit", found["findings"][:3])
        expect(len(found["nodes"]) == len(logs), f"{len(logs)} logs", len(found["nodes"]))
        batches = sum(node["batches"] for node in found["nodes"])
        records = sum(node["records"] for node in found["nodes"])
        step.proof(
            f"{batches:,} batches with {records:,} records on {len(logs)} nodes: CRC, chain and order hold, all nodes have "
            f"one history, and its fold has the digest of {len(found['snapshots'])} snapshots"
        )

    async def told(self, step: Step) -> None:
        """Spark turns the log into tables: they know each broker that was killed, and why leaders moved"""
        step.waiting_for("Spark to write the tables and the report")
        found = await self._spark.ask(
            job="history",
            directories=[str(node.data_directory) for node in self._controllers],
            out=str(self._root / "history"),
            report=str(self._report),
            questions=[FENCINGS, LEADER_CHANGES, ELECTIONS, OUTAGES, END],
        )
        fencings, leader_changes, elections, (outages,), (end,) = found["answers"]
        killed, stopped = (node.node_id for node in self._stage.brokers[:2])
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

    async def damage_found(self, step: Step) -> None:
        """One byte is flipped in a copy of one log: the audit names node, file and offset"""
        victim = self._controllers[1]
        copy = self._root / "damaged" / victim.name
        await asyncio.to_thread(shutil.copytree, victim.data_directory, copy)
        damage = flip_one_byte(copy)
        logs = [str(copy if node is victim else node.data_directory) for node in self._controllers]
        found = await self._spark.ask(job="audit", directories=logs)
        named = [finding for finding in found["findings"] if finding["position"] == damage.batch_position]
        expected = f"a finding at {damage.file}, byte {damage.batch_position}, offset {damage.offset}"
        expect(found["verdict"] != "clean" and bool(named), expected, found["findings"][:3])
        first = named[0]
        place = first["node"], first["file"], first["offset"]
        expect(place == (f"controller {victim.node_id}", damage.file, damage.offset), expected, first)
        step.proof(f"flipped: byte {damage.position:,} of the copy of {victim.name}'s {damage.file}")
        step.proof(
            f"found: {first['node']}, {first['file']}, the batch at byte {first['position']:,}, offset {first['offset']:,}: "
            f"{first['detail']}"
        )


def _reasons(fencings: list[dict[str, Any]], broker_id: int) -> set[str]:
    return {row["reason"] for row in fencings if row["broker_id"] == broker_id}


def _fenced(fencings: list[dict[str, Any]]) -> str:
    each = (f"broker {row['broker_id']} {row['times']} x {row['reason'].replace('_', ' ')}" for row in fencings)
    return f"fenced were {', '.join(each)}"
