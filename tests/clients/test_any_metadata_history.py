"""A client's metadata in random histories: brokers that lag, die, refuse and come back; topics that come, go and come anew.

The truth is a list of versions, one for each change. A broker answers from a version that it has applied. The laws:

    1. The leader epoch of a partition never goes back while its topic has the same id, and is of interest.
    2. A topic id that another id has replaced never comes back, while the topic is of interest.
    3. One request is in flight at a time. Two requests are 80 ms apart or more, without a new topic, a new start, or a node that
       is dead or refuses.
    4. A node that failed is left out for 40 ms at least, unless the client has begun again with the bootstrap address.
    5. A wait ends at its deadline at the latest.
    6. 20 seconds after the last fault the view is the truth, for all topics of interest. Without interest it becomes empty.
"""

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from clients.metadata.backoff import ExponentialBackoff
from clients.metadata.node_states import NodeStates
from clients.metadata.refresher import Ask, ClientConfig, Problem, ProblemKind, Refresher
from clients.metadata.seen import SeenTopics
from metadata_log.format.errors import ErrorCode
from metaquorum import (
    ClientMetadata,
    ClusterNode,
    MetadataUpdate,
    PartitionView,
    TopicPartition,
    TopicUpdate,
    ViewVersion,
    Waited,
    WaitOnMetadata,
)

NAMES = ("a", "b", "c", "d")
BROKERS = (1, 2, 3)


class Truth(NamedTuple):
    """A topic: its id, and the leader and epoch of each partition."""

    topic_id: bytes
    partitions: tuple[tuple[int, int], ...]


