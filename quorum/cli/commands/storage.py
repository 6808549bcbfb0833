"""`quorumctl storage`: formats a data directory, and shows the node that a directory belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quorum.cli.errors import EXIT_CONFLICT, EXIT_NOT_FOUND, EXIT_USAGE, CliError
from quorum.cli.options import Options, ask, command
from quorum.cli.output import emit
from quorum.cli.shared_options import ID
from quorum.wire.words import endpoint_text

if TYPE_CHECKING:
    from metadata_log.disk.identity import Identity
    from quorum.runtime.disk.format_directory import RunningCluster


@click.group()
def storage() -> None:
    """Format data directories, and show the node that they belong to."""


@storage.command("random-uuid")
@command
def random_uuid(options: Options) -> None:
    """Prints a new id, for a cluster or a directory.

    \b
    $ quorumctl storage random-uuid
    """
    from metadata_log.format.ids import uuid_text
    from quorum.runtime.disk import format_directory

    text = uuid_text(format_directory.random_uuid())
    emit(options.output, {"uuid": text}, heading=[text])


@storage.command("format")
@click.option("-t", "--cluster-id", metavar="ID", help="The cluster's id; the same for all of its nodes.")
@click.option(
    "-c", "--config", "config_path", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The node's config file: its node.id, process.roles and metadata.log.dir are used.",
)  # fmt: skip
@click.option("--directory", type=click.Path(path_type=Path), help="Without a config file: the directory to format.")
@click.option("--node-id", type=ID, metavar="ID", help="Without a config file.")
@click.option("--role", type=click.Choice(("controller", "broker")), help="Without a config file.")
@click.option(
    "-I", "--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY-ID,...",
    help="A new cluster: the first voter set, the same for every controller.",
)  # fmt: skip
@click.option(
    "--from", "source", metavar="HOST:PORT,...",
    help="A running cluster: addresses of its controllers. One of them tells what the new node needs to join.",
)  # fmt: skip
@click.option(
    "--snapshot", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE",
    help="A new cluster that begins with an imported state: the file of `quorum-offline import`, for every first controller.",
)  # fmt: skip
@click.option("-g", "--ignore-formatted", is_flag=True, help="Leave a formatted directory as it is, without an error.")
@command
def format_(
    options: Options,
    cluster_id: str | None,
    config_path: Path | None,
    directory: Path | None,
    node_id: int | None,
    role: str | None,
    initial_controllers: str | None,
    source: str | None,
    snapshot: Path | None,
    ignore_formatted: bool,
) -> None:
    """Formats a data directory for a node.

    Do this once, for a new node. A controller that lost its disk cannot go on as the same voter: its votes are lost, and with
    an empty disk it could help to elect a leader that lacks committed records. Let the controller join as a new one: --from
    formats the directory with a new directory id, and the controller follows as an observer until `quorumctl quorum add-voter`.

    \b
    $ quorumctl storage format --config /etc/metaquorum/quorumd.yaml --from 10.0.0.1:9001
    """
    from metadata_log.format.errors import LogFormatError
    from quorum.runtime.disk import format_directory

    if config_path is not None:
        directory, node_id, role = _from_config(config_path, directory, node_id, role)
    if directory is None or node_id is None or role is None:
        raise CliError("name the directory to format: --config FILE, or --directory, --node-id and --role", EXIT_USAGE)
    _check_cluster(source, cluster_id, initial_controllers, snapshot)
    cluster = None if source is None else _running_cluster(options, source, cluster_id)
    try:
        if cluster is not None:
            identity = format_directory.format_joining(directory, cluster, node_id=node_id, role=role)
        else:
            assert cluster_id is not None
            controllers = format_directory.parse_initial_controllers(initial_controllers) if initial_controllers else ()
            identity = format_directory.format_directory(
                directory, cluster_id=cluster_id, node_id=node_id, role=role, controllers=controllers, snapshot=snapshot
            )
    except format_directory.OwnerUnknown as e:
        raise CliError(f"{e}. Nothing was changed", EXIT_CONFLICT) from e
    except format_directory.AlreadyFormatted as e:
        if not ignore_formatted:
            raise CliError(f"{e}. Nothing was changed; --ignore-formatted lets it be", EXIT_CONFLICT) from e
        emit(options.output, {"directory": str(directory), "formatted": False}, heading=[f"Left alone: {e}."])
        return
    except ValueError as e:
        raise CliError(str(e), EXIT_USAGE) from e
    except OSError as e:
        raise CliError(f"{directory}: {e.strerror or e}") from e
    except LogFormatError as e:
        raise CliError(f"{e}. {directory} is not formatted; remove what is in it, and run this again") from e
    document = {"directory": str(directory), "formatted": True, **_document(identity)}
    whose = f"{role} {node_id} of cluster {identity.cluster_id}, directory {document['directory_id']}"
    emit(
        options.output, document, heading=[f"Formatted {directory} for {whose}.", *_next_steps(snapshot, cluster, role)]
    )


def _next_steps(snapshot: Path | None, cluster: RunningCluster | None, role: str) -> Iterator[str]:
    if snapshot is not None:
        yield f"The cluster begins with the state in {snapshot}. Format every first controller with this file."
    if cluster is not None and role == "controller":
        if cluster.hint is not None:
            yield f"None of the first voters is left. To find the others it needs in its configuration: {cluster.hint}"
        yield "It starts as an observer; when it has caught up, `quorumctl quorum add-voter` lets it vote."


def _check_cluster(
    source: str | None, cluster_id: str | None, initial_controllers: str | None, snapshot: Path | None
) -> None:
    """Refuses options that name no cluster, or both a new cluster and a running cluster."""
    if source is not None and initial_controllers is not None:
        raise CliError(
            "--initial-controllers is for a new cluster, --from for a running cluster: give one of the two", EXIT_USAGE
        )
    if source is not None and snapshot is not None:
        raise CliError("--snapshot is for a new cluster; a node that joins a cluster fetches its state", EXIT_USAGE)
    if source is None and cluster_id is None:
        raise CliError(
            "name the cluster: --cluster-id ID for a new cluster (`quorumctl storage random-uuid` makes ids), or "
            "--from HOST:PORT of a controller of a running cluster",
            EXIT_USAGE,
        )


def _running_cluster(options: Options, source: str, cluster_id: str | None) -> RunningCluster:
    """Asks a controller for the cluster's id and its first voters."""
    from metadata_log.format.records import Voters
    from quorum.runtime.disk.format_directory import RunningCluster
    from quorum.wire.convert.convert_membership import from_voter
    from quorum.wire.convert.errors import BadMessage

    asked = replace(options, bootstrap_controller=source, bootstrap_server=None)
    answer = ask(asked, lambda client: client.describe_quorum())
    if cluster_id is not None and answer.cluster_id != cluster_id:
        raise CliError(f"{source} is of cluster {answer.cluster_id}, not {cluster_id}", EXIT_CONFLICT)
    try:
        voters = Voters(tuple(from_voter(each) for each in answer.bootstrap_voters))
    except BadMessage as e:
        raise CliError(f"{source} sent an answer that cannot be used: {e}") from e
    if not voters.voters or answer.generation < 1:
        raise CliError(f"{source} does not name the first voters of its cluster: its release is too old for --from")
    now = tuple(f"{each.node_id}@{endpoint_text(each.endpoint)}" for each in answer.voters if each.HasField("endpoint"))
    return RunningCluster(answer.cluster_id, answer.generation, voters, now)


