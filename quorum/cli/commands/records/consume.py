"""`quorumctl consume`: shows the records of a topic.

The command reads up to the ends that the partitions have when it begins, and then stops; with `--follow` it goes on until Ctrl-C.
Example: orders-0 ends at 100 and orders-1 at 50. The command stops when both positions are there, although new records come.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from quorum.cli.commands.records.broker_clients import broker_addresses, run
from quorum.cli.commands.records.record_rows import TITLES, line_of, row_of
from quorum.cli.commands.records.start_place import parse_place, seek
from quorum.cli.errors import EXIT_INTERRUPTED, EXIT_TIMEOUT, EXIT_USAGE, CliError
from quorum.cli.options import Options, command
from quorum.cli.output import emit, json_text
from quorum.cli.shared_options import INT32_MAX

if TYPE_CHECKING:
    from metaquorum import Consumer, ConsumerRecord, TopicPartition
    from service_kit.rpc.dial import Dialer

_POLL_S: Final = 0.5


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "place",
    callback=parse_place,
    metavar="PLACE",
    help="beginning, end, an offset, or a time such as 2026-11-23T21:00:00Z. Default: the stored position, else beginning.",
)
@click.option(
    "--partition",
    "numbers",
    type=click.IntRange(0, INT32_MAX),
    multiple=True,
    metavar="N",
    help="Read only this partition; may be repeated.",
)
@click.option("--max-records", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option("--follow", is_flag=True, help="Wait for new records until Ctrl-C.")
@click.option(
    "--positions",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Begin at the positions in this file, and keep new positions there.",
)
@command
def consume(
    options: Options,
    topic: str,
    place: str | int | datetime | None,
    numbers: tuple[int, ...],
    max_records: int | None,
    follow: bool,
    positions: Path | None,
) -> None:
    """Shows the records of a topic, each partition in order, up to its present end.

    The table and jsonl print each record when it arrives; json and yaml print one document at the end. An offset that was
    deleted is taken for the beginning.

    \b
    $ quorumctl consume orders --from beginning --max-records 10
    """
    if follow and max_records is None and options.output in ("json", "yaml"):
        raise CliError(f"-o {options.output} prints one document at the end: use -o jsonl with --follow", EXIT_USAGE)
    bootstrap = broker_addresses(options, topic)
    printer = Printer(options.output)

    async def work(dialer: Dialer) -> None:
        from metaquorum import ClientConfig, Consumer, ConsumerConfig, FilePositions

        wait_ms = max(1, round(options.request_timeout_s * 1_000))
        config = ConsumerConfig(auto_offset_reset="earliest", max_block_ms=wait_ms)
        client_config = ClientConfig(request_timeout_ms=wait_ms)
        store = None if positions is None else FilePositions(positions)
        async with Consumer(
            bootstrap, positions=store, config=config, client_config=client_config, dial=dialer
        ) as consumer:
            consumer.assign(_chosen(await consumer.partitions_of(topic), numbers))
            if place is not None:
                seek(consumer, place)
            await _read(consumer, printer, options.request_timeout_s, max_records, follow)

    try:
        run(options, work)
    except KeyboardInterrupt as e:
        if not follow:
            raise
        raise SystemExit(EXIT_INTERRUPTED) from e
    printer.end()


def _chosen(partitions: tuple[TopicPartition, ...], numbers: tuple[int, ...]) -> list[TopicPartition]:
    missing = set(numbers) - {each.partition for each in partitions}
    if missing:
        text = f"the topic has no partition {min(missing)}: it has {len(partitions)}, which count from 0"
        raise CliError(text, EXIT_USAGE)
    return [each for each in partitions if not numbers or each.partition in numbers]


async def _read(consumer: Consumer, printer: Printer, patience_s: float, max_records: int | None, follow: bool) -> None:
    """Prints records until the ends, the maximum, or for ever."""
    ends = {}
    if not follow:
        try:
            ends = await consumer.end_offsets(consumer.assignment, patience_s)
        except TimeoutError as e:
            raise CliError(f"{e}. `quorumctl topics describe` shows the leaders", EXIT_TIMEOUT) from e
    idle_s = 0.0
    while True:
        room = None if max_records is None else min(max_records - printer.count, consumer.config.max_poll_records)
        if room == 0 or (not follow and not _unfinished(consumer, ends)):
            return
        records = await consumer.poll(_POLL_S, room)
        printer.show(records)
        idle_s = 0.0 if records else idle_s + _POLL_S
        if not follow and idle_s >= patience_s and (left := _unfinished(consumer, ends)):
            names = ", ".join(f"{each.topic}-{each.partition}" for each in left[:5])
            text = f"no records of {names} came for {patience_s:g} s, although there are more; the command ends early"
            raise CliError(f"{text}. `quorumctl topics describe` shows the leaders", EXIT_TIMEOUT)


def _unfinished(consumer: Consumer, ends: dict[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions whose ends have not been reached."""
    return [key for key, end in ends.items() if (at := consumer.position(key)) is None or at < end]


class Printer:
    """Prints records: at once, or in one document at the end."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._rows: list[dict[str, Any]] = []
        self.count = 0

    def show(self, records: list[ConsumerRecord]) -> None:
        if records and self._output == "table":
            lines = [] if self.count else ["\t".join(TITLES)]
            click.echo("\n".join([*lines, *map(line_of, records)]))
        elif self._output == "jsonl":
            for each in records:
                click.echo(json_text(row_of(each)))
        else:
            self._rows += map(row_of, records)
        self.count += len(records)

    def end(self) -> None:
        if self._output in ("json", "yaml"):
            emit(self._output, {"records": self._rows}, rows="records")
        elif self._output == "table" and not self.count:
            click.echo("\t".join(TITLES))
