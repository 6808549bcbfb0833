"""The log directories of a simulated broker: its data plane assigns replicas to them, and now and then one of them fails.

The agent's own `ReplicaDirectories` tells the controllers, over the network that lies. A failed directory stays so until the next
process, which mostly finds it mended; while the disk fails the data plane has nothing of it. A broker whose last directory has
failed ends its process.

Now and then a broker says what no controller may record: a directory of another broker, or something under an earlier epoch.
"""

import random
from typing import TYPE_CHECKING, Final

from broker_agent.session.replica_directories import (
    Assignment,
    AssignmentResult,
    DirectoryLimits,
    ReplicaDirectories,
    recorded_directory,
)
from metadata_log.format.ids import UNASSIGNED_DIRECTORY, NodeId, Uuid
from quorum.controller.protocol.directory_commands import (
    AssignReplicasToDirs,
    AssignReplicasToDirsReply,
    DirectoryAssignment,
)
from quorum.runtime.protocol.world import Answer, Submission

if TYPE_CHECKING:
    from tests.sim.nodes.brokers import SimBroker

DIRECTORIES: Final = 3
ACT_EVERY_MS: Final = 120.0
LIMITS: Final = DirectoryLimits(assignments_max=6, backoff_ms=50, backoff_max_ms=800, timeout_ms=1_000)
ASSIGNED_MAX: Final = 8
ASSIGN_CHANCE: Final = 0.7
COPY_CHANCE: Final = 0.05
WRONG_CHANCE: Final = 0.05
MENDED_CHANCE: Final = 0.7


def directory_of(broker_id: NodeId, number: int) -> Uuid:
    """Directory 0 is the only one of a broker that has no more."""
    return bytes([number, *bytes(7), *broker_id.to_bytes(8, "big")])