@storage.command()
@click.argument("directory", type=click.Path(path_type=Path))
@command
def info(options: Options, directory: Path) -> None:
    """Shows the node that a data directory belongs to.

    \b
    $ quorumctl storage info /var/lib/metaquorum/controller
    """
    from metadata_log.disk.files import RealDirectory
    from metadata_log.disk.identity import read_identity
    from metadata_log.format.errors import LogFormatError

    try:
        if not directory.is_dir():
            raise CliError(f"{directory} is not a directory", EXIT_NOT_FOUND)
        identity = read_identity(RealDirectory(directory))
        contents = _contents(directory)
    except LogFormatError as e:
        raise CliError(str(e)) from e
    except OSError as e:
        raise CliError(f"{directory}: {e.strerror or e}") from e
    if identity is None:
        raise CliError(f"{directory} is not formatted; `quorumctl storage format` makes it a node's", EXIT_NOT_FOUND)
    document = {"directory": str(directory), **_document(identity), **contents}
    emit(
        options.output,
        document,
        heading=[f"{key}: {'-' if value is None else value}" for key, value in document.items()],
    )


def _document(identity: Identity) -> dict[str, Any]:
    from metadata_log.format.ids import uuid_text
    from quorum.runtime.disk.format_directory import fingerprint
    from service_kit.security.node_identity import Node, NodeNames

    return {
        "cluster_id": identity.cluster_id,
        "node_id": identity.node_id,
        "role": identity.role,
        "directory_id": uuid_text(identity.directory_id),
        "certificate_name": NodeNames(identity.cluster_id).demanded(Node(identity.role, identity.node_id)),
        "generation": identity.generation,
        "genesis": fingerprint(identity.genesis_chain) if identity.genesis_chain else None,
    }


def _contents(directory: Path) -> dict[str, Any]:
    """The size of the directory's contents, from names and sizes only, so that a running node is not disturbed."""
    log = directory / "@metadata"
    files = sorted(log.iterdir()) if log.is_dir() else []
    return {
        "segments": sum(file.suffix == ".log" for file in files),
        "snapshots": sum(file.suffix == ".checkpoint" and not file.name.startswith("0" * 20) for file in files),
        "bytes": sum(file.stat().st_size for file in files if file.is_file()),
    }


def _from_config(path: Path, directory: Path | None, node_id: int | None, role: str | None) -> tuple[Path, int, str]:
    """Reads node id, role and directory from the config file; an option beside the file must agree with it."""
    from service_kit.process.settings import read_settings

    settings, problems = read_settings(path, {}, ())
    if problems:
        raise CliError("; ".join(str(problem) for problem in problems), EXIT_USAGE)
    values = {key: str(setting.value) for key, setting in settings.items()}
    missing = [key for key in ("node.id", "metadata.log.dir") if not values.get(key)]
    if missing or not values["node.id"].isdigit():
        raise CliError(f"{path}: {' and '.join(missing) or 'a numeric node.id'} needed", EXIT_USAGE)
    guessed = "broker" if "controller.quorum.bootstrap.servers" in values else "controller"
    said = (directory, node_id, role)
    meant = (Path(values["metadata.log.dir"]), int(values["node.id"]), values.get("process.roles", role or guessed))
    for name, by_option, by_file in zip(("--directory", "--node-id", "--role"), said, meant, strict=True):
        if by_option is not None and by_option != by_file:
            raise CliError(f"{name} {by_option} contradicts {path}, which says {by_file}", EXIT_USAGE)
    return meant
