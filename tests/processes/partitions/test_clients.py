"""Producers, consumers and `quorumctl` against real brokers with records."""

import asyncio
import json
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from metaquorum import Consumer, ConsumerConfig, ConsumerRecord, FilePositions, LogTruncated, Producer, TopicPartition
from tests.ctrl_c import ctrl_c_ends_a_process
from tests.processes.conftest import until
from tests.processes.partitions.test_brokers import PARTITIONS, Store, store

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "consumer.md"
PROGRAM, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
EARLIEST = ConsumerConfig(auto_offset_reset="earliest")


class Ran(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


async def quorumctl(orders: Store, *words: object, stdin: str = "") -> Ran:
    """Runs a command as a user does, with the controllers' addresses in the environment."""
    environment = {**os.environ, "QUORUMCTL_BOOTSTRAP_CONTROLLER": orders.cluster.dev.layout.bootstrap}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "quorum.cli.main",
        *map(str, words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate(stdin.encode())
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


def brokers(orders: Store) -> list[str]:
    return [each.endpoint for each in orders.cluster.brokers.values()]


async def test_lines_that_were_produced_are_consumed(tmp_path: Path) -> None:
    """`produce` shows the offsets; `consume` shows the records, from all places that a user can name."""
    async with store(tmp_path) as orders:
        lines = "".join(f"k{number % 5}:{number}\n" for number in range(100))
        produced = await quorumctl(orders, "produce", "orders", "--key-separator", ":", "-o", "json", stdin=lines)
        assert produced.exit_code == 0, produced.stderr
        document = json.loads(produced.stdout)
        assert (document["records"], document["failed"]) == (100, 0)
        assert sum(each["last_offset"] + 1 for each in document["partitions"]) == 100

        consumed = await quorumctl(orders, "consume", "orders", "-o", "jsonl")
        assert consumed.exit_code == 0, consumed.stderr
        records = [json.loads(line) for line in consumed.stdout.splitlines()]
        by_key: dict[str, list[int]] = {}
        for each in records:
            by_key.setdefault(each["key"], []).append(int(each["value"]))
        assert by_key == {f"k{number}": list(range(number, 100, 5)) for number in range(5)}

        table = await quorumctl(orders, "consume", "orders", "--max-records", 3, "-b", brokers(orders)[0])
        assert [line.count("\t") for line in table.stdout.splitlines()] == [4] * 4
        busy = document["partitions"][0]
        rest = await quorumctl(
            orders, "consume", "orders", "--partition", busy["partition"], "--from", busy["last_offset"]
        )
        assert len(rest.stdout.splitlines()) == 2
        assert len((await quorumctl(orders, "consume", "orders", "--from", "end")).stdout.splitlines()) == 1
        assert len((await quorumctl(orders, "consume", "orders", "--from", "2100-01-01")).stdout.splitlines()) == 1
        whole = await quorumctl(orders, "consume", "orders", "--from", "2020-01-01T00:00:00Z", "-o", "json")
        assert len(json.loads(whole.stdout)["records"]) == 100

        positions = ("--positions", tmp_path / "positions")
        first = await quorumctl(orders, "consume", "orders", *positions, "--max-records", 30)
        second = await quorumctl(orders, "consume", "orders", *positions)
        assert [len(ran.stdout.splitlines()) - 1 for ran in (first, second)] == [30, 70]

        for words, code, text in (
            (("consume", "ghost"), 3, "there is no topic 'ghost'"),
            (("produce", "ghost"), 3, "there is no topic 'ghost'"),
            (("consume", "orders", "--partition", 77), 2, "no partition 77: it has 6"),
            (("consume", "orders", "-b", "127.0.0.1:1", "--timeout", 1), 5, "127.0.0.1:1"),
        ):
            ran = await quorumctl(orders, *words, stdin="x\n")
            assert (ran.exit_code, text in ran.stderr) == (code, True), ran
        bare = await quorumctl(orders, "produce", "orders", "--key-separator", ":", stdin="a:1\nb\nc:3\n")
        assert (bare.exit_code, bare.stdout.splitlines()[1].split("\t")[1]) == (1, "1"), bare
        assert "line 2 has no ':'" in bare.stderr


async def test_each_acknowledged_record_is_read_once_while_brokers_are_killed(tmp_path: Path) -> None:
    """A producer and a consumer run on; one broker after the other is killed -9 and comes back."""
    async with store(tmp_path) as orders:
        acknowledged: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
        read: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
        stop = asyncio.Event()

        async def write() -> None:
            async with Producer(brokers(orders)) as producer:
                number = 0
                while not stop.is_set():
                    sends = [
                        asyncio.create_task(producer.send("orders", b"%d" % (number + i), partition=i % PARTITIONS))
                        for i in range(20 * PARTITIONS)
                    ]
                    for i, sent in enumerate(await asyncio.gather(*sends)):
                        assert sent.offset is not None
                        acknowledged[sent.partition].append((sent.offset, b"%d" % (number + i)))
                    number += len(sends)

        async def consume() -> None:
            async with Consumer(brokers(orders), config=EARLIEST) as consumer:
                consumer.assign(await consumer.partitions_of("orders"))
                async for record in consumer:
                    read[record.partition].append((record.offset, record.value or b""))

        def count() -> int:
            return sum(map(len, read.values()))

        async def more_than(wanted: int) -> bool | None:
            for task in (writing, reading):
                if task.done():
                    task.result()
            return True if count() > wanted else None

        writing, reading = asyncio.create_task(write()), asyncio.create_task(consume())
        await until(lambda: more_than(2_000))
        for victim in list(orders.cluster.brokers)[:2]:
            await orders.cluster.ends(orders.cluster.brokers[victim])
            await until(partial(more_than, count() + 2_000), 40)
            orders.cluster.dev.start(f"broker-{victim}")
            await orders.cluster.online(victim)
            await orders.full_isrs()
        stop.set()
        await writing
        total = sum(map(len, acknowledged.values()))
        await until(lambda: more_than(total - 1), 30)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        for number in range(PARTITIONS):
            assert [offset for offset, _ in read[number]] == list(range(len(read[number])))
            assert read[number] == acknowledged[number], f"{number}: {len(read[number])} {len(acknowledged[number])}"


async def test_a_consumer_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """kill -9 of `consume --follow`: the next run skips nothing. Ctrl-C commits all that was shown."""
    async with store(tmp_path) as orders:
        lines = "".join(f"{number}\n" for number in range(3_000))
        produced = await quorumctl(orders, "produce", "orders", "--partition", 0, stdin=lines)
        assert produced.exit_code == 0, produced.stderr
        seen: list[int] = []

        async def follow(until_offset: int, ending: signal.Signals) -> int:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "quorum.cli.main", "consume", "orders", "--follow"),
                *("--positions", str(tmp_path / "positions")),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "QUORUMCTL_BOOTSTRAP_SERVER": ",".join(brokers(orders))},
                preexec_fn=ctrl_c_ends_a_process,
            )
            assert process.stdout is not None
            async with asyncio.timeout(30):
                while not seen or seen[-1] < until_offset:
                    line = (await process.stdout.readline()).decode().split("\t")
                    seen.extend([int(line[1])] if line[0] == "0" else [])
                process.send_signal(ending)
                rest = (await process.stdout.read()).decode().splitlines()
                seen.extend(
                    int(line.split("\t")[1]) for line in rest if line.startswith("0\t") and line.count("\t") == 4
                )
                return await process.wait()

        assert await follow(1_000, signal.SIGKILL) == -signal.SIGKILL
        seen.append(-1)
        assert await follow(2_999, signal.SIGINT) == 130
        assert set(seen) == {-1, *range(3_000)}
        last = await quorumctl(orders, "consume", "orders", "--positions", tmp_path / "positions")
        assert last.stdout.splitlines() == ["PARTITION\tOFFSET\tTIME\tKEY\tVALUE"]