class Directories:
    """One broker's directories, over all its processes."""

    def __init__(self, broker: "SimBroker") -> None:
        self._broker = broker
        self._dice = random.Random(f"{broker.cluster.seed} {broker.name} directories")
        self._fail_chance = broker.cluster.options.directory_loss_chance
        count = DIRECTORIES if broker.cluster.options.directories else 1
        self._all = tuple(directory_of(broker.broker_id, number) for number in range(count))
        self._broken: set[Uuid] = set()
        self.sound = self._all
        """The directories of this process."""
        self.agent = ReplicaDirectories(broker.broker_id, self.sound, LIMITS)
        self._asked = 0
        self._asked_until_ms: int | None = None

    def booted(self) -> None:
        """Another process begins, with the directories that are sound or mended."""
        chance = 1.0 if self._broker.cluster.is_calm else MENDED_CHANCE
        self._broken = {each for each in sorted(self._broken) if self._dice.random() >= chance}
        if len(self._broken) == len(self._all):
            self._broken.clear()
        self.sound = tuple(each for each in self._all if each not in self._broken)
        self.agent = ReplicaDirectories(self._broker.broker_id, self.sound, LIMITS)
        self._asked_until_ms = None
        if len(self._all) > 1 or self._broker.data is not None:
            self._later()

    def _later(self) -> None:
        broker, boot = self._broker, self._broker.boot

        def act() -> None:
            if broker.boot == boot and broker.is_up:
                if not broker.paused and not broker.stopping and not broker.cluster.is_idle:
                    self._act()
                self._later()

        broker.cluster.schedule(self._dice.expovariate(1 / ACT_EVERY_MS), act)

    def _act(self) -> None:
        broker, now_ms = self._broker, self._broker.clock.now_ms()
        image, epoch = broker.store.image, broker.session.broker_epoch
        if self.agent.end_reason(image, epoch, now_ms) is not None:
            broker.cluster.coverage["broker ended without a log directory"] += 1
            broker.crash(power_cut=False)
            return
        if self._asked_until_ms is not None and now_ms >= self._asked_until_ms:
            self._asked_until_ms = None
            self.agent.failed(now_ms)
        if broker.data is None:
            if not broker.cluster.is_calm and self._dice.random() < self._fail_chance:
                self._fail(now_ms)
            self._place_replicas()
        wanted = self.agent.next(image, epoch, now_ms)
        if wanted and epoch is not None:
            self._asked_until_ms = now_ms + LIMITS.timeout_ms
            self._send(epoch, wanted)
        elif epoch is not None and broker.data is None and self._dice.random() < WRONG_CHANCE:
            self._send_wrong(epoch)

    def _fail(self, now_ms: int) -> None:
        sound = [each for each in self.sound if each not in self.agent.offline]
        in_use = self._in_use()
        full = [each for each in sound if each in in_use] or (sound if self._dice.random() < 0.3 else [])
        if full and (len(sound) > 1 or self._dice.random() < 0.2):
            lost = self._dice.choice(full)
            self._broken.add(lost)
            self.agent.fail(lost, now_ms)
            self._broker.cluster.laws.directories.fails(lost)
            self._broker.cluster.coverage["log directory failed"] += 1

    def failed(self, directory: Uuid, now_ms: int) -> None:
        """The data plane has lost a directory, until the next process."""
        self._broken.add(directory)
        self.agent.fail(directory, now_ms)
        self._broker.cluster.laws.directories.fails(directory)

    def _in_use(self) -> set[Uuid | None]:
        """The directories that the image has for replicas of the broker."""
        image, broker_id = self._broker.store.image, self._broker.broker_id
        return {
            recorded_directory(image, (topic_id, partition), broker_id)
            for topic_id in image.topics_of_broker(broker_id)
            for partition in image.topics_by_id[topic_id].partitions_on(broker_id)
        }

    def _place_replicas(self) -> None:
        """The data plane has its replicas in sound directories: new ones, and after a while copies of those in a broken one."""
        image, broker_id = self._broker.store.image, self._broker.broker_id
        sound = [each for each in self.sound if each not in self.agent.offline]
        if not sound or self._dice.random() >= ASSIGN_CHANCE:
            return
        placed = 0
        copies = self._broker.cluster.is_calm or self._dice.random() < COPY_CHANCE
        for topic_id in image.topics_of_broker(broker_id):
            for partition in image.topics_by_id[topic_id].partitions_on(broker_id):
                where = recorded_directory(image, (topic_id, partition), broker_id)
                is_new = where == UNASSIGNED_DIRECTORY
                if where not in sound and (is_new or copies) and placed < ASSIGNED_MAX:
                    self.agent.assign(self._dice.choice(sound), [(topic_id, partition)])
                    placed += 1

    def _send_wrong(self, epoch: int) -> None:
        """A directory of the next broker, or an earlier epoch."""
        image, broker_id = self._broker.store.image, self._broker.broker_id
        topics = sorted(image.topics_of_broker(broker_id))
        if not topics:
            return
        topic_id = self._dice.choice(topics)
        directory = directory_of(broker_id + self._dice.randrange(2), 0)
        self._broker.cluster.coverage["wrong assignment to a directory"] += 1
        wrong = (Assignment(topic_id, 0, directory),)
        self._send(epoch - (directory in self._all), wrong, is_own=False)

    def _send(self, epoch: int, wanted: tuple[Assignment, ...], *, is_own: bool = True) -> None:
        broker, boot = self._broker, self._broker.boot
        target, network = broker.target, broker.cluster.network
        self._asked += is_own
        number = self._asked
        command = AssignReplicasToDirs(broker.broker_id, epoch, tuple(DirectoryAssignment(*each) for each in wanted))

        def arrive(answer: Answer) -> None:
            if is_own and broker.is_up and broker.boot == boot and number == self._asked:
                self._answered(answer)

        network.carry(
            broker.name,
            target.name,
            lambda: target.ask(
                lambda reply_to, now_ms: Submission(command, reply_to, now_ms + LIMITS.timeout_ms),
                lambda answer: network.carry(target.name, broker.name, lambda: arrive(answer)),
                f"AssignReplicasToDirs {broker.name}",
            ),
        )

    def _answered(self, answer: Answer) -> None:
        if self._asked_until_ms is None:
            return
        self._asked_until_ms = None
        now_ms = self._broker.clock.now_ms()
        if isinstance(answer, AssignReplicasToDirsReply):
            self._broker.cluster.coverage["assignment to directories answered"] += 1
            results = tuple(AssignmentResult(*each) for each in answer.results)
            self.agent.answered(answer.offset, results, now_ms)
        else:
            self.agent.failed(now_ms)
