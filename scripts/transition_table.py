"""Writes docs/transitions.md: the roles of a controller, and every change of role that there is, from the code's own table.

`python scripts/transition_table.py` writes the file; tests/core/elections/test_transitions.py fails while it says something else.
"""

from pathlib import Path
from typing import get_args

from quorum.core.roles import TRANSITIONS, Role, RoleState, Why

PATH = Path(__file__).resolve().parents[1] / "docs" / "transitions.md"

HEAD = """# Roles of a controller, and the changes between roles

Written by `scripts/transition_table.py` from `quorum/core/roles.py`; don't edit it here. A change of role that is not in the
second table is a bug, and stops the node. Nothing is skipped: `QuorumState.become` is the one door.
Each change is a line `role` in the controller's log, with its reason; one that repeats itself while no leader is found is counted
there, once a minute.

| role | what it is |
|---|---|
"""


def table() -> str:
    """The whole file."""
    kinds = {kind.role: kind for kind in get_args(RoleState)}
    roles = [f"| {role.value} | {_first_line(kinds[role])} |" for role in Role]
    edges = [f"| {start.value} | {end.value} | {why.value} | `{why.name}` |" for start, end, why in in_order()]
    return (
        "\n".join([HEAD + "\n".join(roles), "", "| from | to | because | in code |", "|---|---|---|---|", *edges])
        + "\n"
    )


def in_order() -> list[tuple[Role, Role, Why]]:
    """All transitions, as the roles and reasons stand in the code."""
    roles, reasons = list(Role), list(Why)
    return sorted(TRANSITIONS, key=lambda edge: (roles.index(edge[0]), roles.index(edge[1]), reasons.index(edge[2])))


def _first_line(kind: type) -> str:
    assert kind.__doc__ is not None
    return kind.__doc__.strip().split("\n")[0]


if __name__ == "__main__":
    PATH.write_text(table())
    print(f"wrote {PATH}")
