"""Declarations of kinds: limits and a JSON schema for the entities of one kind.

A kind need not be declared. A new schema or a new limit holds for the writes that follow: values that exist are not checked
again, because a kind may have 100,000 of them. A removed declaration leaves the entities as they are, with the default
limits.

Example. The kind "job" has 500 entities. An operator declares "job" with a schema and `entities_max` 10. All 500 entities
stay. A put to one of them must meet the schema, and no new job can be created before 491 jobs are deleted.
"""

from metadata_log.format.entity_names import kind_problem
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import OFFSET_MAX
from metadata_log.format.records import (
    ENTITY_VALUE_BYTES_MAX,
    KIND_ENTITIES_MAX,
    EntityKind,
    MetadataRecord,
    RemoveEntityKind,
)
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.entities.limits import check_kinds
from quorum.controller.entities.schemas import schema_problem
from quorum.controller.protocol.decision import ControllerError, Decision
from quorum.controller.protocol.entity_commands import ENTITIES_LEVEL, KIND_CHANGES_MAX, AlterKinds, AlterKindsReply
from quorum.controller.protocol.feature_gate import require_level


def alter_kinds(image: MetadataImage, command: AlterKinds) -> Decision:
    """Decides all declarations and removals together.

    Raises:
        ControllerError: UNSUPPORTED_VERSION, INVALID_REQUEST, POLICY_VIOLATION; nothing was done.
    """
    require_level(image, ENTITIES_LEVEL, "a kind")
    names = [*(each.kind for each in command.declare), *command.remove]
    if len(names) > KIND_CHANGES_MAX:
        raise _bad(f"a request changes at most {KIND_CHANGES_MAX} kinds, not {len(names)}")
    if len(set(names)) < len(names):
        raise _bad("the request names a kind twice")
    for kind in names:
        problem = kind_problem(kind)
        if problem is not None:
            raise _bad(problem)
    records: list[MetadataRecord] = []
    for declared in command.declare:
        _check(declared)
        if image.entity_kinds.get(declared.kind) != declared:
            records.append(declared)
    records += [RemoveEntityKind(kind) for kind in command.remove if kind in image.entity_kinds]
    check_kinds(
        image,
        sum(each.kind not in image.entity_kinds and each.kind not in image.kind_usage for each in command.declare),
    )
    return Decision(tuple(records), AlterKindsReply())


def _check(declared: EntityKind) -> None:
    limits = (
        ("entities_max", declared.entities_max, KIND_ENTITIES_MAX),
        ("bytes_max", declared.bytes_max, OFFSET_MAX),
        ("value_bytes_max", declared.value_bytes_max, ENTITY_VALUE_BYTES_MAX),
    )
    for name, value, limit in limits:
        if not 0 <= value <= limit:
            raise _bad(f"kind {declared.kind}: {name} is 0 to {limit:,}, not {value:,}")
    problem = schema_problem(declared.schema) if declared.schema else None
    if problem is not None:
        raise _bad(f"kind {declared.kind}: the schema is not allowed: {problem}")


def _bad(text: str) -> ControllerError:
    return ControllerError(ErrorCode.INVALID_REQUEST, f"{text}; nothing was done")
