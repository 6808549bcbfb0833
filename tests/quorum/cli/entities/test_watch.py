"""`quorumctl watch` and `log tail`: what is committed, as it comes."""

import asyncio
import json
import signal
import sys

import pytest
from click.testing import CliRunner

from metadata_log.disk.files import RealDirectory
from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.records import Entity, FeatureLevel, RemoveEntity, Topic
from metadata_log.store.log import Log
from metaquorum import Entity as SeenEntity
from metaquorum import EntityDeleted, EntityWritten, RecordWritten, ResetReason, WatchBatch, WatchPosition
from quorum.cli.commands.watches.batch_lines import json_lines, table_lines
from quorum.cli.commands.watches.positions import parse_position, position_text
from quorum.cli.main import cli
from tests.ctrl_c import ctrl_c_ends_a_process
from tests.quorum.cli.test_cluster_commands import Run, node, run
from tests.quorum.wire.fake_node import FakeNode

__all__ = ["node", "run"]

POSITION = WatchPosition(1, 1_250, 3, bytes(range(32)))
MOVED = WatchBatch(
    POSITION,
    (
        EntityDeleted(1_248, "shard", "a/7"),
        EntityWritten(1_249, SeenEntity("shard", "b/7", b"broker 2", 1_249, 1_249, None, 1)),
    ),
    ResetReason.NO_RESET,
    1_000,
)


def test_a_transaction_is_one_paragraph_and_one_json_object() -> None:
    assert table_lines(MOVED, positions=True) == [
        "1970-01-01T00:00:01.000+00:00 below 1250",
        "  1248  deleted  shard a/7",
        "  1249  written  shard b/7  broker 2",
        f"  position 1:1250:3:{bytes(range(32)).hex()}",
    ]
    (line,) = json_lines(MOVED)
    document = json.loads(line)
    assert (document["position"], document["reset"]) == (position_text(POSITION), None)
    assert [(each["offset"], each["event"]) for each in document["events"]] == [(1_248, "deleted"), (1_249, "written")]
    assert "\n" not in line


def test_a_reset_says_that_it_is_all_there_is() -> None:
    state = MOVED._replace(
        events=(*MOVED.events[1:], RecordWritten(0, "Topic", '{"name": "x\\u001b"}', "x")),
        reset=ResetReason.BELOW_LOG_START,
    )
    heading, entity, record = table_lines(state, positions=False)
    assert "RESET at 1250" in heading and heading.endswith("this is all there is: 2 items")
    assert (entity, record) == ("  1249  exists  shard b/7  broker 2", '  -  Topic  {"name": "x\\u001b"}')
    document = json.loads(json_lines(state)[0])
    assert document["reset"] == "BELOW_LOG_START"
    assert document["events"][1] == {
        "offset": None, "event": "record", "type": "Topic", "topic": "x", "data": {"name": "x\x1b"},
    }  # fmt: skip
    nothing = MOVED._replace(events=())
    assert not table_lines(nothing, positions=True) and not json_lines(nothing)


def test_a_position_survives_the_command_line_and_nothing_else_is_one() -> None:
    assert parse_position(position_text(POSITION)) == POSITION
    good = position_text(POSITION)
    for wrong in ("", "1250", good[:-2], f"-{good}", f"x{good}", f"1:{good}", good.replace("1250", str(1 << 70))):
        with pytest.raises(ValueError, match="is no position"):
            parse_position(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        ("watch", "--prefix", "a/"),
        ("watch", "--kind", "shard", "--all-kinds"),
        ("watch", "--from-now", "--position", position_text(POSITION)),
        ("watch", "--position", "1250"),
        ("watch", "-o", "yaml"),
        ("log", "tail", ".", "--follow"),
    ],
)
def test_wrong_usage_ends_with_2(wrong: tuple[str, ...]) -> None:
    assert CliRunner().invoke(cli, [*wrong]).exit_code == 2


def test_the_last_records_of_a_directory_are_shown(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("node")
    log = Log.open(RealDirectory(directory / "@metadata"), start=OffsetAndEpoch(0, 0), chain=bytes(32))
    for number in range(5):
        log.append([Topic(f"t{number}", bytes([number]) * 16)], epoch=1, wall_ms=1_000)
    log.close()
    shown = CliRunner().invoke(cli, ["log", "tail", str(directory), "-n", "2"])
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    assert [row[0] for row in rows] == ["OFFSET", "3", "4"]
    assert (rows[2][3], json.loads(rows[2][4])["name"]) == ("Topic", "t4")


async def started(node: FakeNode, *arguments: str) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    """Starts a command that goes on until Ctrl-C."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "quorum.cli.main", "-C", node.target, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, preexec_fn=ctrl_c_ends_a_process,
    )  # fmt: skip
    assert process.stdout is not None
    return process, process.stdout


@pytest.mark.slow
async def test_the_last_committed_records_are_shown_and_followed_unless_the_log_was_trimmed(
    run: Run, node: FakeNode
) -> None:
    node.log.append(FeatureLevel("metadata.version", 3))
    for number in range(3):
        node.log.append(Entity("shard", str(number), b"broker 1", None))
    shown = await run("log", "tail", "-n", 2, "-o", "json")
    rows = [
        (row["offset"], row["type"], row["data"]["name"], row["data"]["value"]) for row in shown.document["records"]
    ]
    assert rows == [(2, "Entity", "1", "broker 1"), (3, "Entity", "2", "broker 1")]
    process, lines = await started(node, "log", "tail", "-n", "1", "--follow", "-o", "jsonl")
    assert json.loads(await lines.readline())["offset"] == 3
    node.log.append(RemoveEntity("shard", "2"))
    followed = json.loads(await lines.readline())
    assert (followed["offset"], followed["type"], followed["data"]) == (
        4,
        "RemoveEntity",
        {"kind": "shard", "name": "2"},
    )
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    node.log.trim(2)
    trimmed = await run("log", "tail", "-n", 2)
    assert trimmed.exit_code == 1 and "quorumctl log tail DIRECTORY" in trimmed.stderr


@pytest.mark.slow
async def test_a_watch_shows_changes_until_ctrl_c_and_then_says_where_to_go_on(run: Run, node: FakeNode) -> None:
    node.log.append(FeatureLevel("metadata.version", 3))
    node.log.append(Entity("shard", "a/7", b"broker 1", None))
    process, lines = await started(node, "watch", "--kind", "shard", "-o", "json")
    state = json.loads(await lines.readline())
    assert (state["reset"], [each["name"] for each in state["events"]]) == ("NO_POSITION", ["a/7"])
    node.log.append(RemoveEntity("shard", "a/7"), Entity("shard", "b/7", b"broker 2", None))
    batch = json.loads(await lines.readline())
    assert [(each["event"], each["name"]) for each in batch["events"]] == [("deleted", "a/7"), ("written", "b/7")]
    process.send_signal(signal.SIGINT)
    _, stderr = await process.communicate()
    assert process.returncode == 0
    assert f"go on with --position {batch['position']}\n" in stderr.decode()
