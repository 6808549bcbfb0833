"""`quorumctl features`: sees, raises and lowers the levels of features.

For example, after an upgrade of all controllers and brokers: `features describe` shows `metadata.version` at level 1, and the
level 2 that the release supports; `features upgrade --dry-run` names the nodes that lack level 2; `features upgrade` raises it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from metadata_log.format.records import METADATA_VERSION, METADATA_VERSION_MAX
from quorum.cli.errors import EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import Column, emit
from quorum.cli.shared_options import DRY_RUN
from quorum.wire.words import endpoint_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

_COLUMNS = (
    Column("FEATURE", "feature"),
    Column("SUPPORTED_MIN_VERSION", "supported_min_version"),
    Column("SUPPORTED_MAX_VERSION", "supported_max_version"),
    Column("FINALIZED_VERSION_LEVEL", "finalized_version_level"),
    Column("EPOCH", "epoch"),
    Column("IN_THE_WAY", "in_the_way"),
)
_RESULTS = (
    Column("FEATURE", "feature"),
    Column("FINALIZED_VERSION_LEVEL", "finalized_version_level"),
    Column("RESULT", "result"),
)
_LEVELS = click.option(
    "--feature", "levels", multiple=True, metavar="NAME=LEVEL", help="The wanted level; may be repeated."
)


@click.group()
def features() -> None:
    """See and change the levels of features."""


@features.command()
@at_position
@command
def describe(options: Options) -> None:
    """Shows for each feature the levels that the release supports, and the cluster's level.

    EPOCH is the offset of the log as of which the levels hold. IN_THE_WAY names brokers that do not support the highest level.

    \b
    $ quorumctl features describe
    """
    answer = ask(options, lambda client: client.describe_features())
    rows = [
        {
            "feature": each.name,
            "supported_min_version": each.supported_min_level,
            "supported_max_version": each.supported_max_level,
            "finalized_version_level": each.finalized_level,
            "epoch": answer.as_of_offset,
            "in_the_way": list(each.in_the_way),
        }
        for each in answer.features
    ]
    document = {"features": rows, "controllers": [_controller(each) for each in answer.controllers]}
    emit(options.output, document, rows="features", columns=_COLUMNS)


def _controller(registered: admin_pb2.RegisteredController) -> dict[str, Any]:
    from metadata_log.format.ids import uuid_text

    return {
        "controller_id": registered.controller.node_id,
        "directory_id": uuid_text(registered.controller.directory_id),
        "endpoints": [endpoint_text(each) for each in registered.endpoints],
        "features": {
            each.name: {"supported_min_version": each.min_level, "supported_max_version": each.max_level}
            for each in registered.features
        },
    }


@features.command()
@_LEVELS
@DRY_RUN
@command
def upgrade(options: Options, levels: tuple[str, ...], dry_run: bool) -> None:
    """Raises levels of features; without --feature, metadata.version to the newest level of this release.

    Refused while a broker, fenced or not, or a voter does not support the level. Upgrade all controllers and brokers first.

    \b
    $ quorumctl features upgrade --feature metadata.version=2 --dry-run
    """
    wanted = _wanted(levels) if levels else {METADATA_VERSION: METADATA_VERSION_MAX}
    _update(options, wanted, downgrade=False, dry_run=dry_run)


@features.command()
@_LEVELS
@DRY_RUN
@command
def downgrade(options: Options, levels: tuple[str, ...], dry_run: bool) -> None:
    """Lowers levels of features.

    Refused, with examples, while anything in the metadata needs the present level.

    \b
    $ quorumctl features downgrade --feature metadata.version=1 --dry-run
    """
    if not levels:
        raise CliError("name the feature and its level: --feature metadata.version=1", EXIT_USAGE)
    _update(options, _wanted(levels), downgrade=True, dry_run=dry_run)


@features.command()
@click.option("--feature", "names", multiple=True, required=True, metavar="NAME", help="A feature; may be repeated.")
@DRY_RUN
@command
def disable(options: Options, names: tuple[str, ...], dry_run: bool) -> None:
    """Turns features off: their level becomes 0.

    \b
    $ quorumctl features disable --feature eligible.leader.replicas.version
    """
    _update(options, dict.fromkeys(_once(names), 0), downgrade=True, dry_run=dry_run)


def _once(names: Sequence[str]) -> Sequence[str]:
    if len(set(names)) < len(names):
        raise CliError("a feature is named twice", EXIT_USAGE)
    return names


def _wanted(levels: Sequence[str]) -> dict[str, int]:
    pairs = [text.partition("=") for text in levels]
    for text, (_, _, level) in zip(levels, pairs, strict=True):
        if not (level.isascii() and level.isdecimal() and len(level) < 10):
            raise CliError(f"--feature {text}: write NAME=LEVEL, for example metadata.version=2", EXIT_USAGE)
    _once([name for name, _, _ in pairs])
    return {name: int(level) for name, _, level in pairs}


def _update(options: Options, levels: Mapping[str, int], *, downgrade: bool, dry_run: bool) -> None:
    async def work(client: AdminClient) -> tuple[dict[str, int], admin_pb2.UpdateFeaturesResponse]:
        before = {each.name: each.finalized_level for each in (await client.describe_features()).features}
        return before, await client.update_features(levels, downgrade=downgrade, validate_only=dry_run)

    before, answer = ask(options, work)
    done = "would be updated" if dry_run else "updated"
    rows = [
        {
            "feature": each.name,
            "finalized_version_level": each.level,
            "result": "unchanged" if before.get(each.name, 0) == each.level else done,
        }
        for each in answer.results
    ]
    heading = ["Dry run: this would succeed, and nothing was changed."] if dry_run else []
    emit(options.output, {"dry_run": dry_run, "features": rows}, rows="features", columns=_RESULTS, heading=heading)
