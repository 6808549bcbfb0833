"""A thousand brokers wait for a commit: they are answered in slices, and no voter waits for the last of them."""

import random
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

import pytest

from metadata_log.format.ids import NodeId, Offset, ReplicaKey
from metadata_log.format.records import BROKER_RESOURCE, METADATA_VERSION_MAX, Endpoint, FeatureRange
from quorum.controller.controller import BrokerState
from quorum.controller.protocol.commands import RegisterBrokerCommand, RegisterBrokerReply
from quorum.controller.protocol.config_commands import (
    AlterConfigs,
    ConfigAlteration,
    ConfigOperation,
    ConfigOperationKind,
)
from quorum.core.protocol.messages import FetchRequest
from quorum.runtime.active.broker_feed import ROUNDED_SHARE
from quorum.runtime.active.waiting_room import ParkedFetch, ParkedFetches
from quorum.runtime.inbox import FETCHES_PER_TURN_MAX, Inbox
from quorum.runtime.protocol.requests import MetadataFetch, MetadataFetched
from quorum.runtime.protocol.world import BrokerFetch, Event, RaftRequest, Read, ReplyTo, Submission
from service_kit.process.clock import RealClock
from tests.quorum.runtime.active.brokers import uuid
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of

FOLLOWERS = (2, 3)
WAIT_MS = 200


class Crowd:
    """The active controller 1 of three voters, and brokers that are online and fetch from the end of all that is applied."""

    def __init__(self, count: int) -> None:
        self.lone = LoneNode(formatted_disk(voters_of([1, *FOLLOWERS])))
        self.lone.elect()
        self.commit()
        self.epochs: dict[NodeId, int] = {}
        self.wants_fence: set[NodeId] = set()
        asked = {broker_id: self.lone.new_reply_to() for broker_id in range(101, 101 + count)}
        self.lone.turn(*(self._registration(broker_id, reply_to) for broker_id, reply_to in asked.items()))
        self.commit()
        for broker_id, reply_to in asked.items():
            reply = self.lone.answers[reply_to]
            assert isinstance(reply, RegisterBrokerReply)
            self.epochs[broker_id] = reply.broker_epoch
        self.ask(self.epochs, wait_ms=0)  # this contact unfences them
        self.commit()

    def _registration(self, broker_id: NodeId, reply_to: ReplyTo) -> Submission:
        endpoints, features = (
            (Endpoint("CLIENT", "127.0.0.1", 9_000),),
            (FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),),
        )
        command = RegisterBrokerCommand(broker_id, uuid(broker_id), endpoints, features, None, (uuid(broker_id),))
        return Submission(command, reply_to, self.lone.now_ms + 1_000)

    def commit(self) -> None:
        """Commits and applies all that is appended: the leader has flushed it, and both followers fetch from its end."""
        while not self.lone.node.active.on or self.lone.node.awaits_majority:
            self.lone.run_until_idle()
            for node_id in FOLLOWERS:
                self.lone.fetched_by(ReplicaKey(node_id, directory_id(node_id)), self.lone.node.log.end)
            self.lone.turn()

    def fetch(
        self, broker_id: NodeId, wait_ms: int = WAIT_MS, offset: Offset | None = None, *, wants_fence: bool = False
    ) -> BrokerFetch:
        node = self.lone.node
        offset = node.state.applied if offset is None else offset
        epoch = node.log.shape.epoch_below(offset)
        assert epoch is not None
        asked = MetadataFetch(
            broker_id,
            self.epochs[broker_id],
            uuid(broker_id),
            offset,
            epoch,
            b"",
            wants_fence,
            False,
            (),
            wait_ms,
            1 << 20,
        )
        return BrokerFetch(asked, self.lone.new_reply_to())

    def ask(self, broker_ids: Iterable[NodeId], wait_ms: int = WAIT_MS) -> list[ReplyTo]:
        """All these brokers fetch; a turn takes them all."""
        fetches = [
            self.fetch(broker_id, wait_ms, wants_fence=broker_id in self.wants_fence) for broker_id in broker_ids
        ]
        self.lone.turn(*fetches)
        return [fetch.reply_to for fetch in fetches]

    def write(self) -> None:
        """A client alters a config, and the change is committed. The time stands still."""
        operation = ConfigOperation(ConfigOperationKind.SET, "min.insync.replicas", str(self.lone.node.log.end))
        command = AlterConfigs((ConfigAlteration(BROKER_RESOURCE, "", (operation,)),))
        self.lone.turn(Submission(command, self.lone.new_reply_to(), self.lone.now_ms + 1_000))
        self.commit()

    def linger(self) -> None:
        self.lone.now_ms += self.lone.config.broker_linger_ms

    def answered(self, reply_tos: Sequence[ReplyTo]) -> list[ReplyTo]:
        """Those that have their answers, in the order of the answers."""
        wanted = set(reply_tos)
        return [reply_to for reply_to in self.lone.answers if reply_to in wanted]

    def answer(self, reply_to: ReplyTo) -> MetadataFetched:
        answer = self.lone.answers[reply_to]
        assert isinstance(answer, MetadataFetched)
        return answer


