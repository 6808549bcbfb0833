"""The registration of a controller: sent until the controller's own image shows it."""

from metadata_log.format.batch import Batch
from metadata_log.format.errors import ErrorCode
from metadata_log.format.ids import ReplicaKey
from metadata_log.format.records import (
    METADATA_VERSION_MAX,
    SUPPORTED,
    Endpoint,
    FeatureRange,
    LeaderChange,
    RegisterController,
    Voter,
)
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpdateFeaturesReply
from quorum.core.protocol.inputs import Failure
from quorum.core.protocol.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    QuorumChangeResponse,
    RegisterControllerRequest,
    RegisterControllerResponse,
)
from quorum.runtime.protocol.jobs import LoadSnapshotJob
from quorum.runtime.protocol.node_config import NodeConfig
from quorum.runtime.protocol.peer_answers import answered, unanswered
from quorum.runtime.protocol.requests import Refused
from quorum.runtime.protocol.world import RaftRequest, ReplyTo, SnapshotWanted, Submission
from tests.metadata_log.image.histories import LogWriter
from tests.quorum.runtime.lone_node import LoneNode, directory_id, formatted_disk, voters_of
from tests.sim.world.disk import MemoryDirectory

HERE = Endpoint("CONTROLLER", "here", 9_091)
OLD = (FeatureRange("metadata.version", 1, 1),)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory_id(node_id))


def alone(config: NodeConfig | None = None, disk: MemoryDirectory | None = None) -> LoneNode:
    lone = LoneNode(disk or formatted_disk(voters_of([1])), config)
    lone.run_until_idle()
    return lone


def registrations(lone: LoneNode) -> list[tuple[int, RegisterControllerRequest]]:
    return [(to, request) for to, request in lone.sent if isinstance(request, RegisterControllerRequest)]


def test_the_active_controller_registers_itself_once() -> None:
    """A restart of the same release writes nothing; a restart of another release registers anew."""
    at_level_1 = ControllerConfig(bootstrap_metadata_version=1)
    lone = alone(NodeConfig(endpoints=(HERE,), features=OLD, controller=at_level_1))
    assert lone.node.state.committed.controllers[1] == RegisterController(1, directory_id(1), (HERE,), OLD)
    same = alone(lone.config, lone.disk)
    grown = same.node.log.end - lone.node.log.end
    assert same.node.state.committed.digest == lone.node.state.committed.digest
    newer = alone(lone.config._replace(features=SUPPORTED), lone.disk)
    assert newer.node.log.end - same.node.log.end == grown + 1
    assert newer.node.state.committed.controllers[1].features == SUPPORTED


def following(config: NodeConfig | None = None) -> LoneNode:
    """Node 1 of three follows leader 2, and has applied all that leader 2 has committed."""
    lone = LoneNode(formatted_disk(voters_of([1, 2, 3])), config)
    lone.turn(RaftRequest(BeginQuorumEpochRequest(key(2), key(1), 1), lone.new_reply_to()))
    assert registrations(lone) == [], "an image that may be old says nothing"
    log = LogWriter()
    log.chain = lone.node.log.chain_at(0) or b""
    first = log.batch(LeaderChange(2, (1, 2, 3), (2, 3)), is_control=True)
    hear(lone, (first,), 0)
    hear(lone, (), 1)
    return lone


def hear(lone: LoneNode, batches: tuple[Batch, ...], high_watermark: int) -> None:
    """Leader 2 answers the node's last fetch."""
    fetch = next(each for _, each in reversed(lone.sent) if isinstance(each, FetchRequest))
    answer = FetchResponse(
        ErrorCode.NONE, 1, 2, fetch.number, high_watermark=high_watermark, batches=batches, log_end=1
    )
    lone.turn(answered(2, fetch, answer))
    lone.run_until_idle()


def test_a_follower_sends_until_its_image_shows_the_registration() -> None:
    """A lost answer and a refusal cost time only; an answer without the record in the image does not count either."""
    lone = following(NodeConfig(endpoints=(HERE,)))
    assert registrations(lone) == [(2, RegisterControllerRequest(key(1), (HERE,), SUPPORTED))]
    request = registrations(lone)[0][1]
    for attempt, end in enumerate(
        (
            unanswered(2, request, Failure.TIMED_OUT),
            answered(2, request, RegisterControllerResponse(ErrorCode.NOT_READY, 1, 2)),
            answered(2, request, RegisterControllerResponse(ErrorCode.NONE, 1, 2)),
        )
    ):
        assert len(registrations(lone)) == attempt + 1, "one at a time"
        lone.turn(end)
        assert len(registrations(lone)) == attempt + 1, "after a pause only"
        for _ in range(1 << attempt):
            lone.now_ms += lone.config.raft.request_timeout_ms
            hear(lone, (), 1)
        assert (lone.node.next_deadline_ms() or 0) <= lone.now_ms + lone.config.raft.fetch_timeout_ms
    assert len(registrations(lone)) == 4


