"""The user that a data directory belongs to."""

from __future__ import annotations

import os
from pathlib import Path

from quorum.cli.errors import EXIT_CONFLICT, CliError


def check_owner(path: Path, words: str) -> None:
    """Refuses to write as another user than the directory's owner: a daemon cannot read root's files, and would not start.

    `words` are the command's words after `quorumctl`.
    """
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise CliError(
            f"{path} belongs to user {owner}, and this is user {os.geteuid()}: the node could not read what is written "
            f"here. Nothing was changed. Run this as its user: sudo -u '#{owner}' quorumctl {words} ...",
            EXIT_CONFLICT,
        )