@pytest.mark.slow
def test_a_wave_of_1_000_brokers_takes_no_long_turn_and_no_voter_waits_for_its_end() -> None:
    """No turn answers more brokers than a slice has, however many wait. The brokers that have waited longest are answered first,
    and fetch again at once. Voter 3, which lacks the commit, is answered by the turn that takes its fetch.
    """
    crowd = Crowd(1_000)
    lone, slice_max = crowd.lone, crowd.lone.config.broker_answers_per_turn_max
    waiting, before = crowd.ask(crowd.epochs), lone.node.log.end
    crowd.write()
    assert not crowd.answered(waiting), "the wave lingers"

    crowd.linger()
    inbox = Inbox(lone.node, RealClock(), deque())
    broker_of = dict(zip(waiting, crowd.epochs, strict=True))
    voters: list[ReplyTo] = []
    sizes: list[int] = []
    while not sizes or lone.node.has_more_to_do or inbox.needs_turn:
        if len(sizes) % 5 == 2:
            voters.append(lone.new_reply_to())
            inbox.add(lagging(lone, 3, before, voters[-1]))
        done = len(lone.answers)
        lone.turn(*inbox.take(RealClock().cpu_us()))
        news = list(lone.answers)[done:]
        assert not voters or voters[-1] in lone.answers, "a voter waits for brokers"
        sizes.append(sum(isinstance(lone.answers[reply_to], MetadataFetched) for reply_to in news))
        for reply_to in news:
            if reply_to in broker_of:
                inbox.add(crowd.fetch(broker_of[reply_to]))
    assert max(sizes) <= slice_max and sum(sizes) == len(waiting), "one answer each, and none to those who wait anew"
    assert crowd.answered(waiting) == waiting, "in the order in which they came to wait"
    assert len(voters) >= 3


def lagging(lone: LoneNode, node_id: NodeId, offset: Offset, reply_to: ReplyTo) -> RaftRequest:
    """The fetch of a voter that has nothing from `offset` on."""
    chain, epoch = lone.node.log.chain_at(offset), lone.node.log.shape.epoch_below(offset)
    assert chain is not None and epoch is not None
    replica = ReplicaKey(node_id, directory_id(node_id))
    return RaftRequest(FetchRequest(replica, lone.node.core.epoch, 1, offset, epoch, chain, 0, 150, 1 << 20), reply_to)


