"""One random history of a consumer: leaders move, logs are cut and deleted, brokers die and stay silent, views are old, and the
program polls, seeks, pauses and restarts.

The laws:

    1. A record is delivered only if it was committed at some time: below a high watermark, with the value of that time.
    2. In one run of positions the offsets of a partition follow each other without a gap. A seek, a restart, a truncation and the
       deletion of records that the program has not read begin a new run.
    3. What is committed is what the program has done with: none of the records of the last poll.
    4. One fetch is in flight to a leader at most.
    5. Twenty seconds after the last fault, the program has read the whole log: the last value that it got at each offset is that
       of the log, from the place where its reading began or the log begins now.
    6. The program never hears of an error: the leaders answer well, and a policy says where to go on.
"""

import random
from typing import Final

from clients.consumer.consumer_core import ConsumerCore
from clients.consumer.effects import Fetch
from clients.consumer.errors import ConsumerError
from clients.consumer.positions import Position, StoredPosition
from clients.metadata.cluster import Cluster, TopicPartition
from clients.partition_values import EndOfLog
from tests.clients.consumer.leaders import BROKERS, key
from tests.clients.consumer.world import Asked, World

PARTITIONS: Final = 3


class Broken(AssertionError):
    """A law was broken."""


class History(World):
    """A world with dice."""

    def __init__(self, seed: int, core: type[ConsumerCore] = ConsumerCore, *, has_unclean: bool = True) -> None:
        super().__init__(
            PARTITIONS, core=core, request_timeout_ms=2_000, max_partition_fetch_bytes=600, fetch_max_bytes=900
        )
        self.dice = random.Random(seed)
        self.kind = core
        self.has_unclean = has_unclean
        self.knows_news = False
        self.views: list[Cluster] = [self.leaders.cluster()]
        self.store: dict[TopicPartition, StoredPosition] = {}
        self.committed: dict[tuple[int, int], set[bytes | None]] = {}
        """For a partition and an offset the values that were committed there."""
        self.expected: list[int | None] = [None] * PARTITIONS
        """The next offset of each run; None: any."""
        self.taken: list[int | None] = [None] * PARTITIONS
        """The value of `expected` before the last poll: the program has done with the records below."""
        self.last: list[dict[int, bytes | None]] = [{} for _ in range(PARTITIONS)]
        self.begun_at = [0] * PARTITIONS
        self.written: set[tuple[int, int, int]] = set()
        """Partition, epoch and offset of each record: one leader writes one record there."""
        self.warned = 0
        self.delivered = self.truncations = self.restarts = 0
        self.late: list[Asked] = []
        self.core.assign(key(number) for number in range(PARTITIONS))

    # --- faults ------------------------------------------------------------------------------------------------------

    def change(self) -> None:
        """One random event at the leaders."""
        dice, number = self.dice, self.dice.randrange(PARTITIONS)
        log = self.leaders.logs[number]
        match dice.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                for _ in range(dice.randint(1, 4)):
                    self.append(number)
            case 5:
                log.high_watermark = log.end
            case 6:
                self.leaders.elect(
                    dice.choice(BROKERS), partition=number, cut=max(log.high_watermark, log.end - dice.randint(0, 3))
                )
            case 7:
                self.leaders.elect(None, partition=number)
            case 8 if self.has_unclean:
                self.lose_records(number)
            case 9:
                log.retain_from(dice.randint(log.start.offset, log.high_watermark))
            case 10:
                self.dead = {dice.choice(BROKERS)} if dice.random() < 0.5 else set()
            case 11:
                self.silent = {dice.choice(BROKERS)} if dice.random() < 0.5 else set()
        self.note_committed(number)
        self.views.append(self.leaders.cluster())

    def append(self, number: int) -> None:
        log = self.leaders.logs[number]
        values = [f"{number}/{log.epoch}/{log.end + i}/{self.dice.random()}" for i in range(self.dice.randint(1, 3))]
        self.written |= {(number, log.epoch, log.end + i) for i in range(len(values))}
        self.leaders.append(*values, partition=number, commit=self.dice.random() < 0.7)

    def lose_records(self, number: int) -> None:
        """An unclean election. The new leader may have more records of an older epoch than the old one."""
        log = self.leaders.logs[number]
        boundaries = [log.start.offset, *(batch.end_offset for batch in log.batches)]
        self.leaders.elect(self.dice.choice(BROKERS), partition=number, cut=self.dice.choice(boundaries[-4:]))
        epoch, older = log.epoch, log.shape.last_epoch
        if log.batches and (number, older, log.end) not in self.written and self.dice.random() < 0.7:
            log.epoch = older
            for _ in range(self.dice.randint(1, 5)):
                self.append(number)
            log.epoch = epoch

    def note_committed(self, number: int) -> None:
        for offset, value in self.leaders.logs[number].records():
            self.committed.setdefault((number, offset), set()).add(value)

    # --- the program -------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """One random deed of the program."""
        dice, number = self.dice, self.dice.randrange(PARTITIONS)
        match dice.randrange(12):
            case 0:
                offset = dice.randint(self.leaders.logs[number].start.offset, self.leaders.logs[number].high_watermark)
                self.core.seek(key(number), Position(offset))
                self.begin_run(number, offset)
            case 1:
                self.core.seek_to(key(number), EndOfLog.EARLIEST)
                self.begin_run(number, None)
            case 2:
                self.core.pause(key(number), dice.random() < 0.4)
            case 3:
                self.commit()
            case 4 if dice.random() < 0.3:
                self.restart()
            case _:
                self.take(dice.choice((1, 2, 5, 50)))

    def begin_run(self, number: int, offset: int | None) -> None:
        self.expected[number] = offset
        self.taken[number] = offset
        self.begun_at[number] = self.leaders.logs[number].start.offset if offset is None else offset
        self.last[number].clear()

    def restart(self) -> None:
        """The program is killed; the next run has what the store has."""
        self.hear()
        self.restarts += 1
        self.core = self.kind(self.config, random.Random(self.dice.random()), self.store)
        self.core.follow(self.views[-1])
        self._parked.clear()
        self.late.clear()  # these answers go to the process that was killed
        self.core.assign(key(number) for number in range(PARTITIONS))
        for number in range(PARTITIONS):
            stored = self.store.get(key(number))
            # A store has one epoch: the run before may have read others, which the new process does not know.
            self.begin_run(number, None if stored is None else stored.offset)

    def commit(self) -> None:
        """Law 3: none of the records of the last poll counts."""
        self.hear()
        pending = self.core.commits.begin(self.now_ms)
        for part, stored in pending.items():
            taken = self.taken[part.partition]
            if taken is not None and stored.offset > taken:
                raise Broken(f"law 3: {stored} is committed, and the program had done with the records below {taken}")
        self.core.commits.done(pending)
        self.store.update(pending)

    def take(self, limit: int) -> None:
        self.hear()
        self.taken = list(self.expected)
        try:
            records = self.core.poll(limit)
        except ConsumerError as e:
            raise Broken(f"law 6: {e}") from e
        for record in records:
            number, offset = record.partition, record.offset
            self.delivered += 1
            if record.value not in self.committed.get((number, offset), set()):
                raise Broken(f"law 1: {number}@{offset} {record.value!r} was never committed")
            expected = self.expected[number]
            if expected is not None and offset != expected:
                raise Broken(f"law 2: partition {number} goes on at {offset}, and not at {expected}")
            self.expected[number] = offset + 1
            self.last[number][offset] = record.value

    def hear(self) -> None:
        """A warning of the consumer begins a new run."""
        for text in self.warnings[self.warned :]:
            number = int(text.split(":")[0].rsplit("-", 1)[1])
            self.expected[number] = self.taken[number] = None
            self.truncations += "was cut" in text
        self.warned = len(self.warnings)

    # --- time --------------------------------------------------------------------------------------------------------

    def _send(self, effect: Asked) -> None:
        busy = [
            asked for asked, _, _ in self._parked.values() if isinstance(asked, Fetch) and isinstance(effect, Fetch)
        ]
        if any(asked.node.node_id == effect.node.node_id for asked in busy):
            raise Broken("law 4: two fetches are in flight to one leader")
        super()._send(effect)

    def answer(self, number: int) -> None:
        """Some answers are kept, and come much later, from a core that may have given them up."""
        if self.dice.random() < 0.05:
            self.late.append(self._parked.pop(number)[0])
        else:
            super().answer(number)

    def play(self, events: int) -> None:
        for _ in range(events):
            self.change()
            self.core.follow(self.dice.choice(self.views[-3:]))
            self.run(self.dice.choice((1, 5, 20, 100, 700)))
            self.act()
            if self.late and self.dice.random() < 0.3:
                self.reply(self.late.pop(0))
        self.heal()

    def heal(self) -> None:
        """Twenty seconds without faults."""
        self.dead, self.silent, self.late, self.knows_news = set(), set(), [], True
        for number, log in enumerate(self.leaders.logs):
            if log.leader is None:
                self.leaders.elect(1, partition=number)
            log.high_watermark = log.end
            self.note_committed(number)
            self.core.pause(key(number), False)
        self.core.follow(self.leaders.cluster())
        for _ in range(20):
            self.run(1_000)
            for _ in range(50):
                self.take(50)
        for number, log in enumerate(self.leaders.logs):
            if self.expected[number] not in (None, log.end) or self.core.position(key(number)) != log.end:
                raise Broken(f"law 5: partition {number} is at {self.core}, and its log ends at {log.end}")
            for offset, value in log.records():
                got = self.last[number].get(offset, value if offset < self.begun_at[number] else None)
                if got != value:
                    raise Broken(f"law 5: {number}@{offset} has {value!r}, and the program has {got!r}")