def test_the_leader_takes_the_registrations_of_others() -> None:
    """The answer is the decision's: NONE when it is appended or there already, and the reason of a refusal."""
    lone = alone()
    end = lone.node.log.end
    good = RegisterControllerRequest(key(3), (HERE,), SUPPORTED)
    for request, error, grows in (
        (good, ErrorCode.NONE, 1),
        (good, ErrorCode.NONE, 1),
        (RegisterControllerRequest(key(3), (HERE, HERE), SUPPORTED), ErrorCode.INVALID_REGISTRATION, 1),
        (RegisterControllerRequest(key(4), (HERE,), OLD), ErrorCode.UNSUPPORTED_VERSION, 1),
    ):
        asked = lone.new_reply_to()
        lone.turn(RaftRequest(request, asked))
        lone.run_until_idle()
        assert lone.answers[asked] == RegisterControllerResponse(error, lone.node.core.epoch, 1)
        assert lone.node.log.end == end + grows
    assert lone.node.state.committed.controllers[3] == RegisterController(3, directory_id(3), (HERE,), SUPPORTED)


def test_a_level_rises_only_with_the_registrations_of_all_voters() -> None:
    """The active controller asks for its own voter set, which no image knows."""
    lone = alone(NodeConfig(controller=ControllerConfig(bootstrap_metadata_version=1), features=OLD))
    up = UpdateFeatures((FeatureUpdate("metadata.version", 2),))
    for features, end in ((OLD, Refused), (SUPPORTED, UpdateFeaturesReply)):
        lone = alone(lone.config._replace(features=features), lone.disk)
        asked = lone.new_reply_to()
        lone.turn(Submission(up, asked, lone.now_ms + 1_000))
        lone.run_until_idle()
        answer = lone.answers[asked]
        assert isinstance(answer, end), answer
        assert not isinstance(answer, Refused) or "controller 1 supports 1 to 1" in answer.message
    assert lone.node.state.committed.metadata_version == 2


def test_a_controller_becomes_a_voter_only_with_the_features_of_the_cluster() -> None:
    """At level 2 the leader waits for the registration of controller 2: release 0.1.0 sends none, and cannot replay the log."""
    lone = alone()
    asked = ask_to_add_2(lone)
    assert asked not in lone.answers
    lone.turn(RaftRequest(RegisterControllerRequest(key(2), (HERE,), SUPPORTED), lone.new_reply_to()))
    lone.run_until_idle()
    assert lone.node.core.voters.contains(key(2))


def test_a_controller_of_an_old_release_is_no_new_voter() -> None:
    """Controller 2 registered as a voter of level 1, was removed, and the level has risen meanwhile. The refusal names it."""
    lone = alone(NodeConfig(controller=ControllerConfig(bootstrap_metadata_version=1)))
    for request in (
        RaftRequest(RegisterControllerRequest(key(2), (HERE,), OLD), lone.new_reply_to()),
        Submission(UpdateFeatures((FeatureUpdate("metadata.version", 2),)), lone.new_reply_to(), lone.now_ms + 1_000),
    ):
        lone.turn(request)
        lone.run_until_idle()
    answer = lone.answers[ask_to_add_2(lone)]
    assert isinstance(answer, QuorumChangeResponse)
    assert answer.error is ErrorCode.UNSUPPORTED_VERSION
    assert answer.message == (
        "controller 2 lacks what this cluster needs: metadata.version 2 (it supports 1 to 1); nothing was done"
    )


def test_at_level_1_a_new_voter_needs_no_registration() -> None:
    """Every release supports level 1, and release 0.1.0 registers no controllers."""
    lone = alone(NodeConfig(controller=ControllerConfig(bootstrap_metadata_version=1)))
    ask_to_add_2(lone)
    assert lone.node.core.voters.contains(key(2))


def test_a_leader_that_loads_its_image_adds_no_voter() -> None:
    """A restarted leader with an empty image takes the level for 1, although its snapshot says more. So the leader waits."""
    before = alone()
    before.turn(SnapshotWanted("test", before.new_reply_to(), before.now_ms + 1_000))
    before.run_until_idle()
    lone = LoneNode(before.disk, before.config)
    flush_only(lone)
    assert lone.node.core.is_leading and not lone.node.active.on
    asked = begin_to_add_2(lone)
    flush_only(lone)
    assert any(isinstance(job, LoadSnapshotJob) for job in lone.jobs)
    assert not lone.node.core.voters.contains(key(2))
    lone.run_until_idle()
    assert lone.node.state.committed.metadata_version == METADATA_VERSION_MAX
    assert not lone.node.core.voters.contains(key(2)), "it has not registered"
    lone.now_ms += 1_000
    lone.turn()
    answer = lone.answers[asked]
    assert isinstance(answer, QuorumChangeResponse)
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT


def flush_only(lone: LoneNode) -> None:
    """Every flush, and what follows from it; other jobs wait."""
    while lone.flushes():
        lone.finish(lone.flushes()[0])


def ask_to_add_2(lone: LoneNode) -> ReplyTo:
    """Controller 2 fetches at the leader's end, and an operator asks to add it."""
    asked = begin_to_add_2(lone)
    lone.run_until_idle()
    return asked


def begin_to_add_2(lone: LoneNode) -> ReplyTo:
    shape, epoch = lone.node.log.shape, lone.node.core.epoch
    fetch = FetchRequest(key(2), epoch, 1, shape.end, epoch, shape.chain, 0, 0, 1)
    lone.turn(RaftRequest(fetch, lone.new_reply_to()))
    asked = lone.new_reply_to()
    lone.turn(RaftRequest(AddVoterRequest(Voter(*key(2), (HERE,)), True, 1_000), asked))
    return asked
