"""This process may start others while gRPC is alive in it, as the tests of Spark do."""

import subprocess

import grpc.aio
import pytest


@pytest.mark.slow
async def test_children_that_are_forked_beside_a_grpc_server_live() -> None:
    """The fork handler of gRPC aborted about one child in thirty, so now and then Spark had no JVM."""
    ended = []
    for _ in range(150):
        server = grpc.aio.server()
        server.add_insecure_port("127.0.0.1:0")
        await server.start()
        # `preexec_fn`, as PySpark has one, is what makes it a true fork.
        ended.append(subprocess.run(["true"], preexec_fn=lambda: None, check=False, timeout=30).returncode)
        await server.stop(0)
    assert ended == [0] * 150
