"""Bad requests of embedders, by method of EntityService, for `test_refusals`."""

from typing import Final

from metadata_log.format.errors import ErrorCode as E
from tests.fuzz.network_targets import busy
from tests.quorum.runtime.lone_controller import follower, leader
from tests.quorum.wire.bad_requests import (
    CHANGES,
    HALF,
    LEADERS,
    OTHER_ID,
    PAGES,
    Row,
    both,
    many,
    nothing,
    of_operators,
    put,
)

LONG: Final = "x" * 70_000

EMBEDDERS: Final = {
    "Transact": (
        *CHANGES,
        of_operators("operations", [], E.INVALID_REQUEST),
        Row("129 operations", busy, many("operations", 129), E.INVALID_REQUEST),
        Row("129 conditions", busy, many("conditions", 129), E.INVALID_REQUEST),
        Row("the same twice", busy, many("operations", 2), E.INVALID_REQUEST),
        Row("an operation of no kind", busy, lambda asked: asked.operations[0].ClearField("put"), E.INVALID_REQUEST),
        Row("no test", busy, lambda asked: asked.conditions[0].ClearField("exists"), E.INVALID_REQUEST),
        of_operators("conditions.0.entity.kind", "Task", E.INVALID_REQUEST),
        of_operators("operations.0.put.entity.kind", "", E.INVALID_REQUEST),
        of_operators("operations.0.put.entity.name", "", E.INVALID_REQUEST),
        of_operators("operations.0.put.entity.name", "two\nlines", E.INVALID_REQUEST),
        of_operators("operations.0.put.entity.name", LONG, E.INVALID_REQUEST),
        of_operators("operations.0.put.ttl_ms", 999, E.INVALID_REQUEST),
        of_operators("operations.0.put.ttl_ms", -1, E.INVALID_REQUEST),
        of_operators("operations.0.put.keep_owner", True, E.INVALID_REQUEST),
        of_operators("operations.0.put.value", bytes((64 << 10) + 1), E.POLICY_VIOLATION),
        of_operators("operations.0.put.value", bytes(2 << 20), E.RECORD_BATCH_TOO_LARGE),
        of_operators("operations.1.delete.name", "", E.INVALID_REQUEST),
        of_operators("operations.2.create_topic.partitions", 20_000, E.POLICY_VIOLATION),
        Row(
            "a session that never was",
            busy,
            both(put("operations.0.put.ttl_ms", 0), put("operations.0.put.owner.session_id", OTHER_ID)),
            E.UNKNOWN_SESSION,
        ),
        Row(
            "half a session",
            busy,
            both(put("operations.0.put.ttl_ms", 0), put("operations.0.put.owner.session_id", HALF)),
            E.INVALID_REQUEST,
        ),
    ),
    "GetEntities": (
        *LEADERS,
        of_operators("entities.0.kind", "Task", E.INVALID_REQUEST),
        of_operators("entities.0.name", LONG, E.INVALID_REQUEST),
        Row("129 entities", busy, many("entities", 129), E.INVALID_REQUEST),
    ),
    "ListEntities": (*PAGES, of_operators("kind", "", E.INVALID_REQUEST)),
    "AlterKinds": (
        *CHANGES,
        of_operators("declare.0.kind", "Job", E.INVALID_REQUEST),
        of_operators("declare.0.kind", "task", E.INVALID_REQUEST),
        of_operators("declare.0.schema", "{", E.INVALID_REQUEST),
        of_operators("declare.0.schema", LONG, E.INVALID_REQUEST),
        of_operators("declare.0.schema", '{"pattern": "(a+)+"}', E.INVALID_REQUEST),
        of_operators("declare.0.entities_max", -1, E.INVALID_REQUEST),
        of_operators("declare.0.bytes_max", -1, E.INVALID_REQUEST),
        of_operators("declare.0.value_bytes_max", (256 << 10) + 1, E.INVALID_REQUEST),
        Row("101 kinds", busy, many("declare", 101), E.INVALID_REQUEST),
    ),
    "DescribeKinds": PAGES,
    "OpenSession": (
        *CHANGES,
        of_operators("session_id", HALF, E.INVALID_REQUEST),
        of_operators("session_id", b"", E.INVALID_REQUEST),
        of_operators("name", LONG, E.INVALID_REQUEST),
        of_operators("timeout_ms", 999, E.INVALID_REQUEST),
        of_operators("timeout_ms", -1, E.INVALID_REQUEST),
        of_operators("timeout_ms", 86_400_001, E.INVALID_REQUEST),
    ),
    "CloseSession": (*CHANGES, of_operators("session_id", HALF, E.INVALID_REQUEST)),
    "ListSessions": PAGES,
    "KeepAlive": (
        of_operators("cluster_id", "elsewhere", E.INCONSISTENT_CLUSTER_ID),
        of_operators("sessions.0.session_id", HALF, E.INVALID_REQUEST),
        of_operators("sessions.0.epoch", 1, E.UNKNOWN_SESSION),
        Row("1,001 sessions", busy, many("sessions", 1_001), E.INVALID_REQUEST),
        Row("asked of a follower", follower, nothing, E.NOT_CONTROLLER),
        Row("asked of a new leader", leader, nothing, E.NOT_READY),
    ),
}
