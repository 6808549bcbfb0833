"""`quorumctl dev`: a whole cluster of real daemons on this machine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from quorum.cli.errors import EXIT_CONFLICT, EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_UNHEALTHY, CliError
from quorum.cli.options import Options, Seconds, command
from quorum.cli.output import Column, emit
from quorum.cli.pairs import pairs

if TYPE_CHECKING:
    from quorum.devcluster.cluster import DevCluster

T = TypeVar("T")

_DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The cluster's directory.",
)
_WAIT = click.option("--wait", "wait_s", type=Seconds(0, 3_600), metavar="SECONDS", hidden=True)
"""The name of --timeout in release 0.1.0."""
_SIGNALS = ("KILL", "TERM", "INT", "STOP", "CONT", "HUP", "USR1")
_COLUMNS = (
    Column("NAME", "name"),
    Column("ROLE", "role"),
    Column("ID", "node_id"),
    Column("ENDPOINT", "endpoint"),
    Column("RACK", "rack"),
    Column("PID", "pid"),
    Column("STATE", "state"),
    Column("APPLIED", "applied_offset"),
    Column("DATA", "data_directory"),
)


@click.group()
def dev() -> None:
    """Run a whole cluster on this machine."""


@dev.command()
@_DIRECTORY
@click.option("--controllers", type=click.IntRange(1, 99), metavar="N", help="Default: 3.")
@click.option("--brokers", type=click.IntRange(0, 99), metavar="N", help="Default: 3.")
@click.option("--racks", type=click.IntRange(0, 99), metavar="N", help="Spread the brokers over so many racks.")
@click.option(
    "--data-plane",
    type=click.Choice(("none", "partitions")),
    help="partitions (default): brokers that store and serve records. none: brokers without records.",
)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65_000),
    metavar="PORT",
    help="Use ports from here on. Default: any free ones.",
)
@click.option(
    "--set",
    "controller_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of quorumd's config file, for all controllers, such as metrics.listener=127.0.0.1:0; may be repeated.",
)
@click.option(
    "--set-broker",
    "broker_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of brokerd's config file, for all brokers; may be repeated.",
)
@_WAIT
@command
def up(
    options: Options,
    directory: Path,
    controllers: int | None,
    brokers: int | None,
    racks: int | None,
    data_plane: str | None,
    base_port: int | None,
    controller_settings: tuple[str, ...],
    broker_settings: tuple[str, ...],
    wait_s: float | None,
) -> None:
    """Starts a cluster and waits for its health, at most for --timeout. Default: 60.

    A healthy cluster has a leader, and every broker is online.

    The first run makes the cluster; a later run starts the same cluster again, with the settings of the first run. A node with
    a wiped or unusable directory or configuration, or with a port that another process has, is left out if the other nodes can
    run without it; then the output names the way back, and the exit code is 10.

    \b
    $ quorumctl dev up --dir /tmp/mq --controllers 3 --brokers 3
    """
    from quorum.devcluster.cluster import DevCluster
    from quorum.devcluster.layout import CLUSTER_FILE

    if (directory / CLUSTER_FILE).exists():
        cluster = _guarded(lambda: DevCluster.load(directory, _progress))
        _check_same(cluster, controllers, brokers)
        _check_unset(
            cluster,
            {
                "--racks": racks,
                "--data-plane": data_plane,
                "--base-port": base_port,
                "--set": controller_settings,
                "--set-broker": broker_settings,
            },
        )
    else:
        cluster = _guarded(
            lambda: DevCluster.create(
                directory,
                controllers=3 if controllers is None else controllers,
                brokers=3 if brokers is None else brokers,
                racks=racks or 0,
                data_plane=data_plane or "partitions",
                base_port=base_port,
                controller_settings=dict(pairs(controller_settings)),
                broker_settings=dict(pairs(broker_settings)),
                progress=_progress,
            )
        )
    left_out = _run(cluster.up(_limit_s(options, wait_s, 60)))
    _show(options, cluster)
    for name, why in left_out.items():
        click.echo(f"quorumctl: {name} was not started: {why}", err=True)
    if left_out:
        raise SystemExit(EXIT_UNHEALTHY)


@dev.command()
@_DIRECTORY
@command
def status(options: Options, directory: Path) -> None:
    """Shows every node. Exit code 10 if a node does not run, is paused or has a problem; the problem is shown above the table.

    \b
    $ quorumctl dev status --dir /tmp/mq
    """
    if any(row["problem"] is not None for row in _show(options, _load(directory))):
        raise SystemExit(EXIT_UNHEALTHY)


@dev.command()
@_DIRECTORY
@_WAIT
@command
def down(options: Options, directory: Path, wait_s: float | None) -> None:
    """Stops all nodes, brokers first. Their files stay. A node that runs after --timeout is killed. Default: 20.

    \b
    $ quorumctl dev down --dir /tmp/mq
    """
    limit_s = _limit_s(options, wait_s, 20)
    cluster = _load(directory)
    was_running = [node.name for node in cluster.running()]
    killed = [node.name for node in _run(cluster.down(limit_s))]
    text = f"Stopped {len(was_running)} of {len(cluster.nodes)} nodes." if was_running else "Nothing was running."
    if killed:
        text += f" Killed, because they did not stop within {limit_s:g} s: {', '.join(killed)}."
    emit(options.output, {"stopped": was_running, "killed": killed}, heading=[text])


@dev.command()
@_DIRECTORY
@click.argument("node")
@click.option(
    "--signal", "name", type=click.Choice(_SIGNALS, case_sensitive=False), default="KILL", help="Default: kill."
)
@command
def kill(options: Options, directory: Path, node: str, name: str) -> None:
    """Sends a signal to one node (by name or id).

    STOP pauses the node, CONT lets the node go on.

    \b
    $ quorumctl dev kill controller-2 --dir /tmp/mq --signal stop
    """
    cluster = _load(directory)
    _guarded(lambda: cluster.kill(node, signal.Signals[f"SIG{name.upper()}"]))
    found = cluster.node(node)
    emit(
        options.output,
        {"node": found.name, "signal": name.upper()},
        heading=[f"Sent SIG{name.upper()} to {found.name}."],
    )


@dev.command()
@_DIRECTORY
@click.argument("node")
@_WAIT
@command
def start(options: Options, directory: Path, node: str, wait_s: float | None) -> None:
    """Starts one stopped node (by name or id), and waits until it listens, at most for --timeout. Default: 30.

    Exit code 1, with the end of the node's log, if the process ends before that.

    \b
    $ quorumctl dev start controller-2 --dir /tmp/mq
    """
    cluster = _load(directory)
    pid = _guarded(lambda: cluster.start(node))
    _run(cluster.wait_until_serving(node, _limit_s(options, wait_s, 30)))
    name = cluster.node(node).name
    emit(options.output, {"node": name, "pid": pid}, heading=[f"Started {name}, process {pid}."])


@dev.command()
@_DIRECTORY
@click.argument("node")
@_WAIT
@command
def stop(options: Options, directory: Path, node: str, wait_s: float | None) -> None:
    """Stops one node (by name or id) in order. If the node runs after --timeout, it is killed. Default: 20.

    \b
    $ quorumctl dev stop controller-2 --dir /tmp/mq
    """
    limit_s = _limit_s(options, wait_s, 20)
    cluster = _load(directory)
    name = _guarded(lambda: cluster.node(node)).name
    in_order = _run(cluster.stop(name, limit_s))
    text = f"Stopped {name}." if in_order else f"Killed {name}: it did not stop within {limit_s:g} s."
    emit(options.output, {"node": name, "in_order": in_order}, heading=[text])


# --- helpers ---------------------------------------------------------------------------------------------------------


def _limit_s(options: Options, wait_s: float | None, default_s: float) -> float:
    """How long the command may take."""
    if wait_s is not None:
        return wait_s
    return default_s if options.timeout_s is None else options.timeout_s


def _progress(text: str) -> None:
    click.echo(text, err=True)


def _load(directory: Path) -> DevCluster:
    from quorum.devcluster.cluster import DevCluster

    return _guarded(lambda: DevCluster.load(directory, _progress))


def _show(options: Options, cluster: DevCluster) -> list[dict[str, Any]]:
    rows = [
        {
            "name": view.node.name,
            "role": view.node.role,
            "node_id": view.node.node_id,
            "endpoint": view.node.endpoint,
            "rack": view.node.rack,
            "pid": view.pid,
            "state": view.state,
            "problem": view.problem,
            "applied_offset": view.applied_offset,
            "data_directory": str(view.node.data_directory),
            "log": str(view.node.log_path),
        }
        for view in _run(cluster.views())
    ]
    document = {
        "cluster_id": cluster.layout.cluster_id,
        "directory": str(cluster.layout.directory),
        "bootstrap_controllers": cluster.layout.bootstrap,
        "nodes": rows,
    }
    heading = [
        f"cluster {cluster.layout.cluster_id} in {cluster.layout.directory}",
        f"export QUORUMCTL_BOOTSTRAP_CONTROLLER={cluster.layout.bootstrap}",
        *(f"{row['name']}: {row['problem']}" for row in rows if row["problem"] is not None),
        "",
    ]
    emit(options.output, document, rows="nodes", columns=_COLUMNS, heading=heading)
    return rows


def _check_same(cluster: DevCluster, controllers: int | None, brokers: int | None) -> None:
    """A cluster keeps its size."""
    there = (len(cluster.layout.controllers), len(cluster.layout.brokers))
    asked = (controllers if controllers is not None else there[0], brokers if brokers is not None else there[1])
    if there != asked:
        raise CliError(
            f"{cluster.layout.directory} holds a cluster of {there[0]} controllers and {there[1]} brokers, not of "
            f"{asked[0]} and {asked[1]}; leave the numbers out to start it, or give another --dir",
            EXIT_CONFLICT,
        )


def _check_unset(cluster: DevCluster, options: Mapping[str, object]) -> None:
    """Refuses options that only a new cluster can take. `options` has the option's value by its name; None or (): not given."""
    given = [name for name, value in options.items() if value not in (None, ())]
    if given:
        directory = cluster.layout.directory
        raise CliError(
            f"{directory} holds a cluster already, which {', '.join(given)} does not change: no node was started; leave the "
            f"option out to start the cluster, change a setting in {directory}/NODE/config.yaml, or give another --dir",
            EXIT_CONFLICT,
        )


def _guarded(work: Callable[[], T]) -> T:
    from quorum.devcluster.cluster import DevClusterError

    try:
        return work()
    except (DevClusterError, OSError) as e:
        raise _cli_error(e) from e


def _run(work: Coroutine[Any, Any, T]) -> T:
    from quorum.devcluster.cluster import DevClusterError

    try:
        return asyncio.run(work)
    except (DevClusterError, OSError) as e:
        raise _cli_error(e) from e


def _cli_error(e: Exception) -> CliError:
    from quorum.devcluster.cluster import Conflict, NotThere

    if isinstance(e, NotThere):
        return CliError(str(e), EXIT_NOT_FOUND)
    text, _, log_tail = str(e).partition("\n")
    return CliError(text, EXIT_CONFLICT if isinstance(e, Conflict) else EXIT_REFUSED, log_tail)
