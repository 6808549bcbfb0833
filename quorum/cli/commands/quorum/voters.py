"""`quorumctl quorum add-voter | remove-voter | transfer-leader | can-restart`: changes voters and leader (KIP-853).

A voter is a node id together with a directory id. An operator need not know the directory id: `quorumctl` reads it from the new
controller's own directory, or asks the quorum. Each change is one record of the log; the leader commits the record before it
accepts the next change.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from metadata_log.format.errors import ErrorCode
from quorum.cli.errors import EXIT_CONFLICT, EXIT_NOT_FOUND, EXIT_TIMEOUT, EXIT_UNHEALTHY, EXIT_USAGE, CliError
from quorum.cli.node_argument import NodeCommand
from quorum.cli.options import Options, ask, command
from quorum.cli.output import emit
from quorum.cli.replicas import best_answer, is_leaders
from quorum.cli.shared_options import DRY_RUN, ID
from quorum.wire.words import endpoint_text, optional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

LISTENER: Final = "CONTROLLER"
_POLL_S: Final = 0.05


class NewVoter(NamedTuple):
    """The controller that will vote; `cluster_id` and `directory_id` are None while unknown."""

    node_id: int
    directory_id: bytes | None
    listener: str
    host: str
    port: int
    cluster_id: str | None = None


@click.command("add-voter")
@click.option(
    "-c", "--config", "config_path", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The new controller's config file, on its own machine: node id, listener and directory id are read from it and "
    "from its directory.",
)  # fmt: skip
@click.option("--node-id", type=ID, metavar="ID", help="Without a config file.")
@click.option(
    "--endpoint",
    metavar="HOST:PORT",
    help="Without a config file: the new controller's address for the other controllers.",
)
@click.option(
    "--directory-id",
    metavar="ID",
    help="Without a config file. Default: the directory id of the observer with this node id.",
)
@DRY_RUN
@command
def add_voter(
    options: Options,
    config_path: Path | None,
    node_id: int | None,
    endpoint: str | None,
    directory_id: str | None,
    dry_run: bool,
) -> None:
    """Makes a controller a voter that runs as an observer and has caught up.

    \b
    $ quorumctl quorum add-voter --config /etc/metaquorum/quorumd.yaml
    """
    if config_path is not None:
        if node_id is not None or endpoint is not None or directory_id is not None:
            raise CliError("either --config, or --node-id and --endpoint", EXIT_USAGE)
        new = _from_config(config_path)
    elif node_id is None or endpoint is None:
        raise CliError("name the new voter: --config FILE, or --node-id ID --endpoint HOST:PORT", EXIT_USAGE)
    else:
        new = _from_words(node_id, endpoint, directory_id)
    document = ask(options, lambda client: _add(client, new, dry_run))
    emit(options.output, document, heading=[_sentence(document, "add", "Added", f" at {document['endpoint']}")])


async def _add(client: AdminClient, new: NewVoter, dry_run: bool) -> dict[str, Any]:
    from quorum_rpc.v1 import common_pb2, voter_pb2

    from metaquorum import NoLeader

    answer = await best_answer(client)
    if new.cluster_id is not None and new.cluster_id != answer.cluster_id:
        text = f"controller {new.node_id} is of cluster {new.cluster_id}, and this is cluster {answer.cluster_id}"
        raise CliError(f"{text}. Check the addresses after -C, or format its directory for this cluster", EXIT_CONFLICT)
    if dry_run or new.directory_id is None:
        _check_led(answer)  # only a leader knows the observers
    directory_id = new.directory_id or _directory_of(answer.observers, new.node_id, "observer")
    endpoint = common_pb2.Endpoint(listener=new.listener, host=new.host, port=new.port)
    voter = voter_pb2.Voter(
        replica=common_pb2.ReplicaKey(node_id=new.node_id, directory_id=directory_id),
        endpoints=[endpoint],
        kraft_version_max=1,
    )
    document = _document(answer, new.node_id, directory_id, dry_run)
    document["endpoint"] = endpoint_text(endpoint)
    document["voters"] = sorted({*document["voters"], new.node_id})
    if not dry_run:
        try:
            document["offset"] = (await client.add_voter(voter)).offset
        except NoLeader as e:
            if e.code is not ErrorCode.NOT_READY:
                raise
            text = f"{e.message}. Does it run, and does its configuration name a living controller (controller.quorum.voters)?"
            raise CliError(text, EXIT_TIMEOUT) from e
    return document


@click.command("remove-voter", cls=NodeCommand)
@click.option("--node-id", required=True, type=ID, metavar="ID", help="The voter to remove.")
@click.option("--directory-id", metavar="ID", help="Default: the directory id of the voter with this node id.")
@DRY_RUN
@command
def remove_voter(options: Options, node_id: int, directory_id: str | None, dry_run: bool) -> None:
    """Removes a voter that is lost or will be removed. A leader first hands its leadership over.

    \b
    $ quorumctl quorum remove-voter --node-id 3
    """

    async def work(client: AdminClient) -> dict[str, Any]:
        answer = await best_answer(client)
        if dry_run:
            _check_led(answer)
        key = _id(directory_id) if directory_id is not None else _directory_of(answer.voters, node_id, "voter")
        document = _document(answer, node_id, key, dry_run)
        document["voters"] = [each for each in document["voters"] if each != node_id]
        if not dry_run:
            document["offset"] = (await client.remove_voter(node_id, key)).offset
        return document

    document = ask(options, work)
    emit(options.output, document, heading=[_sentence(document, "remove", "Removed")])


@click.command("transfer-leader", cls=NodeCommand)
@click.option("--to", "target_id", type=ID, metavar="ID", help="Default: the voter with the longest log.")
@command
def transfer_leader(options: Options, target_id: int | None) -> None:
    """Asks the leader to hand its leadership over, and waits for the next leader.

    \b
    $ quorumctl quorum transfer-leader --to 2
    """

    async def work(client: AdminClient) -> dict[str, Any]:
        before = await best_answer(client)
        await client.transfer_leadership(target_id)
        leads = before.role == "leader" and before.node_id == target_id
        after = before if leads else await _new_leader(client, before)
        return {
            "previous_leader_id": optional(before.leader, "leader_id"),
            "leader_id": after.leader.leader_id,
            "leader_epoch": after.epoch,
        }

    document = ask(options, work)
    now, before, epoch = (document[name] for name in ("leader_id", "previous_leader_id", "leader_epoch"))
    line = f"Controller {now} leads in epoch {epoch}"
    emit(
        options.output,
        document,
        heading=[f"{line} already." if now == before else f"{line}, after controller {before}."],
    )
    if target_id is not None and document["leader_id"] != target_id:
        raise CliError(f"controller {document['leader_id']} was elected, and not {target_id}: try again")


async def _new_leader(
    client: AdminClient, before: admin_pb2.DescribeQuorumResponse
) -> admin_pb2.DescribeQuorumResponse:
    """The status of a leader of a later epoch, once there is one."""
    deadline_s = asyncio.get_running_loop().time() + client.timeout_s
    while True:
        answer = await best_answer(client)
        if answer.epoch > before.epoch and answer.role == "leader":
            return answer
        if asyncio.get_running_loop().time() > deadline_s:
            raise CliError(
                f"the leader of epoch {before.epoch} was asked to hand over, and after {client.timeout_s:g} s no other leader "
                "is known. `quorumctl quorum status` shows the next leader",
                EXIT_TIMEOUT,
            )
        await asyncio.sleep(_POLL_S)


@click.command("can-restart", cls=NodeCommand)
@click.option("--node-id", required=True, type=ID, metavar="ID", help="The controller to restart.")
@command
def can_restart(options: Options, node_id: int) -> None:
    """Checks that a majority of caught-up voters remains without this controller. Exit code 10: wait.

    \b
    $ quorumctl quorum can-restart --node-id 2
    """
    response = ask(options, lambda client: client.can_restart(node_id))
    document = {"node_id": node_id, "can_restart": response.can_restart, "reason": response.reason}
    verdict = "can be restarted" if response.can_restart else "cannot be restarted now"
    emit(options.output, document, heading=[f"Controller {node_id} {verdict}: {response.reason}."])
    if not response.can_restart:
        raise SystemExit(EXIT_UNHEALTHY)


# --- words -----------------------------------------------------------------------------------------------------------


def _document(
    answer: admin_pb2.DescribeQuorumResponse, node_id: int, directory_id: bytes, dry_run: bool
) -> dict[str, Any]:
    from metadata_log.format.ids import uuid_text

    voters = sorted(each.node_id for each in answer.voters)
    return {
        "node_id": node_id,
        "directory_id": uuid_text(directory_id),
        "dry_run": dry_run,
        "offset": None,
        "previous_voters": voters,
        "voters": voters,
    }


def _sentence(document: dict[str, Any], verb: str, done: str, where: str = "") -> str:
    before, after = ("{" + ",".join(map(str, document[name])) + "}" for name in ("previous_voters", "voters"))
    did = f"Would {verb}" if document["dry_run"] else done
    offset = "" if document["offset"] is None else f", as of offset {document['offset']}"
    return f"{did} voter {document['node_id']} ({document['directory_id']}){where}: {before} -> {after}{offset}."


def _check_led(answer: admin_pb2.DescribeQuorumResponse) -> None:
    """Refuses to judge a change without the leader's answer: other controllers may know old voters, and know no observers."""
    if is_leaders(answer):
        return
    why = (
        f"no controller leads, as controller {answer.node_id} says: {answer.no_leader_reason or 'it does not say why'}"
    )
    if answer.leader.HasField("leader_id"):
        why = f"the leader, controller {answer.leader.leader_id}, does not answer"
    text = f"{why}. Nothing was judged or changed; `quorumctl quorum status` shows what each controller knows"
    raise CliError(text, EXIT_TIMEOUT)


