"""Make the logs in `data/` with real Apache Kafkas: `python -m tests.snapshots.kafka.make_logs [SCENARIO ...]`.

Needs Java 17 and Maven, some minutes, and nothing else. The tests read only what lies in `data/`. For each scenario:

    1. The cluster lives its life (`scenarios.py`), and then all its processes are gone.
    2. `data/SCENARIO.tar.xz` takes what a reader needs of `__cluster_metadata-0` of each node, and beside it `dump.txt`, the
       output of Kafka's own dump tool about these files.
"""

import asyncio
import io
import lzma
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.snapshots.kafka.cluster import METADATA, KafkaCluster
from tests.snapshots.kafka.scenarios import SCENARIOS

DATA = Path(__file__).with_name("data")
WANTED = (".log", ".checkpoint")
BESIDE = ("leader-epoch-checkpoint", "quorum-state", "partition.metadata")
SCENARIO_S = 3_600


def node_files(cluster: KafkaCluster, node_id: int) -> Iterator[Path]:
    """Return the segments, snapshots and notes of one node. Indexes are left out: Kafka makes them anew."""
    for path in sorted((cluster.data(node_id) / METADATA).iterdir()):
        if path.suffix in WANTED or path.name in BESIDE:
            yield path


async def dump(cluster: KafkaCluster, paths: list[Path]) -> str:
    words = ("--cluster-metadata-decoder", "--files", ",".join(map(str, paths)))
    output = await cluster.tool("kafka.tools.DumpLogSegments", *words)
    return output.replace(f"{paths[0].parent}/", "")


async def make(name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="kafka-") as scratch:
        async with asyncio.timeout(SCENARIO_S):
            cluster = await SCENARIOS[name](Path(scratch) / name)
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for node_id, node in cluster.nodes.items():
                if not node.is_controller:
                    continue
                room = f"node-{node_id}/{METADATA}"
                files = list(node_files(cluster, node_id))
                for path in files:
                    _add(archive, f"{room}/{path.name}", path.read_bytes())
                for path in sorted(cluster.data(node_id).glob("*")):
                    if path.name in ("meta.properties", "bootstrap.checkpoint"):
                        _add(archive, f"node-{node_id}/{path.name}", path.read_bytes())
                dumped = await dump(cluster, [path for path in files if path.suffix in WANTED])
                _add(archive, f"node-{node_id}/dump.txt", dumped.encode())
        DATA.mkdir(exist_ok=True)
        packed = lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME)
        (DATA / f"{name}.tar.xz").write_bytes(packed)
        print(f"{name}: {len(raw.getvalue()):,} bytes, packed {len(packed):,}", flush=True)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file without a time or an owner, so that the same bytes make the same archive."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def main() -> None:
    for name in sys.argv[1:] or SCENARIOS:
        asyncio.run(make(name))


if __name__ == "__main__":
    main()
