"""`quorumctl topics`"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from quorum.cli.commands.topics.apply import apply
from quorum.cli.errors import EXIT_OK, EXIT_USAGE, CliError, exit_code_of
from quorum.cli.options import Options, ask, at_position, command
from quorum.cli.output import UNKNOWN, Column, emit
from quorum.cli.pairs import pairs
from quorum.cli.partition_table import conditions_of_partitions, partition_columns, partition_row, wanted_conditions
from quorum.cli.shared_options import DRY_RUN, INT32_MAX, LABEL
from quorum.wire.words import id_text

if TYPE_CHECKING:
    from quorum_rpc.v1 import admin_pb2

    from metaquorum import AdminClient

RESOURCES_MAX = 10_000
"""Maximum number of topics in one request for configs."""


_LISTING = (
    Column("NAME", "name"),
    Column("TOPIC_ID", "topic_id"),
    Column("PARTITIONS", "partitions"),
    Column("REPLICATION", "replication_factor"),
)
_RESULT = (Column("NAME", "name"), Column("RESULT", "result"), Column("TOPIC_ID", "topic_id"))
_MESSAGE = Column("MESSAGE", "message")
"""The message column, shown only if a row has a message."""


@click.group()
def topics() -> None:
    """Create, see, change and delete topics."""


topics.add_command(apply)


@topics.command("list")
@at_position
@conditions_of_partitions
@click.option("--topics-with-overrides", is_flag=True, help="Only topics on which configs were set.")
@LABEL
@command
def list_(options: Options, topics_with_overrides: bool, label: str, **conditions: bool) -> None:
    """Lists all topics by name.

    With several of the first four options, a topic is listed if a partition of it meets one of them.

    \b
    $ quorumctl topics list --under-min-isr
    """
    wanted = wanted_conditions(conditions)

    async def work(client: AdminClient) -> list[dict[str, Any]]:
        listed = [_listing(topic) async for topic in client.topics(label=label)]
        if wanted:
            found = {each.topic async for each in client.partitions(*wanted)}
            listed = [each for each in listed if each["name"] in found]
        if topics_with_overrides:
            overridden = await _with_configs(client, [each["name"] for each in listed])
            listed = [each for each in listed if each["name"] in overridden]
        return listed

    emit(options.output, {"topics": ask(options, work)}, rows="topics", columns=_LISTING)


async def _with_configs(client: AdminClient, names: list[str]) -> set[str]:
    """The topics on which configs were set."""
    from metaquorum import TOPIC_RESOURCE, admin_pb2

    found = set()
    for begin in range(0, len(names), RESOURCES_MAX):
        some = names[begin : begin + RESOURCES_MAX]
        resources = [admin_pb2.ConfigResource(resource_type=TOPIC_RESOURCE, name=name) for name in some]
        found |= {each.resource.name async for each in client.described_configs(resources) if each.configs}
    return found


@topics.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--partitions", type=click.IntRange(1, INT32_MAX), metavar="N", help="Default: the controllers' num.partitions."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, INT32_MAX),
    metavar="N",
    help="Default: the controllers' default.replication.factor.",
)
@click.option(
    "--replica-assignment",
    "assignment",
    metavar="ID:ID,...",
    help="The brokers of each partition, for example 101:102,102:103: two partitions, which prefer 101 and 102.",
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Sets a config; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="An existing topic is no error.")
@DRY_RUN
@command
def create(
    options: Options,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Creates topics.

    \b
    $ quorumctl topics create orders --partitions 3 --replication-factor 3
    """
    from quorum_rpc.v1 import admin_pb2

    _check_once(names)
    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise CliError(
            "--replica-assignment says how many partitions and replicas there are: leave out the numbers", EXIT_USAGE
        )
    replicas = [] if assignment is None else _assignment(assignment)
    entries = [admin_pb2.ConfigEntry(key=key, value=value) for key, value in pairs(configs)]
    new = [
        admin_pb2.NewTopic(
            name=name,
            partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            assignment=replicas,
            configs=entries,
        )
        for name in names
    ]
    response = ask(options, lambda client: client.create_topics(new, validate_only=dry_run))
    done = "would be created" if dry_run else "created"
    _finish(options, response, done, {"TOPIC_ALREADY_EXISTS": "exists"} if if_not_exists else {})


