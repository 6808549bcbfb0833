"""A large message is translated in pieces, with the same result as in one go, and the event loop runs between two pieces."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from quorum_rpc.v1 import admin_pb2

from metadata_log.format.errors import ErrorCode
from quorum.controller.protocol.reassignment_commands import AlterPartitionReassignmentsReply, ReassignmentResult
from quorum.wire import in_pieces
from quorum.wire.admin_methods import TABLE
from quorum.wire.convert.convert_reassignments import to_alter_reassignments_response
from quorum.wire.convert.errors import BadMessage
from quorum.wire.table import Submitted

COUNT = 3 * in_pieces.PIECE_ITEMS - 1
LARGE = {row.method: row for row in TABLE.rows if isinstance(row, Submitted) and row.items}
Make = Callable[[int], Any]


def assigned(number: int, lists: int = 1) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(name=f"t{number}", assignment=[admin_pb2.ReplicaList(broker_ids=[1, 2])] * lists)


ITEMS: dict[str, Make] = {
    "CreateTopics": assigned,
    "CreatePartitions": lambda number: admin_pb2.NewPartitions(name=f"t{number}", total_count=number),
    "IncrementalAlterConfigs": lambda number: admin_pb2.ConfigAlteration(
        resource=admin_pb2.ConfigResource(resource_type=2, name=f"t{number}"),
        operations=[admin_pb2.ConfigOperation(key="k", value="v")],
    ),
    "AlterPartitionReassignments": lambda number: admin_pb2.PartitionReassignment(
        topic="t", partition=number, target=admin_pb2.ReplicaList(broker_ids=[1]) if number % 2 else None
    ),
}


class Steps:
    """Counts how often the event loop runs something else."""

    async def during(self, work: Any) -> tuple[Any, int]:
        """Returns the result of `work`, and the count."""
        count = 0
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            count += 1
        return task.result(), count


@pytest.mark.parametrize("method", LARGE)
async def test_a_request_in_pieces_is_the_same_command(method: str) -> None:
    """Also the fields beside the items; and the loop has run between the pieces."""
    row = LARGE[method]
    request = TABLE.request_type(row)(
        **{row.items: [ITEMS[method](number) for number in range(COUNT)]}, validate_only=True
    )
    command, steps = await Steps().during(in_pieces.command_of(request, row.from_request, row.items))
    assert command == row.from_request(request)
    assert command.validate_only
    assert steps >= 3
    row.check(command)


@pytest.mark.parametrize(
    ("method", "item"),
    [
        ("CreateTopics", lambda number: assigned(number, 4)),
        ("CreateTopics", lambda number: admin_pb2.NewTopic(name=f"t{number}", configs=[admin_pb2.ConfigEntry()] * 4)),
        (
            "CreatePartitions",
            lambda number: admin_pb2.NewPartitions(name=f"t{number}", assignment=[admin_pb2.ReplicaList()] * 4),
        ),
        (
            "IncrementalAlterConfigs",
            lambda _: admin_pb2.ConfigAlteration(operations=[admin_pb2.ConfigOperation(key="k")] * 4),
        ),
        (
            "AlterPartitionReassignments",
            lambda number: admin_pb2.PartitionReassignment(
                topic="t", partition=number, target=admin_pb2.ReplicaList(broker_ids=[1] * 101)
            ),
        ),
    ],
)
async def test_the_whole_is_bounded_as_a_message_in_one_go(method: str, item: Make) -> None:
    """Each piece is small enough, and all pieces together are not."""
    row = LARGE[method]
    request = TABLE.request_type(row)(**{row.items: [item(number) for number in range(COUNT)]})
    with pytest.raises(BadMessage) as whole:
        row.from_request(request)
    command = await in_pieces.command_of(request, row.from_request, row.items)
    with pytest.raises(BadMessage) as pieces:
        row.check(command)
    assert str(pieces.value) == str(whole.value)


async def test_too_many_items_are_refused_at_once() -> None:
    """Before a piece is translated."""
    row = LARGE["AlterPartitionReassignments"]
    request = TABLE.request_type(row)(partitions=[admin_pb2.PartitionReassignment(topic="t")] * 10_001)
    work = in_pieces.command_of(request, row.from_request, row.items)
    with pytest.raises(BadMessage, match="10001 partitions in one request"):
        await work


async def test_an_answer_in_pieces_is_the_same_answer() -> None:
    """Long texts are cut as in the whole answer, which must fit into one message."""
    results = tuple(
        ReassignmentResult(
            f"t{number}",
            number,
            ErrorCode.INVALID_REQUEST if number % 3 else ErrorCode.NONE,
            "\u00e4" * (number % 400),
            (1, 2),
        )
        for number in range(COUNT)
    )
    reply = AlterPartitionReassignmentsReply(41, results)
    answer, steps = await Steps().during(in_pieces.response_of(reply, to_alter_reassignments_response))
    assert answer == to_alter_reassignments_response(reply)
    assert steps >= 3