class Story:
    """One client, three brokers and the truth."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now_ms = 1_000_000
        self.versions: list[dict[str, Truth]] = [{}]
        self.applied = dict.fromkeys(BROKERS, 0)
        self.problems: dict[int, ProblemKind | None] = {}
        """The failures of nodes; None: no answer ever comes."""
        self.metadata = ClientMetadata([("boot", 9092)], dice=random.Random(seed), topic_expiry_ms=30_000)
        nodes = NodeStates(ExponentialBackoff(50, 1_000, random.Random(seed)), random.Random(seed))
        self.refresher = Refresher(self.metadata, nodes, ClientConfig(request_timeout_ms=3_000))
        self.asked: Ask | None = None
        self.asked_version = 0
        self.answer_ms = 0
        self.last_ask_ms: int | None = None
        self.may_hurry = True
        self.failed_ms: dict[int, int] = {}
        self.waits: list[WaitOnMetadata] = []
        self.epochs: dict[tuple[bytes, int], int] = {}
        self.replaced: set[bytes] = set()
        self.names: dict[bytes, str] = {}
        self.metadata.subscribe(lambda _: self.check_view())
        self.count = 0

    # --- the truth ---------------------------------------------------------------------------------------------------

    def change(self) -> None:
        now, dice = dict(self.versions[-1]), self.dice
        name = dice.choice(NAMES)
        old = now.get(name)
        if old is None or dice.random() < 0.2:
            self.count += 1
            leaders = tuple((dice.choice(BROKERS), 0) for _ in range(dice.randint(1, 3)))
            now[name] = Truth(self.count.to_bytes(16), leaders)
            self.names[now[name].topic_id] = name
        elif dice.random() < 0.2:
            del now[name]
        else:
            moved = list(old.partitions)
            number = dice.randrange(len(moved))
            moved[number] = (dice.choice(BROKERS), moved[number][1] + 1)
            now[name] = Truth(old.topic_id, tuple(moved))
        self.versions.append(now)

    def answer(self, ask: Ask) -> MetadataUpdate:
        broker_id = ask.node.node_id if ask.node.node_id > 0 else self.dice.choice(BROKERS)
        version = self.applied[broker_id]
        topics = self.versions[version]
        told = [self._told(name, topics.get(name)) for name in ask.plan.topics]
        nodes = tuple(ClusterNode(each, f"b{each}", 9092) for each in BROKERS)
        return MetadataUpdate("cluster", nodes, tuple(told), 1, ViewVersion(1, version))

    def _told(self, name: str, truth: Truth | None) -> TopicUpdate:
        if truth is None:
            return TopicUpdate(name, None, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        views = [PartitionView(name, number, *each) for number, each in enumerate(truth.partitions)]
        return TopicUpdate(name, truth.topic_id, tuple(views))

    # --- the laws ----------------------------------------------------------------------------------------------------

    def check_view(self) -> None:
        cluster = self.metadata.cluster
        assert cluster.topics <= self.metadata.topics
        forgotten = {topic_id for topic_id, name in self.names.items() if name not in self.metadata.topics}
        self.replaced -= forgotten
        self.epochs = {key: epoch for key, epoch in self.epochs.items() if key[0] not in forgotten}
        for key, view in cluster.partitions.items():
            topic_id = cluster.topic_ids[key.topic]
            assert topic_id not in self.replaced, f"{key}: {topic_id!r} came back"
            assert view.leader_epoch is not None
            epoch = self.epochs.get((topic_id, key.partition), 0)
            assert view.leader_epoch >= epoch, f"{key}: epoch {view.leader_epoch} after {epoch}"
            self.epochs[topic_id, key.partition] = view.leader_epoch
        for topic_id, _ in self.epochs:
            newest = cluster.topic_ids.get(self.names[topic_id])
            if newest is not None and topic_id < newest:
                self.replaced.add(topic_id)

    # --- events ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Lets the client do what is due, and the request in flight end."""
        late = self.refresher.late(self.now_ms)
        if late is not None:
            assert late is self.asked
            self.end(Problem(ProblemKind.LOST, ErrorCode.REQUEST_TIMED_OUT, "late"))
        elif self.asked is not None and self.now_ms >= self.answer_ms:
            node_id = self.asked.node.node_id
            if node_id not in self.problems:
                ask, self.asked = self.asked, None
                self.refresher.answered(ask, self.answer(ask), self.now_ms)
            elif (kind := self.problems[node_id]) is not None:
                self.end(Problem(kind, ErrorCode.BROKER_NOT_AVAILABLE, "so it is"))
        self.poll_waits()
        was_bootstrap = self.metadata.cluster.is_bootstrap
        ask_now = self.refresher.step(self.now_ms)
        if ask_now is not None:
            assert self.asked is None, "two requests at once"
            hurries = self.may_hurry or (self.metadata.cluster.is_bootstrap and not was_bootstrap)
            assert self.last_ask_ms is None or hurries or self.now_ms >= self.last_ask_ms + 80
            if self.metadata.cluster.is_bootstrap:
                self.failed_ms.clear()
            assert self.now_ms >= self.failed_ms.get(ask_now.node.node_id, 0) + 40
            self.asked, self.last_ask_ms, self.may_hurry = ask_now, self.now_ms, False
            self.answer_ms = self.now_ms + self.dice.choice((0, 1, 20, 500))

    def end(self, problem: Problem) -> None:
        assert self.asked is not None
        ask, self.asked = self.asked, None
        self.failed_ms[ask.node.node_id] = self.now_ms
        self.may_hurry |= problem.kind in (ProblemKind.NOT_CONNECTED, ProblemKind.REFUSED)
        self.refresher.failed(ask, problem, self.now_ms)

    def poll_waits(self) -> None:
        for wait in list(self.waits):
            before = self.metadata.request_version
            outcome = wait.poll(self.now_ms)
            self.may_hurry |= self.metadata.request_version > before
            if outcome is not None:
                self.waits.remove(wait)
                assert isinstance(outcome, Waited) or self.now_ms >= wait.deadline_ms or outcome.message == "so it is"

    def fault(self) -> None:
        dice = self.dice
        node_id = dice.choice((-1, *BROKERS))
        if node_id in self.problems:
            del self.problems[node_id]
        elif dice.random() < 0.5:
            self.problems[node_id] = dice.choice((*ProblemKind, None))
        newest = len(self.versions) - 1
        self.applied[dice.choice(BROKERS)] = dice.randint(max(0, newest - 10), newest)

    def blackout(self) -> None:
        """No broker can be reached for a moment: the client begins again with the bootstrap address."""
        self.problems = dict.fromkeys(BROKERS, ProblemKind.NOT_CONNECTED)
        self.metadata.note_stale(ErrorCode.BROKER_NOT_AVAILABLE)
        self.run(200)
        self.problems.clear()

    def learn(self) -> None:
        """The client learns something besides metadata."""
        dice, name = self.dice, self.dice.choice(NAMES)
        match dice.randrange(4):
            case 0 | 1:
                self.waits.append(WaitOnMetadata(self.metadata, name, None, self.now_ms, dice.choice((0, 100, 20_000))))
            case 2:
                self.metadata.note_stale(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            case _:
                truth = self.versions[-1].get(name)
                if truth is not None:
                    self.metadata.note_leader_epoch(TopicPartition(name, 0), truth.partitions[0][1], truth.topic_id)

    def run(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while True:
            for _ in range(3):
                self.step()
            due = [self.refresher.next_ms(self.now_ms), *(wait.deadline_ms for wait in self.waits)]
            if self.asked is not None and self.problems.get(self.asked.node.node_id, True) is not None:
                due.append(self.answer_ms)
            if min(due) >= end_ms:
                break
            self.now_ms = max(min(due), self.now_ms + 1)
        self.now_ms = end_ms


@pytest.mark.parametrize("seeds", [range(20), range(20, 40), range(40, 60)])
def test_the_laws_hold_in_any_history(seeds: range) -> None:
    for seed in seeds:
        story = Story(seed)
        events = (
            story.change,
            story.change,
            story.change,
            story.fault,
            story.fault,
            story.learn,
            story.learn,
            story.blackout,
        )
        for _ in range(60):
            story.dice.choice(events)()
            story.run(story.dice.choice((0, 1, 50, 1_000, 10_000)))
        story.problems.clear()
        story.applied = dict.fromkeys(BROKERS, len(story.versions) - 1)
        for name in NAMES[:2]:
            story.metadata.add(name, story.now_ms)
        story.may_hurry = True
        story.run(5_000)
        story.metadata.note_stale(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        story.run(15_000)
        truth = {name: topic for name, topic in story.versions[-1].items() if name in story.metadata.topics}
        cluster = story.metadata.cluster
        assert cluster.topic_ids == {name: topic.topic_id for name, topic in truth.items()}, seed
        for name, topic in truth.items():
            views = cluster.partitions_by_topic[name]
            assert tuple((view.leader_id, view.leader_epoch) for view in views) == topic.partitions, seed
        story.run(120_000)
        assert not story.waits
        story.metadata.note_stale(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        story.run(5_000)
        assert story.metadata.topics == story.metadata.cluster.topics == frozenset()


def _forgets(metadata: ClientMetadata) -> None:
    REBOOTSTRAP(metadata)
    metadata._seen = SeenTopics()


def _hurries(metadata: ClientMetadata, now_ms: int, problem: str | None = None) -> None:
    metadata.last_problem = problem


def _asks_twice(refresher: Refresher, now_ms: int) -> Ask | None:
    refresher._asked = None
    return STEP(refresher, now_ms)


REBOOTSTRAP, STEP = ClientMetadata.rebootstrap, Refresher.step
MUTANTS = {
    "epochs go back": (SeenTopics, "see_epoch", lambda *_: True),
    "deleted topics come back": (SeenTopics, "is_outdated", lambda *_: False),
    "a new start forgets epochs": (ClientMetadata, "rebootstrap", _forgets),
    "two requests at once": (Refresher, "step", _asks_twice),
    "no pause after a failure": (ClientMetadata, "failed_update", _hurries),
    "failed nodes are asked": (NodeStates, "failed", lambda *_, **__: None),
    "stale views stay": (ClientMetadata, "note_stale", lambda *_: False),
    "interest never ends": (ClientMetadata, "_expire", lambda *_: None),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_laws_find_each_mutant(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, code = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, code)
    with pytest.raises(AssertionError) as found:
        test_the_laws_hold_in_any_history(range(60))
    assert found.traceback[-1].path == Path(__file__), "an assert of the client itself is no law"
