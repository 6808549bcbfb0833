"""Which events start a turn, and which events wait for another turn."""

from collections import deque

from metadata_log.disk.flush_ticket import FlushTicket
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import BROKER_RESOURCE
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.runtime.flusher import Flusher
from quorum.runtime.inbox import KEPT_PER_TURN_MAX, Inbox
from quorum.runtime.protocol.jobs import FlushJob
from quorum.runtime.protocol.requests import SessionName
from quorum.runtime.protocol.world import JobDone, KeepAlive, Read, Submission
from service_kit.process.clock import RealClock
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of


def change(lone: LoneNode) -> Submission:
    operation = ConfigOperation(ConfigOperationKind.SET, "min.insync.replicas", str(lone.now_ms))
    command = AlterConfigs((ConfigAlteration(BROKER_RESOURCE, "", (operation,)),))
    return Submission(command, lone.new_reply_to(), lone.now_ms + 10_000)


def active_leader(*others: int) -> LoneNode:
    """Node 1, the active controller of these voters and itself; every record is committed."""
    lone = LoneNode(formatted_disk(voters_of([1, *others])))
    lone.elect()
    while not lone.node.active.on or lone.node.awaits_majority:
        lone.run_until_idle()
        for node_id in others:
            fetched(lone, node_id)
        lone.turn()
    return lone


def fetched(lone: LoneNode, node_id: int) -> None:
    """Voter `node_id` holds the whole log of the leader."""
    lone.fetched_by(ReplicaKey(node_id, directory_id(node_id)), lone.node.log.end)


def test_a_change_starts_a_turn_only_if_no_earlier_change_waits_for_its_majority() -> None:
    """A read starts a turn in any case: the read round is in no batch."""
    lone = active_leader(2, 3)
    inbox = Inbox(lone.node, RealClock(), deque())
    assert inbox.add(change(lone))
    lone.turn(*inbox.take(0))

    assert not inbox.add(change(lone))
    assert inbox.add(Read(lone.new_reply_to(), lone.now_ms + 10_000))


def test_a_flush_that_can_commit_nothing_starts_no_turn() -> None:
    """Neither follower holds the leader's new record: the turn of the next fetch takes the flush along."""
    lone = active_leader(2, 3)
    flushes: deque[JobDone] = deque()
    inbox = Inbox(lone.node, RealClock(), flushes)
    lone.turn(change(lone))
    (flush,) = lone.jobs
    flush.run()
    flushes.append(JobDone(flush))

    assert not inbox.awaits_flush and not inbox.needs_turn
    fetched(lone, 2)
    lone.turn(*inbox.take(0))
    assert not lone.node.awaits_majority


def test_a_flush_that_completes_the_majority_starts_a_turn() -> None:
    """Follower 2 was faster than the disk of leader 1: with the flush the record is committed."""
    lone = active_leader(2, 3)
    flushes: deque[JobDone] = deque()
    inbox = Inbox(lone.node, RealClock(), flushes)
    lone.turn(change(lone))
    (flush,) = lone.jobs
    fetched(lone, 2)

    assert inbox.awaits_flush
    flush.run()
    flushes.append(JobDone(flush))
    assert inbox.needs_turn
    lone.turn(*inbox.take(0))
    assert not lone.node.awaits_majority


def test_the_flush_of_a_lone_controller_starts_a_turn() -> None:
    """No fetch ever comes: the flush itself commits the record."""
    lone = active_leader()
    inbox = Inbox(lone.node, RealClock(), deque())
    lone.turn(change(lone))

    assert lone.node.awaits_majority and inbox.awaits_flush


def test_the_thread_wakes_the_loop_only_if_asked_or_after_a_failure() -> None:
    """Three flushes: one that nothing waits for, one that a commit waits for, and one that fails."""
    job = FlushJob(FlushTicket(0, 0, b"", None))
    asked, errors = [False, True, False], [None, None, OSError("no disk")]
    woken: list[int] = []

    def run(job: FlushJob) -> JobDone:
        flusher.wake_up_for_next = asked.pop(0)
        return JobDone(job, errors.pop(0))

    flusher = Flusher(run, lambda: woken.append(len(flusher.ended)))
    for _ in range(3):
        flusher.start(job)
    flusher.stop()

    assert [str(done.error) for done in flusher.ended] == ["None", "None", "no disk"]
    assert woken == [2, 3]


def test_messages_of_many_sessions_do_not_make_a_turn_long() -> None:
    """Each message has 1,000 sessions: a turn takes four, and the next turn the others."""
    lone = active_leader(2, 3)
    inbox = Inbox(lone.node, RealClock(), deque())
    sessions = tuple([SessionName(bytes(16), 1)] * 1_000)
    for _ in range(6):
        assert inbox.add(KeepAlive(sessions, lone.new_reply_to())), "a contact starts a turn"
    assert len([*inbox.take(0)]) == KEPT_PER_TURN_MAX // 1_000 == 4
    assert inbox.needs_turn
    assert len([*inbox.take(0)]) == 2
