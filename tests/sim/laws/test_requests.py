"""The law C3 NobodyKnows, of decisions in several batches: the memory of requests is judged at the beginning of a decision."""

import pytest

from metadata_log.format.ids import Epoch, Offset
from metadata_log.image.replay import Replay
from quorum.controller.protocol.commands import Command, FenceBroker
from quorum.controller.protocol.election_commands import ElectLeaders
from quorum.controller.protocol.feature_commands import UpdateFeatures
from quorum.controller.protocol.mode_commands import BrokerModeReply, DrainBroker
from quorum.controller.protocol.request_outcomes import RequestIdentity, outcome_of
from quorum.controller.protocol.topic_commands import CreateTopics
from tests.metadata_log.image.histories import LogWriter
from tests.sim.history import Step
from tests.sim.laws.broken import LawBroken
from tests.sim.laws.requests import RequestLaws

OUTCOMES_MAX = 2


class Requests:
    """A log with outcomes of requests alone, and the laws that see it grow."""

    def __init__(self) -> None:
        self.laws = RequestLaws()
        self._log, self._replay = LogWriter(), Replay()

    def ask(self, number: int, command: Command, epoch: Epoch = 1, seen: Offset | None = None) -> RequestIdentity:
        """A client that had seen `seen`, by default everything, asks a controller in `epoch`."""
        offset = self._replay.image.offset if seen is None else seen
        identity = RequestIdentity(number.to_bytes(16, "big"), bytes(32), "anonymous", offset)
        self.laws.asked(command, identity, epoch)
        return identity

    def do(self, identity: RequestIdentity, epoch: Epoch = 1) -> None:
        """The leader of `epoch` commits the last batch of the request."""
        before = self._replay.image
        outcome = outcome_of(before, identity, BrokerModeReply(7, 0), OUTCOMES_MAX)
        batch = self._log.batch(outcome, epoch=epoch)
        after = self._replay.apply((batch,)).image
        self.laws.committed(Step(before, batch, (outcome,), after, batch.end_offset))

    def law_broken_by(self, identity: RequestIdentity, epoch: Epoch = 1) -> str | None:
        """The law that the commit of the request breaks; None if it breaks none."""
        try:
            self.do(identity, epoch)
        except LawBroken as e:
            return e.law
        return None

    def do_others(self, count: int, epoch: Epoch = 1) -> None:
        """Other clients' requests are asked and done, so that the log forgets the oldest."""
        for number in range(count):
            self.do(self.ask(1_000 + self._replay.image.offset + number, CreateTopics(()), epoch), epoch)


SLICED: list[Command] = [
    ElectLeaders(()),
    FenceBroker(7),
    DrainBroker(7),
    UpdateFeatures(()),
]


@pytest.mark.parametrize("command", SLICED, ids=lambda command: type(command).__name__)
def test_a_decision_in_several_batches_outlives_the_memory_of_others(command: Command) -> None:
    """The leader knows at the first batch that the request is new, and the request stays new until the last batch."""
    requests = Requests()
    requests.do_others(1)
    request = requests.ask(1, command)
    requests.do_others(5)
    assert requests.law_broken_by(request) is None


def test_a_decision_in_one_batch_is_judged_at_this_batch() -> None:
    """A request that waited must be looked up when it is decided, and not when it arrived."""
    requests = Requests()
    requests.do_others(1)
    request = requests.ask(1, CreateTopics(()))
    requests.do_others(5)
    assert requests.law_broken_by(request) == "C3 NobodyKnows"


def test_the_next_leader_judges_anew() -> None:
    """Leader 1 dies after the first batch of a drain. The log forgets other requests before leader 2 is asked to drain."""
    requests = Requests()
    requests.do_others(1)
    request = requests.ask(1, DrainBroker(7), epoch=1)
    requests.do_others(5, epoch=2)
    requests.ask(1, DrainBroker(7), epoch=2, seen=request.client_high_watermark)
    assert requests.law_broken_by(request, epoch=2) == "C3 NobodyKnows"


def test_a_node_may_be_elected_in_the_turn_that_takes_the_request() -> None:
    """The request arrived in the epoch before. The law takes the horizon of that moment."""
    requests = Requests()
    requests.do_others(1)
    request = requests.ask(1, DrainBroker(7), epoch=1)
    requests.do_others(5, epoch=2)
    assert requests.law_broken_by(request, epoch=2) is None
