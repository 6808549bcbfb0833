"""The commands of `quorumctl brokers` that change brokers: fence, unfence, drain, undrain, unregister.

Each command takes several brokers, one after the other, and each broker has a result of its own. If an error ends the work in
the middle, for example because no controller leads any more, the output still has a row for each broker: done, or not tried.

    $ quorumctl brokers drain 101 --wait --reason "new disk"
    ID   RESULT   LEADS  LEADERLESS  REPLICAS
    101  drained      0           0        40
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import MODE_REASON_CHARS_MAX
from quorum.cli.commands.brokers import outages
from quorum.cli.errors import EXIT_OK, EXIT_TIMEOUT, EXIT_USAGE, CliError, exit_code_of, of_admin_error
from quorum.cli.options import Options, ask, command
from quorum.cli.output import Column, emit
from quorum.cli.shared_options import BROKER_IDS, DRY_RUN, WAIT, WaitingCommand
from quorum.wire.words import state_text

if TYPE_CHECKING:
    from metaquorum import AdminClient, AdminError
    from quorum.cli.reassignment.cluster_state import ClusterState
    from quorum.cli.reassignment.waves import Outcome
    from quorum.controller.partitions.reassignment.rebalancing import Place, Replicas

_RESULTS: Final = (Column("ID", "broker_id"), Column("RESULT", "result"))
_MESSAGE: Final = Column("MESSAGE", "message")
"""The message column, shown only if a row has a message."""
_DRAINS: Final = (
    *_RESULTS,
    Column("LEADS", "led_partitions"),
    Column("LEADERLESS", "leaderless_partitions"),
    Column("REPLICAS", "replicas"),
)
_OF_ONE_BROKER: Final = frozenset(
    (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST)
)
"""The refusals after which the next broker is tried."""
POLL_S: Final = 0.5
NOT_TRIED: Final = "not tried"

_REASON: Final = click.option(
    "--reason", default="", help=f"Shown by `brokers describe`. At most {MODE_REASON_CHARS_MAX} characters."
)


class _Done(NamedTuple):
    """The rows of all brokers, and the error that ended the work before its end."""

    rows: list[dict[str, Any]]
    stopped_by: AdminError | None


async def _for_each(
    broker_ids: tuple[int, ...],
    change: Callable[[int], Awaitable[object]],
    word: str,
    no_errors: frozenset[ErrorCode] = frozenset(),
    unchanged: Mapping[int, str] = MappingProxyType({}),
) -> _Done:
    """Makes the change for one broker after the other. `word` is the result of a change that was made.

    `unchanged`: the brokers for which nothing has to be changed, and why.
    """
    from metaquorum import AdminError, Unanswered

    rows: list[dict[str, Any]] = []
    stopped_by: AdminError | None = None
    for broker_id in dict.fromkeys(broker_ids):
        result, error, message = word, None, None
        if broker_id in unchanged:
            result, message = "unchanged", unchanged[broker_id]
        if stopped_by is not None:
            result, message = NOT_TRIED, None
        else:
            try:
                await change(broker_id)
            except AdminError as e:
                if e.code in no_errors:
                    result = "absent"
                else:
                    result = "unknown" if isinstance(e, Unanswered) else "refused"
                    error, message = e.code.name, e.message
                    stopped_by = None if e.code in _OF_ONE_BROKER else e
        rows.append({"broker_id": broker_id, "result": result, "error": error, "message": message})
    return _Done(rows, stopped_by)


def _show(options: Options, done: _Done, columns: tuple[Column, ...] = _RESULTS) -> None:
    """Prints the rows; the exit code is that of the first failure."""
    from metaquorum import AdminError

    if any(row["message"] for row in done.rows):
        columns = (*columns, _MESSAGE)
    emit(options.output, {"brokers": done.rows}, rows="brokers", columns=columns)
    if done.stopped_by is not None and type(done.stopped_by) is not AdminError:  # a row has a refusal's text already
        raise of_admin_error(done.stopped_by)
    failed = [row["error"] for row in done.rows if row["error"] is not None]
    if failed:
        raise SystemExit(exit_code_of(ErrorCode[failed[0]]))


@click.command()
@BROKER_IDS
@_REASON
@DRY_RUN
@click.option("--yes", is_flag=True, help="Fence at once. Do not look for partitions that lose their leader.")
@command
def fence(options: Options, broker_ids: tuple[int, ...], reason: str, dry_run: bool, yes: bool) -> None:
    """Keeps brokers out, until `brokers unfence`.

    A fenced broker leads nothing and is in no ISR. The fence survives a restart of the broker and a new active controller. A
    partition that only these brokers have in sync has no leader meanwhile: --dry-run counts such partitions, and without --yes
    the command asks if there are any. A fence ends the maintenance of `brokers drain`.

    \b
    $ quorumctl brokers fence 101 --reason "slow disk"
    """
    fenced = frozenset(broker_ids)

    async def look(client: AdminClient) -> tuple[list[int], outages.Outage]:
        listed = [broker async for broker in client.brokers()]
        drained = [each.broker_id for each in listed if each.broker_id in fenced and each.mode == "maintenance"]
        is_wanted = dry_run or not yes
        return drained, await outages.of_fence(client, listed, fenced) if is_wanted else outages.Outage()

    drained, outage = ask(options, look)
    if not dry_run:
        outages.confirm_fence(outage)
    elif outage.count:
        click.echo(f"note: {outage.text('would have')}: no other replica in sync is online", err=True)
    for broker_id in drained:
        click.echo(
            f"note: the fence {'would end' if dry_run else 'ends'} the maintenance of broker {broker_id}; "
            f"after `quorumctl brokers unfence {broker_id}`, drain it again",
            err=True,
        )

    async def work(client: AdminClient) -> _Done:
        return await _for_each(
            broker_ids, lambda each: client.fence_broker(each, reason, validate_only=dry_run), _word("fenced", dry_run)
        )

    _show(options, ask(options, work))


@click.command()
@BROKER_IDS
@DRY_RUN
@command
def unfence(options: Options, broker_ids: tuple[int, ...], dry_run: bool) -> None:
    """Ends the fence of `brokers fence`. A broker that runs is online a moment later.

    \b
    $ quorumctl brokers unfence 101
    """

    async def work(client: AdminClient) -> _Done:
        unchanged = await _without_mode(client, broker_ids, "was not fenced by an operator")
        return await _for_each(
            broker_ids,
            lambda each: client.unfence_broker(each, validate_only=dry_run),
            _word("unfenced", dry_run),
            unchanged=unchanged,
        )

    _show(options, ask(options, work))


@click.command(cls=WaitingCommand)
@BROKER_IDS
@_REASON
@click.option("--replicas", is_flag=True, help="Move all replicas to other brokers, too.")
@WAIT
@DRY_RUN
@command
def drain(
    options: Options, broker_ids: tuple[int, ...], reason: str, replicas: bool, wait: bool, dry_run: bool
) -> None:
    """Takes brokers out of work for maintenance, until `brokers undrain`.

    The leaderships move to other brokers, and nothing new is placed on a drained broker. It stays online and in sync. It still
    leads a partition while no other broker is in sync there: LEADS counts such partitions, and `partitions list --led-by` lists
    them. They move as soon as another replica is in sync.

    With --wait the command waits until the brokers lead nothing, and until no partition without a leader waits for them
    (LEADERLESS): exit code 5 if there are such partitions at the end. A broker that has died meanwhile may leave some. With
    --replicas it also begins to move the replicas, and --wait waits for that, too. Another run goes on.

    \b
    $ quorumctl brokers drain 101 --reason "new disk" --wait --timeout 600
    """
    wait_s = options.wait_s if wait and not dry_run else None

    async def work(client: AdminClient) -> tuple[_Done, Outcome | None, outages.Outage]:
        if not outages.others_in_work([each async for each in client.brokers()], frozenset(broker_ids)):
            text = "no other broker is online and in work: the leaders stay where they are, and new topics are refused"
            click.echo(f"note: {text}", err=True)
        cluster = await _cluster(client) if replicas else None
        plan = _plan_off(cluster, broker_ids) if cluster is not None else {}
        earlier = cluster.moves_of(frozenset(broker_ids)) if cluster is not None else set()
        done = await _for_each(
            broker_ids, lambda each: client.drain_broker(each, reason, validate_only=dry_run), _word("drained", dry_run)
        )
        rows = [row for row in done.rows if row["error"] is None and row["result"] != NOT_TRIED]
        for row in done.rows:
            row |= {"led_partitions": None, "leaderless_partitions": None, "replicas": None}
        if not rows or done.stopped_by is not None:
            return done, None, outages.Outage()
        outcome = None
        if plan or earlier:
            outcome = await _carry_out(client, plan, earlier, wait_s=wait_s, dry_run=dry_run)
        return done, outcome, await _count(client, rows, wait_s or 0.0)

    done, outcome, outage = ask(options, work, waits=wait)
    _show(options, done, _DRAINS)
    if outcome is not None and outcome.exit_code != EXIT_OK:
        late = "not finished in time: " if outcome.is_late else ""
        raise CliError(f"replicas: {late}{outcome.text()}; run the command again to go on", outcome.exit_code)
    if outage.count:
        text = f"{outage.text('have')}: a drained broker is in sync there, and cannot lead; start the broker"
        if wait_s is not None:
            raise CliError(text, EXIT_TIMEOUT)
        click.echo(f"note: {text}", err=True)
    left = [row for row in done.rows if row["led_partitions"] or (replicas and row["replicas"])]
    if wait_s is not None and left:
        ids = ", ".join(str(row["broker_id"]) for row in left)
        what = "lead partitions or have replicas" if replicas else "lead partitions"
        text = f"not finished in time: of these brokers some still {what}: {ids}"
        raise CliError(f"{text}. They stay drained; run the command again to go on waiting", EXIT_TIMEOUT)


async def _without_mode(client: AdminClient, broker_ids: tuple[int, ...], why: str) -> dict[int, str]:
    """The brokers of these that have no mode, and so nothing to end, with the reason for the operator."""
    return {
        each.broker_id: f"broker {each.broker_id} {why}: nothing had to be changed"
        async for each in client.brokers()
        if each.broker_id in broker_ids and not each.mode
    }


async def _cluster(client: AdminClient) -> ClusterState:
    from quorum.cli.reassignment.cluster_state import load

    return await load(client)


def _plan_off(cluster: ClusterState, broker_ids: tuple[int, ...]) -> dict[Place, Replicas]:
    """Returns the moves that leave no replica on these brokers. Raises CliError if there are too few other brokers."""
    from quorum.cli.reassignment.cluster_state import planned
    from quorum.cli.reassignment.plan_warnings import warn

    plan = planned(cluster, off=frozenset(broker_ids), onto=frozenset())
    warn(cluster, plan)
    return plan


async def _carry_out(
    client: AdminClient,
    plan: dict[Place, Replicas],
    earlier: set[Place],
    *,
    wait_s: float | None,
    dry_run: bool = False,
) -> Outcome:
    """Makes the moves of the plan, and waits for them and for the moves that an earlier run has begun."""
    from quorum.cli.reassignment.waves import carry_out

    return await carry_out(client, plan, earlier=earlier, wait_s=wait_s, dry_run=dry_run)


async def _count(client: AdminClient, rows: list[dict[str, Any]], wait_s: float) -> outages.Outage:
    """Fills in what each broker leads and holds, once nothing waits for the brokers, or the time is over.

    Returns the partitions that have no leader and wait for one of the brokers.
    """
    loop = asyncio.get_running_loop()
    until_s, told = loop.time() + wait_s, None
    while True:
        found = {broker.broker_id: broker async for broker in client.brokers()}
        for row in rows:
            broker = found.get(row["broker_id"])
            row["led_partitions"] = 0 if broker is None else broker.led_partitions
            row["replicas"] = 0 if broker is None else broker.replicas
        left, is_over, outage = sum(row["led_partitions"] for row in rows), loop.time() >= until_s, outages.Outage()
        if not left or is_over:
            for row in rows:
                waits = await outages.of_drained(client, row["broker_id"])
                row["leaderless_partitions"], outage = waits.count, outage.with_all(waits)
        if is_over or not (left or outage.count):
            return outage
        what = "1 partition has" if left == 1 else f"{left:,} partitions have"
        text = f"{what} no other replica in sync that could lead" if left else outage.text("have")
        if text != told:
            click.echo(f"waiting: {text}", err=True)
            told = text
        await asyncio.sleep(POLL_S)


@click.command()
@BROKER_IDS
@DRY_RUN
@command
def undrain(options: Options, broker_ids: tuple[int, ...], dry_run: bool) -> None:
    """Ends the maintenance of `brokers drain`.

    The brokers lead again after the next check of the balancing. `leaders elect --all-topic-partitions` elects them at once.

    \b
    $ quorumctl brokers undrain 101
    """

    async def work(client: AdminClient) -> _Done:
        unchanged = await _without_mode(client, broker_ids, "was not in maintenance")
        return await _for_each(
            broker_ids,
            lambda each: client.undrain_broker(each, validate_only=dry_run),
            _word("undrained", dry_run),
            unchanged=unchanged,
        )

    _show(options, ask(options, work))


@click.command(cls=WaitingCommand)
@BROKER_IDS
@click.option("--if-exists", is_flag=True, help="A broker that is not registered is no error.")
@click.option("--reassign", is_flag=True, help="First move the replicas of these brokers to others. Needs --wait.")
@WAIT
@command
def unregister(options: Options, broker_ids: tuple[int, ...], if_exists: bool, reassign: bool, wait: bool) -> None:
    """Removes brokers that are gone for good, and their modes.

    A broker is removed only if it is fenced, is not heard, and has no replicas. Each broker has a result of its own; the exit
    code is that of the first failure. With --reassign the command first moves the replicas away, and waits for that: exit code 5
    if they are not in time. Then no broker was removed, and another run goes on.

    \b
    $ quorumctl brokers unregister 101 --reassign --wait
    """
    if reassign != wait:
        raise CliError("--reassign and --wait belong together", EXIT_USAGE)
    no_errors = frozenset((ErrorCode.BROKER_ID_NOT_REGISTERED,)) if if_exists else frozenset()

    async def work(client: AdminClient) -> _Done:
        if wait:
            await _empty(client, broker_ids, options.wait_s)
        return await _for_each(broker_ids, client.unregister_broker, "removed", no_errors)

    _show(options, ask(options, work, waits=wait))


async def _empty(client: AdminClient, broker_ids: tuple[int, ...], wait_s: float) -> None:
    """Moves all replicas off brokers that are gone. Raises CliError if a broker is not gone, or if the time is over."""
    states = {each.broker_id: state_text(each.state) async for each in client.brokers()}
    for broker_id in broker_ids:
        if states.get(broker_id) in ("online", "stopping"):
            raise CliError(f"broker {broker_id} is {states[broker_id]}; nothing was changed. Stop its process first")
    cluster = await _cluster(client)
    plan, earlier = _plan_off(cluster, broker_ids), cluster.moves_of(frozenset(broker_ids))
    outcome = await _carry_out(client, plan, earlier, wait_s=wait_s)
    if outcome.exit_code != EXIT_OK:
        raise CliError(
            f"not all replicas have moved: {outcome.text()}; no broker was removed. Run the command again to go on; "
            "`quorumctl partitions reassign list` shows what is moving",
            outcome.exit_code,
        )


def _word(word: str, dry_run: bool) -> str:
    return f"would be {word}" if dry_run else word