def _directory_of(replicas: Sequence[admin_pb2.ReplicaStatus], node_id: int, what: str) -> bytes:
    """Finds the directory id of the only replica with `node_id`."""
    found = [each.directory_id for each in replicas if each.node_id == node_id]
    if len(found) == 1:
        return found[0]
    if found:
        raise CliError(f"{len(found)} {what}s have node id {node_id}: say which, with --directory-id", EXIT_USAGE)
    known = ", ".join(str(each.node_id) for each in replicas) or "none"
    hint = ". Start it first: it must fetch from the leader and catch up before it votes" if what == "observer" else ""
    raise CliError(f"controller {node_id} is no {what} (there are: {known}){hint}", EXIT_NOT_FOUND)


def _from_words(node_id: int, endpoint: str, directory_id: str | None) -> NewVoter:
    from service_kit.process.endpoints import BadEndpoint, parse_host_port

    try:
        host, port = parse_host_port(endpoint)
    except BadEndpoint as e:
        raise CliError(f"--endpoint: {e}", EXIT_USAGE) from e
    return NewVoter(node_id, None if directory_id is None else _id(directory_id), LISTENER, host, port)


def _id(text: str) -> bytes:
    from metadata_log.format.ids import parse_uuid

    try:
        return parse_uuid(text)
    except ValueError as e:
        raise CliError(f"--directory-id: {e}", EXIT_USAGE) from e