def test_a_turn_takes_voters_first_then_some_brokers_then_clients() -> None:
    """A thousand brokers fetch in the same moment, then a client reads, then voter 2 fetches. The next turn takes the voter,
    then some of the brokers, then the client: neither waits for the last broker.
    """
    crowd = Crowd(1)
    inbox = Inbox(crowd.lone.node, RealClock(), deque())
    fetches = [crowd.fetch(101) for _ in range(1_000)]
    for fetch in fetches:
        assert inbox.add(fetch)
    client, voter = Read(1, 1_000), lagging(crowd.lone, 2, crowd.lone.node.log.end, 2)
    assert inbox.add(client) and inbox.add(voter)

    expected: list[Event] = [voter, *fetches[:FETCHES_PER_TURN_MAX], client]
    assert list(inbox.take(0)) == expected and inbox.needs_turn
    taken = [event for _ in range(1_000 // FETCHES_PER_TURN_MAX) for event in inbox.take(RealClock().cpu_us())]
    assert taken == fetches[FETCHES_PER_TURN_MAX:] and not inbox.needs_turn


def test_who_lacks_only_what_a_coming_wave_brings_waits_for_it_and_gets_one_answer() -> None:
    """During the linger broker 101 comes back. It gets the commit with the others, although it could have had it earlier."""
    crowd = Crowd(40)
    before, (_, *others) = crowd.lone.node.state.applied, crowd.ask(crowd.epochs)
    crowd.write()
    comes_back = crowd.fetch(101, offset=before)
    crowd.lone.turn(comes_back)
    assert comes_back.reply_to not in crowd.lone.answers
    crowd.linger()
    crowd.lone.turn()
    assert crowd.answered([*others, comes_back.reply_to]) == [*others, comes_back.reply_to]
    assert crowd.answer(comes_back.reply_to).end_offset == crowd.lone.node.state.applied


def test_who_lacks_more_than_a_coming_wave_brings_is_answered_at_once() -> None:
    """Broker 101 begins with an old image: it catches up while the others linger."""
    crowd = Crowd(40)
    old = crowd.lone.node.state.applied
    crowd.write()
    crowd.lone.turn()
    crowd.ask(list(crowd.epochs)[1:])
    crowd.write()
    catching_up = crowd.fetch(101, offset=old)
    crowd.lone.turn(catching_up)
    assert crowd.answer(catching_up.reply_to).batches


def test_a_stream_of_commits_costs_no_more_answers_than_the_rate_allows() -> None:
    """40 brokers fetch again after each answer, and each millisecond has a commit. All answers together stay below the rate,
    and the last answers tell every broker of the last commit.

    A feed without a rest answered each of them at each commit: 40,000 answers a second.
    """
    crowd = Crowd(40)
    lone, rate = crowd.lone, crowd.lone.config.broker_answers_per_s_max
    waiting = dict(zip(crowd.ask(crowd.epochs, 5_000), crowd.epochs, strict=True))
    began_ms, count, ends = lone.now_ms, 0, dict[NodeId, Offset]()
    while lone.now_ms < began_ms + 1_500 or set(ends.values()) != {lone.node.state.applied}:
        lone.now_ms += 1
        if lone.now_ms < began_ms + 1_000:
            crowd.write()
        lone.turn()
        for reply_to in crowd.answered(list(waiting)):
            broker_id, count = waiting.pop(reply_to), count + 1
            ends[broker_id] = crowd.answer(reply_to).end_offset
            again = crowd.fetch(broker_id, 5_000, ends[broker_id])
            waiting[again.reply_to] = broker_id
            lone.turn(again)
        assert lone.now_ms < began_ms + 2_000, "the last commit does not reach every broker"
    assert rate / 2 < count <= rate * 1.1


def test_a_range_is_read_once_for_all_who_wait_for_it_and_anew_after_a_commit() -> None:
    """All answers of a wave hold the same batches, not equal copies; and each has the standing of its own broker."""
    crowd = Crowd(40)
    crowd.wants_fence.add(next(iter(crowd.epochs)))
    crowd.ask(crowd.wants_fence)
    crowd.commit()
    for _ in range(2):
        waiting = crowd.ask(crowd.epochs)
        crowd.write()
        crowd.linger()
        crowd.lone.turn()
        answers = [crowd.answer(reply_to) for reply_to in waiting]
        assert len({id(answer.batches) for answer in answers}) == 1
        assert answers[0].batches[-1].end_offset == answers[0].end_offset == crowd.lone.node.state.applied
        states = [answer.standing.state for answer in answers if answer.standing is not None]
        assert states == [BrokerState.FENCED, *[BrokerState.ONLINE] * 39]
        assert [answer.lease_ms > 0 for answer in answers] == [False, *[True] * 39]


def test_those_who_have_waited_long_enough_are_answered_in_slices_too() -> None:
    """After a commit all brokers wait anew at the same moment, so their time ends at the same moment."""
    crowd = Crowd(150)
    waiting, slice_max = crowd.ask(crowd.epochs), crowd.lone.config.broker_answers_per_turn_max
    crowd.lone.now_ms += WAIT_MS
    sizes = []
    while len(crowd.answered(waiting)) < len(waiting):
        done = len(crowd.answered(waiting))
        crowd.lone.turn()
        sizes.append(len(crowd.answered(waiting)) - done)
    assert sizes == [slice_max, slice_max, len(waiting) - 2 * slice_max]
    assert not crowd.lone.node.has_more_to_do


def test_brokers_wait_in_the_order_of_their_last_fetch() -> None:
    """Against a list as its twin: brokers come to wait, come again, are woken by commits, and have waited long enough."""
    rng = random.Random(7)
    parked, twin, picked, applied = ParkedFetches(), list[ParkedFetch](), list[ParkedFetch](), 0
    for now_ms in range(2_000):
        applied += rng.random() < 0.05
        offset = applied - rng.randrange(2)
        fetch = MetadataFetch(rng.randrange(30), 0, b"", offset, 0, b"", False, False, (), 0, 0)
        new = ParkedFetch(fetch, now_ms, now_ms + rng.choice((5, 50)))
        earlier = parked.park(new)
        assert earlier is next((each for each in twin if each.fetch.broker_id == fetch.broker_id), None)
        twin = [each for each in twin if each is not earlier] + [new]
        if rng.random() < 0.1:
            parked.pick_below(applied)
            picked = [each for each in twin if each.fetch.offset < applied]
        picked = [each for each in picked if each in twin]
        assert parked.has_picked == bool(picked)
        if rng.random() < 0.2:
            some = list(islice(parked.picked(), 3))
            assert some == picked[:3]
            twin, picked = [each for each in twin if each not in some], picked[3:]
        due = list(parked.expired(now_ms))
        assert sorted(each.reply_to for each in due) == [each.reply_to for each in twin if each.deadline_ms <= now_ms]
        twin = [each for each in twin if each.deadline_ms > now_ms]
        assert len(parked) == len(twin)
        assert parked.deadlines.next_ms() == min((each.deadline_ms for each in twin), default=None)
    assert parked.drain() == twin and not parked and parked.deadlines.next_ms() is None


def test_brokers_that_come_one_after_the_other_are_answered_together_and_never_late() -> None:
    """Thirty brokers come 1 ms apart and wait for 640 ms: two or three turns answer them, each at most a thirty-second early."""
    crowd, wait_ms = Crowd(30), 640
    lone = crowd.lone
    came: dict[ReplyTo, int] = {}
    for broker_id in crowd.epochs:
        came[crowd.ask([broker_id], wait_ms)[0]] = lone.now_ms
        lone.now_ms += 1
    turns = 0
    while not all(reply_to in lone.answers for reply_to in came):
        lone.now_ms += 1
        done = len(crowd.answered(list(came)))
        lone.turn()
        answered = crowd.answered(list(came))[done:]
        turns += bool(answered)
        for reply_to in answered:
            assert wait_ms - wait_ms // ROUNDED_SHARE < lone.now_ms - came[reply_to] <= wait_ms
    assert turns <= 3
