"""A process tells the controllers where its replicas are, until the image shows it; and it does not hide a failed disk."""

from dataclasses import replace

import pytest

from broker_agent.session.replica_directories import Assignment, AssignmentResult, DirectoryLimits, ReplicaDirectories
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid
from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.directory_commands import (
    AssignReplicasToDirs,
    AssignReplicasToDirsReply,
    DirectoryAssignment,
)
from quorum.controller.protocol.topic_commands import DeleteTopics
from tests.quorum.controller.cluster import Cluster, registration

A, B = b"A" * 16, b"B" * 16
LIMITS = DirectoryLimits(assignments_max=2)


class Process:
    """Broker 0 with the directories A and B, and a controller that judges. Its image is the cluster's unless `image` is set."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster(2)
        self.cluster.now_ms += 60_000
        self.cluster.run(replace(registration(0, life=2), log_dirs=(A, B)))
        self.cluster.lives[0] = 2
        self.cluster.contact(0)
        self.cluster.assign("t", *[(0, 1)] * 5)
        self.topic_id = self.cluster.partitions("t")[0].topic_id
        self.directories = ReplicaDirectories(0, (A, B), LIMITS)
        self.image: MetadataImage | None = None
        self.now_ms = 0

    @property
    def epoch(self) -> int:
        return self.cluster.image.brokers[0].broker_epoch

    def put(self, directory: Uuid, *partitions: int) -> None:
        self.directories.assign(directory, [(self.topic_id, each) for each in partitions])

    def next(self) -> tuple[Assignment, ...]:
        return self.directories.next(self.image or self.cluster.image, self.epoch, self.now_ms)

    def ask(self, asked: tuple[Assignment, ...]) -> list[ErrorCode]:
        """The controller judges, and the broker hears the answer."""
        command = AssignReplicasToDirs(0, self.epoch, tuple(DirectoryAssignment(*each) for each in asked))
        reply = self.cluster.ask(command, AssignReplicasToDirsReply)
        results = tuple(AssignmentResult(*each) for each in reply.results)
        self.directories.answered(reply.offset, results, self.now_ms)
        return [each.code for each in results]

    def tell_all(self) -> None:
        while asked := self.next():
            self.ask(asked)
            self.now_ms += LIMITS.backoff_max_ms

    def report(self) -> None:
        """A fetch."""
        self.cluster.contact(0, offline_log_dirs=self.directories.offline)

    def recorded(self) -> list[Uuid]:
        states = self.cluster.partitions("t")
        return [each.directories[0] if each.directories else UNASSIGNED_DIRECTORY for each in states]

    def end_reason(self) -> str | None:
        return self.directories.end_reason(self.cluster.image, self.epoch, self.now_ms)


def test_replicas_are_told_in_parts_until_the_image_shows_them() -> None:
    """One request at a time, each with as many replicas as a controller takes."""
    process = Process()
    process.put(A, 0, 1, 2)
    process.put(B, 3)
    first = process.next()
    assert [each.partition for each in first] == [0, 1]
    assert process.next() == (), "one request is in flight"
    assert process.ask(first) == [ErrorCode.NONE] * 2
    process.tell_all()
    assert process.recorded() == [A, A, A, B, UNASSIGNED_DIRECTORY]
    assert process.directories.untold == 0


def test_a_request_without_an_answer_is_sent_again_ever_more_rarely() -> None:
    process = Process()
    process.put(A, 0)
    pauses = []
    for _ in range(8):
        asked = process.next()
        assert asked
        process.directories.failed(process.now_ms)
        assert process.next() == ()
        deadline_ms = process.directories.next_deadline_ms()
        assert deadline_ms is not None
        pauses.append(deadline_ms - process.now_ms)
        process.now_ms = deadline_ms
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    process.tell_all()
    assert process.recorded()[0] == A


def test_an_older_image_does_not_ask_again() -> None:
    """The answer came before the metadata: the broker waits for the image that shows the change."""
    process = Process()
    process.image = process.cluster.image
    process.put(A, 0)
    process.ask(process.next())
    assert process.next() == ()
    assert process.directories.untold == 1
    process.image = None
    assert (process.next(), process.directories.untold) == ((), 0)


def test_a_replica_that_is_gone_is_forgotten() -> None:
    """By the image, or by a controller that knows better than an older image."""
    process = Process()
    process.put(A, 0)
    process.image = process.cluster.image
    process.cluster.run(DeleteTopics(("t",)))
    assert process.ask(process.next()) == [ErrorCode.UNKNOWN_TOPIC_ID]
    process.image = None
    process.put(A, 1)
    assert (process.next(), process.directories.untold) == ((), 0)


def test_nothing_is_told_before_the_registration_is_in_the_image_or_below_its_level() -> None:
    """Nor by a process that is not registered at the moment."""
    old = Process(Cluster(2, config=ControllerConfig(bootstrap_metadata_version=1)))
    old.put(A, 0)
    assert old.next() == ()
    process = Process()
    process.put(A, 0)
    assert process.directories.next(process.cluster.image, None, 0) == ()
    assert process.directories.next(process.cluster.image, process.epoch + 1, 0) == ()
    assert process.next() != ()


def test_another_registration_tells_everything_again() -> None:
    """The controllers may have been recovered from an older log, without the assignments."""
    process = Process()
    process.put(A, 0, 1)
    process.tell_all()
    process.cluster.run(replace(registration(0, life=3), log_dirs=(A, B), previous_incarnation_id=b"\x02" + bytes(15)))
    process.put(B, 2)
    assert [each.partition for each in process.next()] == [2], "the image shows the others"


def test_an_unknown_directory_is_a_mistake_of_the_data_plane() -> None:
    process = Process()
    with pytest.raises(ValueError, match="was started without the log directory"):
        process.put(b"C" * 16, 0)
    with pytest.raises(ValueError, match="nothing was noted"):
        process.directories.fail(b"C" * 16, 0)


def test_a_failed_directory_is_in_every_fetch_and_its_recorded_replicas_need_no_word() -> None:
    """The controller knows which replicas are in it."""
    process = Process()
    process.put(A, 0)
    process.tell_all()
    process.directories.fail(A, process.now_ms)
    assert process.directories.offline == (A,)
    process.report()
    assert process.cluster.image.brokers[0].log_dirs == (B,)
    assert process.cluster.leaders("t") == [1, 0, 0, 0, 0]
    assert process.next() == ()
    assert process.end_reason() is None


def test_a_replica_whose_log_is_damaged_is_told_to_be_lost() -> None:
    """Its directory works, and keeps the other replicas. After a repair the replica is in its directory again."""
    process = Process()
    process.put(A, 0, 1)
    process.tell_all()
    process.put(LOST_DIRECTORY, 0)
    process.tell_all()
    assert process.recorded()[:2] == [LOST_DIRECTORY, A]
    process.put(A, 0)
    process.tell_all()
    assert process.recorded()[:2] == [A, A]


def test_a_replica_that_was_not_told_in_time_is_lost() -> None:
    """Its assignment to A is in flight, or waits, when A fails. The controllers hear of the loss before or after."""
    process = Process()
    process.put(A, 0)
    in_flight = process.next()
    process.put(A, 1)
    process.directories.fail(A, process.now_ms)
    process.put(A, 2)
    process.report()
    assert process.ask(in_flight) == [ErrorCode.LOG_DIR_NOT_FOUND]
    process.now_ms += LIMITS.backoff_ms
    process.tell_all()
    assert process.recorded()[:3] == [LOST_DIRECTORY] * 3
    assert process.cluster.leaders("t") == [1, 1, 1, 0, 0]
    process.put(B, 0)
    process.tell_all()
    assert process.recorded()[0] == B, "the data plane has copied the replica"


def test_a_failure_that_cannot_be_reported_ends_the_process() -> None:
    """After 30 s, as in Kafka: the controllers must not believe in a disk that has failed."""
    process = Process()
    process.directories.fail(A, 1_000)
    assert process.directories.next_deadline_ms() == 31_000
    process.now_ms = 30_999
    assert process.end_reason() is None
    process.now_ms = 31_000
    reason = process.end_reason()
    assert reason is not None and "could not be reported within 30000 ms (log.dir.failure.timeout.ms)" in reason
    process.report()
    assert process.end_reason() is None


def test_the_last_directory_ends_the_process_once_the_controllers_know() -> None:
    process = Process()
    process.directories.fail(A, 0)
    process.directories.fail(B, 0)
    assert process.end_reason() is None
    process.report()
    assert process.cluster.image.brokers[0].fenced
    assert process.end_reason() == "the last log directory has failed"
