"""Stories of a quorum as text: commands, a line of dashes, and the resulting picture.

    crash 1
    run 20
    ----
      301 2 e1 leader 3        time since the start, node, event
    2  follower  e1 ...        a line of `show`

The interpreter is below; each command is one method. `pytest tests/core --rewrite` (or REWRITE=1 in the environment)
replaces the pictures by the current results. Read the diff before committing it: the diff shows changed behavior.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from metadata_log.format.ids import OffsetAndEpoch, ReplicaKey
from metadata_log.format.records import Endpoint
from quorum.core.protocol.config import RaftConfig
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.inputs import DamageFound, DamageRepaired
from quorum.core.protocol.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    VoteRequest,
)
from tests.core.cluster import Cluster, Node, directory, voter, voters_of
from tests.core.fake_log import FakeLog

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


class Block(NamedTuple):
    """Comment lines, commands, and the expected output."""

    comments: list[str]
    commands: list[str]
    expected: list[str]


def parse(text: str) -> Iterator[Block]:
    for paragraph in text.strip("\n").split("\n\n"):
        lines = paragraph.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        body = [line for line in lines if not line.startswith("#")]
        if "----" in body:
            at = body.index("----")
            yield Block(comments, body[:at], body[at + 1 :])
        else:
            yield Block(comments, body, [])


def render(blocks: list[Block]) -> str:
    paragraphs = []
    for block in blocks:
        lines = [*block.comments, *block.commands]
        if block.commands:
            lines += ["----", *block.expected]
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs) + "\n"


class Interpreter:
    """Runs commands against one cluster, and collects the output."""

    def __init__(self) -> None:
        self.cluster = Cluster(0)
        self.out: list[str] = []

    def block(self, commands: list[str]) -> list[str]:
        self.out = []
        for command in commands:
            name, *arguments = command.replace("leader", self.leader).split()
            getattr(self, "do_" + name.replace("-", "_"))(*arguments)
            self.out += self.cluster.events
            self.cluster.events.clear()
        return self.out

    @property
    def leader(self) -> str:
        """The node meant by the word `leader` in a command."""
        leading = [node for node in self.cluster.nodes.values() if node.core is not None and node.core.is_leading]
        return str(self.cluster.leader.id) if leading else "nobody"

    def node(self, node_id: str) -> Node:
        return self.cluster[int(node_id)]

    # --- building ---------------------------------------------------------------------------------------------------

    def do_cluster(self, count: str, *options: str) -> None:
        """cluster N [seed=S] [observers=4,5]: creates nodes 1..N, not started."""
        given = dict(option.split("=") for option in options)
        observers = tuple(int(node_id) for node_id in given.get("observers", "").split(",") if node_id)
        config = RaftConfig(watermark_linger_ms=0)
        self.cluster = Cluster(int(count), seed=int(given.get("seed", 0)), observers=observers, config=config)

    def do_log(self, node_id: str, *epochs: str) -> None:
        """log N e e e: gives node N one flushed record of each of these epochs, and the last as its durable epoch."""
        node = self.node(node_id)
        node.log = FakeLog()
        for epoch in epochs:
            node.log.append(int(epoch))
        node.log.flush()
        node.election = ElectionState(max(int(epochs[-1]), node.election.epoch), None, None)

    def do_state(self, node_id: str, epoch: str, *rest: str) -> None:
        """state N EPOCH [vote=V] [leader=L]: sets node N's quorum-state."""
        given = dict(option.split("=") for option in rest)
        voted_for = int(given["vote"]) if "vote" in given else None
        leader_id = int(given["leader"]) if "leader" in given else None
        vote = None if voted_for is None else ReplicaKey(voted_for, directory(voted_for))
        self.node(node_id).election = ElectionState(int(epoch), vote, leader_id)

    def do_start(self, *node_ids: str) -> None:
        for node_id in node_ids or self.cluster.nodes:
            self.node(str(node_id)).boot_up()

    # --- time -------------------------------------------------------------------------------------------------------

    def do_run(self, duration_ms: str) -> None:
        self.cluster.run(int(duration_ms))

    def do_elect(self) -> None:
        self.cluster.elect()

    def do_quiet(self) -> None:
        """Forgets the events of this block so far."""
        self.out.clear()

    def do_trace(self, switch: str) -> None:
        self.cluster.traced = switch == "on"

    # --- faults and requests ----------------------------------------------------------------------------------------

    def do_propose(self, node_id: str, count: str = "1") -> None:
        self.cluster.propose(int(node_id), int(count))

    def do_crash(self, node_id: str, unseen: str = "") -> None:
        self.cluster.crash(int(node_id), breaking=not unseen, refusing=not unseen)

    def do_bounce(self, node_id: str) -> None:
        """Restarts the process so fast that no connection is refused. The connections still break."""
        self.cluster.crash(int(node_id), refusing=False)
        self.node(node_id).boot_up()

    def do_pause(self, node_id: str) -> None:
        self.node(node_id).paused = True

    def do_resume(self, node_id: str) -> None:
        self.cluster.resume(int(node_id))

    def do_wipe(self, node_id: str) -> None:
        """Replaces the node's disk: an empty log under a new directory id."""
        node = self.node(node_id)
        assert node.core is None
        node.key = ReplicaKey(node.id, directory(node.id, generation=node.boot))
        node.log, node.election = FakeLog(), ElectionState(0, None, None)

    def do_lie(self, node_id: str, offset: str) -> None:
        """Replaces the record at `offset`, and all history from there on."""
        self.node(node_id).lie(int(offset))

    def do_damage(self, node_id: str) -> None:
        """Makes a range inside the node's log unreadable."""
        self.node(node_id).feed(DamageFound())

    def do_mend(self, node_id: str) -> None:
        self.node(node_id).feed(DamageRepaired())

    def do_lose(self, node_id: str, end: str) -> None:
        """Removes the durable records from `end` on from a stopped node's disk."""
        self.node(node_id).lose_tail(int(end))

    def do_cut(self, *node_ids: str) -> None:
        self.cluster.cut(*map(int, node_ids))

    def do_heal(self) -> None:
        self.cluster.heal()

    def do_hold_flush(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self.node(node_id).flush_held = True

    def do_flush(self, *node_ids: str) -> None:
        for node_id in node_ids:
            node = self.node(node_id)
            node.flush_held = False
            node.want_flush()

    def do_resign(self, node_id: str) -> None:
        self.cluster.resign(int(node_id))

    def do_shut_down(self, node_id: str) -> None:
        self.cluster.shut_down(int(node_id))

    def do_read(self, node_id: str, token: str) -> None:
        self.cluster.confirm_reads(int(node_id), int(token))

    def do_snapshot(self, node_id: str, end: str) -> None:
        self.node(node_id).take_snapshot(int(end))

    def do_voters(self, node_id: str, *voter_ids: str) -> None:
        """Lets the leader append a new voter set."""
        node = self.node(node_id)
        node.append(node.up.epoch, voters_of(*map(int, voter_ids)))

    def do_add(self, node_id: str, newcomer: str, *options: str) -> None:
        """add N NEWCOMER [timeout=MS] [early]: an operator asks node N to add a voter."""
        given = dict(option.split("=") for option in options if "=" in option)
        key = self.node(newcomer).key
        record = voter(key.node_id)._replace(directory_id=key.directory_id)
        request = AddVoterRequest(record, "early" not in options, int(given.get("timeout", 1000)))
        self.cluster.wish(int(node_id), request)

    def do_remove(self, node_id: str, voter_id: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        key = self.node(node_id).up.voters.key_of(int(voter_id))
        assert key is not None
        self.cluster.wish(int(node_id), RemoveVoterRequest(key, int(given.get("timeout", 1000))))

    def do_transfer(self, node_id: str, target: str = "") -> None:
        """transfer N [TARGET]: an operator asks node N to transfer the leadership."""
        request = TransferLeadershipRequest(int(target) if target else None, timeout_ms=1000)
        self.cluster.wish(int(node_id), request)

    def do_join(self, *node_ids: str) -> None:
        """Configures these nodes, from their next start on, with their endpoints and to join by themselves."""
        self.cluster.config = self.cluster.config._replace(auto_join=True)
        for node_id in node_ids:
            self.node(node_id).endpoints = voter(int(node_id)).endpoints

    def do_listen(self, node_id: str, host: str) -> None:
        """Configures another host for the node, from its next start on."""
        self.node(node_id).endpoints = (Endpoint("CONTROLLER", host, 9093),)

    def do_ask_vote(self, node_id: str, candidate: str, epoch: str, log_end: str) -> None:
        """ask-vote N CANDIDATE EPOCH END@EPOCH: the candidate asks node N for a real vote."""
        end, last_epoch = map(int, log_end.split("@"))
        asker = self.node(candidate)
        request = VoteRequest(asker.key, self.node(node_id).key, int(epoch), last_epoch, end, pre_vote=False)
        self.cluster.send(asker, int(node_id), request, 500)

    # --- pictures ---------------------------------------------------------------------------------------------------

    def do_show(self) -> None:
        self.out += self.cluster.events
        self.cluster.events.clear()
        self.out += [node.describe() for node in self.cluster.nodes.values()]

    def do_logs(self) -> None:
        """Shows the epoch of each record of each log."""
        self.out += self.cluster.events
        self.cluster.events.clear()
        self.out += [f"{node.id}: {node.log}" for node in self.cluster.nodes.values()]

    def do_voters_of(self, *node_ids: str) -> None:
        """Shows the voter sets of these nodes."""
        for node_id in node_ids:
            voters = self.node(node_id).up.voters.voters
            self.out.append(f"{node_id}: " + " ".join(f"{v.node_id}@{v.endpoints[0].host}" for v in voters))

    def do_replicas(self, node_id: str) -> None:
        self.out += [
            f"{status.node_id} end {status.log_end_offset} {'voter' if status.is_voter else 'observer'}"
            for status in self.node(node_id).up.replicas()
        ]

    def do_snapshots(self) -> None:
        self.out += [f"{n.id}: {n.log.snapshot or OffsetAndEpoch(0, 0)}" for n in self.cluster.nodes.values()]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    """Each script produces the picture in its file."""
    text = path.read_text()
    interpreter = Interpreter()
    blocks = [
        block._replace(expected=interpreter.block(block.commands)) if block.commands else block for block in parse(text)
    ]
    drawn = render(blocks)
    if request.config.getoption("--rewrite", default=False) or os.environ.get("REWRITE"):
        path.write_text(drawn)
        return

    assert text == drawn


def test_the_scripts_are_there() -> None:
    """An empty directory must not pass for a tested one."""
    assert len(SCRIPTS) >= 12