def _from_config(path: Path) -> NewVoter:
    """Reads the new voter from the config file and `meta.properties`."""
    import os

    from metadata_log.disk.files import RealDirectory
    from metadata_log.disk.identity import ForeignDirectory, UnformattedDirectory, check_identity, read_identity
    from metadata_log.format.errors import LogFormatError
    from quorum.config import QuorumConfig
    from service_kit.process.config import ConfigErrors, load_config

    try:
        config = load_config(QuorumConfig, path, os.environ)
    except ConfigErrors as e:
        raise CliError(f"{path}: {e}", EXIT_USAGE) from e
    directory = config.metadata_log_dir
    try:
        found = read_identity(RealDirectory(directory)) if directory.is_dir() else None
        identity = check_identity(found, node_id=config.node_id, role="controller", where=str(directory))
    except (LogFormatError, ForeignDirectory, UnformattedDirectory) as e:
        raise CliError(str(e), EXIT_CONFLICT) from e
    except OSError as e:
        raise CliError(f"{directory}: {e.strerror or e}") from e
    endpoint = config.my_endpoint
    if endpoint is None:
        raise CliError(
            f"{path}: others cannot call {config.listener}; say where they reach it with advertised.listeners",
            EXIT_USAGE,
        )
    return NewVoter(config.node_id, identity.directory_id, *endpoint, cluster_id=identity.cluster_id)