@topics.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--partitions",
    type=click.IntRange(1, INT32_MAX),
    metavar="N",
    help="How many partitions each topic shall have in all.",
)
@click.option(
    "--replica-assignment",
    "assignment",
    metavar="ID:ID,...",
    help="With --partitions: the brokers of each new partition, for example 101:102,102:103.",
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Sets a config; may be repeated.")
@click.option(
    "--delete-config",
    "deleted",
    multiple=True,
    metavar="KEY",
    help="Deletes a config, whose default holds again; may be repeated.",
)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@DRY_RUN
@command
def alter(
    options: Options,
    names: tuple[str, ...],
    partitions: int | None,
    assignment: str | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    if_exists: bool,
    dry_run: bool,
) -> None:
    """Gives topics more partitions, and changes their configs.

    Configs are changed first. A topic whose configs are refused gets no partitions.

    \b
    $ quorumctl topics alter orders --partitions 12 --config retention.ms=86400000
    """
    from quorum.cli.commands.topics.topic_changes import TopicChanges, alter_topics

    _check_once(names)
    if partitions is None and assignment is not None:
        raise CliError("--replica-assignment is for new partitions: name --partitions too", EXIT_USAGE)
    if partitions is None and not configs and not deleted:
        raise CliError("name what to change: --partitions, --config KEY=VALUE or --delete-config KEY", EXIT_USAGE)
    changes = TopicChanges(partitions, [] if assignment is None else _assignment(assignment), pairs(configs), deleted)
    response = ask(options, lambda client: alter_topics(client, names, changes, dry_run))
    done = "would be altered" if dry_run else "altered"
    _finish(options, response, done, {"UNKNOWN_TOPIC_OR_PARTITION": "absent"} if if_exists else {})


@topics.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@command
def delete(options: Options, names: tuple[str, ...], if_exists: bool) -> None:
    """Deletes topics, with everything in them.

    \b
    $ quorumctl topics delete orders --if-exists
    """
    _check_once(names)
    response = ask(options, lambda client: client.delete_topics(names))
    _finish(options, response, "deleted", {"UNKNOWN_TOPIC_OR_PARTITION": "absent"} if if_exists else {})


@topics.command()
@at_position
@click.argument("names", nargs=-1, required=True)
@command
def describe(options: Options, names: tuple[str, ...]) -> None:
    """Shows topics with their configs and partitions.

    \b
    $ quorumctl topics describe orders
    """

    async def work(client: AdminClient) -> list[admin_pb2.TopicDescription]:
        from metaquorum import AdminError

        described = [topic async for topic in client.described_topics(names)]
        for topic in described:
            if topic.error.code:
                raise AdminError.of(topic.error)
        return described

    described = [_description(topic) for topic in ask(options, work)]
    if options.output != "table":
        emit(options.output, {"topics": described}, rows="topics")
        return
    heading = [
        f"{topic['name']}  id {topic['topic_id']}  partitions {topic['partition_count']}  "
        f"configs {','.join(f'{key}={value}' for key, value in topic['configs'].items()) or UNKNOWN}"
        for topic in described
    ]
    rows = [{"topic": topic["name"], **partition} for topic in described for partition in topic["partitions"]]
    emit("table", {"partitions": rows}, rows="partitions", columns=partition_columns(rows), heading=heading)


# --- helpers ---------------------------------------------------------------------------------------------------------


def _check_once(names: tuple[str, ...]) -> None:
    """Refuses a topic that is named twice: the operator may have meant another topic."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise CliError(f"topic {twice[0]} is named twice; nothing was done", EXIT_USAGE)


def _listing(topic: admin_pb2.TopicListing) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": id_text(topic.topic_id),
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
    }


def _assignment(text: str) -> list[admin_pb2.ReplicaList]:
    """Reads the brokers of each partition: `1:2,2:3`."""
    from quorum_rpc.v1 import admin_pb2

    lists = [part.split(":") for part in text.split(",")]
    if not all(each.isascii() and each.isdecimal() and int(each) <= INT32_MAX for ids in lists for each in ids):
        raise CliError(f"{text!r} is not an assignment such as 101:102,102:103", EXIT_USAGE)
    return [admin_pb2.ReplicaList(broker_ids=map(int, ids)) for ids in lists]


def _finish(options: Options, response: Any, done: str, tolerated: dict[str, str]) -> None:
    """Prints the result of each topic. The exit code is the exit code of the first failed topic.

    `tolerated`: errors that do not count as failures here, and the word for each error.
    """
    from metaquorum import AdminError

    rows, exit_code = [], EXIT_OK
    for each in response.results:
        error = AdminError.of(each.error) if each.error.code else None
        result = done if error is None else tolerated.get(error.code.name, "refused")
        is_refused = error is not None and error.code.name not in tolerated
        if error is not None and is_refused:
            exit_code = exit_code or exit_code_of(error.code)
        rows.append(
            {
                "name": each.name,
                "result": result,
                "error": error.code.name if error is not None and is_refused else None,
                "message": error.message if error is not None and is_refused else None,
                "topic_id": id_text(each.topic_id) if any(each.topic_id) else None,
            }
        )
    columns = (*_RESULT, _MESSAGE) if any(row["message"] for row in rows) else _RESULT
    emit(options.output, {"offset": response.offset, "topics": rows}, rows="topics", columns=columns)
    if exit_code != EXIT_OK:
        raise SystemExit(exit_code)


def _description(topic: admin_pb2.TopicDescription) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": id_text(topic.topic_id),
        "partition_count": topic.partition_count,
        "configs": {entry.key: entry.value for entry in topic.configs},
        "labels": {label.key: label.value for label in topic.labels},
        "partitions": [partition_row(each) for each in topic.partitions],
    }
