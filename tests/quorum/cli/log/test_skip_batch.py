"""A batch that no controller can apply: `health` names it, `log skip-batch --dry-run` shows it, and then it is skipped."""

import json

import pytest
from click.testing import CliRunner

from metadata_log.format.codec import decode_batch
from quorum.cli.main import cli
from quorum.controller.protocol.topic_commands import CreateTopics, NewTopic
from quorum.wire.server import serve
from tests.quorum.cli.test_cluster_commands import quorumctl
from tests.quorum.runtime.active.test_skipping import stuck
from tests.quorum.runtime.active.test_transactions import is_active, settle, started, submit
from tests.quorum.runtime.lone_controller import LoneController
from tests.quorum.wire.fake_node import ANY_PORT

CHAIN = "ab" * 32


@pytest.mark.slow
async def test_from_the_problem_to_a_cluster_that_works() -> None:
    """All that the command needs stands in the problem; the leader that stands still carries the command out."""
    lone, batch = stuck()
    async with serve(LoneController(lone), lone.node.identity, ANY_PORT, grace_s=0) as port:
        where = ("-C", f"127.0.0.1:{port}", "--timeout", 5)
        health = await quorumctl(*where, "health")
        assert health.exit_code == 10
        for part in (
            f"[{batch.base_offset}, {batch.end_offset})",
            f"epoch {batch.epoch}",
            batch.chain.hex(),
            "log dump",
        ):
            assert part in health.stdout
        named = ("--offset", batch.base_offset, "--epoch", batch.epoch, "--chain", batch.chain.hex())
        dry = await quorumctl(*where, "log", "skip-batch", *named, "--dry-run", "-o", "json")
        assert (dry.exit_code, is_active(lone)) == (0, False), dry.stderr
        assert [record["type"] for record in dry.document["records"]] == ["Topic", "RemoveTopic"]
        assert json.loads(dry.document["records"][0]["data"])["name"] == "stray"
        assert "another" in dry.document["reason"]
        told = await quorumctl(*where, "log", "skip-batch", *named, "--dry-run", "--although-applied")
        assert "undone" not in told.stdout, "the leader has not applied the batch"

        wrong = await quorumctl(*where, "log", "skip-batch", *named[:-1], CHAIN, "--accept-loss")
        assert wrong.exit_code == 1 and "CHAIN_MISMATCH" in wrong.stderr
        done = await quorumctl(*where, "log", "skip-batch", *named, "--accept-loss")
        assert (done.exit_code, is_active(lone)) == (0, True)
        assert f"every node drops the records in [{batch.base_offset}, {batch.end_offset})" in done.stdout


@pytest.mark.slow
async def test_the_dry_run_warns_of_a_batch_that_the_leader_has_applied() -> None:
    """All nodes build their images again without the batch: an operator must know that acknowledged changes are undone."""
    lone = started()
    lone.run_until_idle()
    submit(lone, CreateTopics((NewTopic("orders", 1, 1),)))
    settle(lone)
    batch = next(each for each in lone.node.log.read(0, 1 << 20) if "orders" in str(decode_batch(each)))
    async with serve(LoneController(lone), lone.node.identity, ANY_PORT, grace_s=0) as port:
        named = ("--offset", batch.base_offset, "--epoch", batch.epoch, "--chain", batch.chain.hex())
        where = ("-C", f"127.0.0.1:{port}", "--timeout", 5)
        told = await quorumctl(*where, "log", "skip-batch", *named, "--dry-run", "--although-applied")
        assert told.exit_code == 0, told.stderr
        assert "Warning" in told.stdout and "acknowledged are undone" in told.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ("--chain", CHAIN),
        ("--chain", CHAIN, "--dry-run", "--accept-loss"),
        ("--chain", "ab", "--dry-run"),
        ("--chain", "xy" * 32, "--dry-run"),
    ],
)
def test_without_a_clear_wish_nothing_is_sent(wrong: tuple[str, ...]) -> None:
    """A flag says that the records are lost; a chain has 64 digits."""
    ran = CliRunner().invoke(cli, ["-C", "127.0.0.1:1", "log", "skip-batch", "--offset", "1", "--epoch", "1", *wrong])
    assert ran.exit_code == 2 and "nothing was done" in ran.output
