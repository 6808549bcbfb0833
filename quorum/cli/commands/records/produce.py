"""`quorumctl produce`: writes each line of standard input as a record of a topic, and shows where the records are.

Example: `seq 3 | quorumctl produce orders --partition 0` prints that partition 0 has 3 records more, at the offsets 0 to 2.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from quorum.cli.commands.records.broker_clients import broker_addresses, run
from quorum.cli.commands.records.input_lines import input_lines
from quorum.cli.errors import EXIT_INTERRUPTED, EXIT_TIMEOUT, EXIT_USAGE, CliError, exit_code_of
from quorum.cli.options import Options, command
from quorum.cli.output import Column, emit
from quorum.cli.shared_options import INT32_MAX
from service_kit.process.clock import now_s

if TYPE_CHECKING:
    from metaquorum import Producer, RecordMetadata
    from service_kit.rpc.dial import Dialer

PROGRESS_S: Final = 2.0
"""The time between two lines of progress."""
_COLUMNS: Final = (
    Column("PARTITION", "partition"),
    Column("RECORDS", "records"),
    Column("FIRST_OFFSET", "first_offset"),
    Column("LAST_OFFSET", "last_offset"),
)


@click.command()
@click.argument("topic")
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Each line is a key, this text, and a value. Records with one key go to one partition, in order.",
)
@click.option(
    "--acks",
    type=click.Choice(("all", "1", "0")),
    default="all",
    show_default=True,
    help="all: a record is on the disks of all replicas in sync. 1: on the leader's disk. 0: nobody tells whether it arrived.",
)
@click.option("--partition", type=click.IntRange(0, INT32_MAX), metavar="N", help="Write to this partition only.")
@command
def produce(options: Options, topic: str, key_separator: str | None, acks: str, partition: int | None) -> None:
    """Writes each line of standard input as a record, and shows the offsets.

    Exit code 1 if a record was refused, and 5 if records were not acknowledged in time: these may have been written or not.
    --timeout is the time for the delivery of a record; default: 120 s.

    \b
    $ quorumctl produce orders --key-separator :
    """
    if key_separator == "":
        raise CliError("--key-separator needs a text, for example --key-separator :", EXIT_USAGE)
    if sys.stdin is None:
        raise CliError("standard input is closed, so there are no records to write", EXIT_USAGE)
    bootstrap = broker_addresses(options, topic)
    outcome = Outcome(topic)

    async def work(dialer: Dialer) -> None:
        from metaquorum import ClientConfig, Producer, ProducerConfig

        wait_ms = max(1, round(options.request_timeout_s * 1_000))
        within_ms = 120_000 if options.timeout_s is None else wait_ms
        config = ProducerConfig(
            acks="all" if acks == "all" else 1 if acks == "1" else 0,
            max_block_ms=max(wait_ms, within_ms),
            delivery_timeout_ms=within_ms + 5,
            request_timeout_ms=min(30_000, within_ms),
        )
        client_config = ClientConfig(request_timeout_ms=wait_ms)
        async with Producer(bootstrap, config=config, client_config=client_config, dial=dialer) as producer:
            await _write(producer, outcome, key_separator, partition)

    try:
        run(options, work)
    except KeyboardInterrupt as e:
        text = f"interrupted: {outcome.count:,} records were acknowledged; of the last lines some may have been written"
        raise CliError(text, EXIT_INTERRUPTED) from e
    outcome.show(options)


async def _write(producer: Producer, outcome: Outcome, separator: str | None, partition: int | None) -> None:
    """Sends all lines. The first error ends the reading; what was sent before is waited for."""
    try:
        await _send_lines(producer, outcome, separator, partition)
    except CliError as e:
        outcome.stop_with(e)


async def _send_lines(producer: Producer, outcome: Outcome, separator: str | None, partition: int | None) -> None:
    from metaquorum import SendError

    mark = None if separator is None else separator.encode()
    number = 0
    async for lines in input_lines(sys.stdin.buffer):
        for line in lines:
            number += 1
            key, value = None, line
            if mark is not None:
                key, found, value = line.partition(mark)
                if not found:
                    text = f"line {number} has no {separator!r}, so it was not written; {number - 1:,} lines before were sent"
                    raise CliError(text)
            try:
                sent = await producer.enqueue(outcome.topic, value, key=key, partition=partition)
            except SendError as e:
                outcome.refused(e)
                return
            sent.add_done_callback(outcome.note)
        outcome.tell_progress()
        if outcome.error is not None:
            return


class Outcome:
    """The places of the records that were acknowledged, and the first error."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self.error: CliError | None = None
        self._failed = 0
        self._places: dict[int, tuple[int, int | None, int | None]] = {}
        """For each partition the number of records, the first offset and the last."""
        self._told_s = now_s()

    def stop_with(self, error: CliError) -> None:
        """Notes why the reading has ended."""
        self.error = self.error or error

    def refused(self, error: BaseException) -> None:
        """Counts a record that was not delivered."""
        self._failed += 1
        self.error = self.error or _cli_error(error)

    def note(self, sent: asyncio.Future[RecordMetadata]) -> None:
        """Takes the end of one send."""
        if sent.cancelled():
            return
        error = sent.exception()
        if error is not None:
            self.refused(error)
            return
        place = sent.result()
        self.count += 1
        records, first, last = self._places.get(place.partition, (0, None, None))
        if place.offset is not None:
            first = place.offset if first is None else min(first, place.offset)
            last = place.offset if last is None else max(last, place.offset)
        self._places[place.partition] = (records + 1, first, last)

    def tell_progress(self) -> None:
        """Tells people how far a long input is."""
        if sys.stderr.isatty() and now_s() - self._told_s >= PROGRESS_S:
            self._told_s = now_s()
            click.echo(f"quorumctl: {self.count:,} records written", err=True)

    def show(self, options: Options) -> None:
        """Prints where the records are. Raises the first error afterwards."""
        rows: list[dict[str, Any]] = [
            {"partition": number, "records": records, "first_offset": first, "last_offset": last}
            for number, (records, first, last) in sorted(self._places.items())
        ]
        document = {"topic": self.topic, "records": self.count, "failed": self._failed, "partitions": rows}
        emit(options.output, document, rows="partitions", columns=_COLUMNS)
        if self.error is not None:
            raise self.error


def _cli_error(error: BaseException) -> CliError:
    from metaquorum import SendError

    if not isinstance(error, SendError):
        raise error
    code = EXIT_TIMEOUT if error.may_have_been_written else exit_code_of(error.code)
    return CliError(f"{error.code.name}: {error.message}", code)