async def test_positions_outlive_the_program_and_offsets_can_be_asked_for(tmp_path: Path) -> None:
    async with store(tmp_path) as orders:
        async with Producer(brokers(orders)) as producer:
            for number in range(50):
                await producer.send("orders", b"%d" % number, partition=2)
        partition = TopicPartition("orders", 2)
        path = tmp_path / "positions"
        async with Consumer(brokers(orders), positions=FilePositions(path), config=EARLIEST) as consumer:
            assert await consumer.end_offsets([partition]) == {partition: 50}
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.offsets_for_times({partition: 0}) == {partition: 0}
            consumer.assign([partition])
            assert [record.offset for record in await first(consumer, 20)] == list(range(20))
        async with Consumer(brokers(orders), positions=FilePositions(path), config=EARLIEST) as consumer:
            consumer.assign([partition])
            assert [record.offset for record in await first(consumer, 30)] == list(range(20, 50))
        strict = ConsumerConfig(auto_offset_reset="none")
        async with Consumer(brokers(orders), config=strict) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 40, leader_epoch=1_000)  # no leader has had this epoch
            with pytest.raises(LogTruncated):
                await consumer.poll(10)


async def test_the_program_of_the_page_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program in docs/consumer.md, as a user copies it. Only the address differs."""
    monkeypatch.chdir(tmp_path)
    async with store(tmp_path) as orders:
        await quorumctl(orders, "produce", "orders", "--partition", 3, "--key-separator", ":", stdin="a:1\nb:2\n")
        names: dict[str, Any] = {}
        exec(PROGRAM.replace("127.0.0.1:9092", brokers(orders)[0]).removesuffix("asyncio.run(main())\n"), names)
        task = asyncio.ensure_future(names["main"]())
        printed = ""

        async def both() -> bool | None:
            nonlocal printed
            assert not task.done(), task.exception()
            printed += capsys.readouterr().out
            return True if printed.count("\n") == 2 else None

        await until(both)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert printed == "3 0 b'a' b'1'\n3 1 b'b' b'2'\n"
        assert (tmp_path / "positions.json").is_file()


async def first(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """The next records, one by one."""
    found = []
    async for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found
