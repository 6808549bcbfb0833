"""Measures the CPU time of a write over gRPC, for each process of a real cluster and for the client.

    python -m benchmarks.wire_cost [--seconds 3]

Beside the writes of `make bench` the table has an empty call (DescribeQuorum, without a turn): the cost of gRPC itself. A
switch is a thread that gave up its core to wait. On a busy machine these figures stay nearly the same, but the rate does not.
"""

import argparse
import os
import tempfile
from pathlib import Path

import uvloop
from quorum_rpc.v1 import admin_pb2

from benchmarks.cpu import spent_by_name
from benchmarks.load import Call, closed_loop
from benchmarks.ours import OurCluster


async def _measured(what: str, cluster: OurCluster, call: Call, callers: int, seconds: float) -> None:
    pids = {**await cluster.pids(), "client": os.getpid()}
    before = spent_by_name(pids)
    made = 0

    async def counted(n: int) -> object:
        nonlocal made
        made += 1
        return await call(n)

    figures = await closed_loop(counted, callers=callers, seconds=seconds)
    after = spent_by_name(pids)
    costs = ", ".join(
        f"{name} {(after[name].cpu_ns - before[name].cpu_ns) / made / 1_000:.0f} us "
        f"{(after[name].switches - before[name].switches) / made:.1f} sw"
        for name in pids
    )
    print(f"{what:22} {figures.per_second:7,.0f}/s  p50 {figures.p50_ms:6.2f} ms  {costs}", flush=True)


async def run(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="metaquorum-wire-") as directory:
        async with OurCluster(Path(directory) / "ours") as cluster:
            stub = await cluster.leader_stub()

            async def empty(n: int) -> object:
                return await stub.DescribeQuorum(admin_pb2.DescribeQuorumRequest())

            for callers in (1, 64):
                await _measured(f"empty call, {callers}", cluster, empty, callers, seconds)
                await _measured(f"write, {callers}", cluster, await cluster.put_call(), callers, seconds)
            call, end = await cluster.submit_call()
            for callers in (1, 64):
                await _measured(f"Submit, {callers}", cluster, call, callers, seconds)
            await end()
            await _measured("1,000 partitions, 4", cluster, await cluster.partitions_call(), 4, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire_cost", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each load lasts")
    uvloop.run(run(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
