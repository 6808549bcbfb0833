"""A controller's configuration: Kafka's names, and every mistake named at once."""

from pathlib import Path

import pytest

from quorum.config import QuorumConfig
from quorum.controller.protocol.config import ControllerConfig
from quorum.core.protocol.config import RaftConfig
from quorum.runtime.protocol.node_config import NodeConfig
from service_kit.process.config import ConfigErrors, load_config

LEAST = "node.id: 1\nlisteners: CONTROLLER://127.0.0.1:9001\nmetadata.log.dir: /tmp/c\n"


def load(tmp_path: Path, text: str = LEAST, *overrides: str) -> QuorumConfig:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_config(QuorumConfig, path, {}, overrides)


def test_the_defaults_are_those_of_the_rooms(tmp_path: Path) -> None:
    """A config file that says only what it must changes nothing in Raft, controller, log and retention."""
    config = load(tmp_path)
    assert config.raft_config() == RaftConfig()
    of_this_node = NodeConfig(controller=ControllerConfig(node_id=1))
    assert config.node_config()._replace(endpoints=()) == of_this_node
    assert config.tls_files is None


def test_kafkas_names_reach_their_fields(tmp_path: Path) -> None:
    """One of each section."""
    config = load(
        tmp_path,
        LEAST,
        "controller.quorum.election.timeout.ms=100",
        "controller.quorum.fetch.timeout.ms=400",
        "controller.quorum.fetch.max.bytes=65536",
        "controller.quorum.fetch.snapshot.max.bytes=131072",
        "controller.quorum.fetch.piece.min.bytes=2048",
        "broker.session.timeout.ms=1800",
        "metadata.log.max.record.bytes.between.snapshots=4096",
        "metadata.max.retention.bytes=2097152",
        "num.partitions=6",
        "controller.quorum.voters=1@c1:9001,2@c2:9002",
    )
    node = config.node_config()
    assert (node.raft.election_timeout_min_ms, node.raft.election_timeout_max_ms) == (100, 200)
    assert node.raft.fetch_timeout_ms == 400
    assert (node.raft.fetch_bytes_max, node.raft.snapshot_chunk_bytes) == (64 << 10, 128 << 10)
    assert node.raft.piece_bytes_min == 2_048
    assert (node.controller.session_timeout_ms, node.lease_ms, node.quorum_age_ms) == (1_800, 1_000, 400)
    assert node.marks.bytes_between == 4_096
    assert node.retention.max_bytes == 2 << 20
    assert node.controller.default_partitions == 6
    assert {node_id: each.host for node_id, each in config.voter_endpoints.items()} == {1: "c1", 2: "c2"}


@pytest.mark.parametrize(
    ("listens", "advertised", "host"),
    [
        ("127.0.0.1:9001", None, "127.0.0.1"),
        ("0.0.0.0:9001", "c1:9001", "c1"),
        ("0.0.0.0:9001", None, None),
        ("[::]:9001", None, None),
        ("127.0.0.1:0", None, None),
    ],
)
def test_a_controller_says_where_it_is_reached_if_it_knows(
    tmp_path: Path, listens: str, advertised: str | None, host: str | None
) -> None:
    """A wildcard or any free port is nothing that others could call: better the log's word than that."""
    text = LEAST.replace("127.0.0.1:9001", listens)
    more = [] if advertised is None else [f"advertised.listeners=CONTROLLER://{advertised}"]
    endpoint = load(tmp_path, text, *more).my_endpoint
    assert (endpoint.host if endpoint is not None else None) == host


def test_every_mistake_is_named(tmp_path: Path) -> None:
    """Missing, misspelt, out of range, and half a TLS configuration."""
    with pytest.raises(ConfigErrors) as caught:
        load(tmp_path, "node.id: -1\nlisteners: nowhere\nnum.partition: 3\ntls.private.key: k.pem\n")
    said = "\n".join(str(problem) for problem in caught.value.problems)
    for expected in ("node.id", "listeners", "did you mean num.partitions?", "metadata.log.dir", "belong together"):
        assert expected in said


def test_who_joins_by_itself_must_say_where_it_is(tmp_path: Path) -> None:
    """The leader would refuse a voter that nobody reaches, again and again, and nobody would be told."""
    text = LEAST.replace("127.0.0.1", "0.0.0.0")
    with pytest.raises(ConfigErrors, match=r"advertised\.listeners"):
        load(tmp_path, text, "controller.quorum.auto.join.enable=true").node_config()
    assert load(tmp_path, LEAST, "controller.quorum.auto.join.enable=true").node_config().raft.auto_join


def test_a_lease_that_outlives_the_session_is_refused(tmp_path: Path) -> None:
    """The safety of fencing hangs on it, so it is no warning."""
    with pytest.raises(ConfigErrors, match="lease"):
        load(tmp_path, LEAST, "broker.lease.ms=8000").node_config()


def test_whose_certificates_are_whose(tmp_path: Path) -> None:
    """Names of another authority, and who may operate the cluster; neither means anything where nobody shows a certificate."""
    tls = "".join(f"tls.{name}: /{name}\n" for name in ("certificate.chain", "private.key", "certificate.authority"))
    names = "tls.node.names: [controller-1@c1.example.org, broker-4@b4.example.org]\n"
    operators = "admin.principals: ['CN=alice,O=Example', CN=bob]\n"
    embedders = "entities.principals: [CN=worker]\n"
    access = load(tmp_path, LEAST + tls + names + operators + embedders).access
    assert [str(each) for each in access.node_names] == ["controller-1@c1.example.org", "broker-4@b4.example.org"]
    assert access.admin_principals == {"CN=alice,O=Example", "CN=bob"}
    assert access.entity_principals == {"CN=worker"}
    with pytest.raises(ConfigErrors, match=r"entities\.principals: needs the three tls files"):
        load(tmp_path, LEAST + embedders).node_config()
    with pytest.raises(ConfigErrors, match=r"tls\.node\.names needs the three tls files"):
        load(tmp_path, LEAST + names)
    shared = "tls.node.names: [controller-1@Host.example.org, broker-1@host.example.org]\n"
    assert len(load(tmp_path, LEAST + tls + shared).access.node_names) == 2, "of one host"
    twice = "tls.node.names: [controller-1@Host.example.org, controller-2@host.example.org]\n"
    with pytest.raises(ConfigErrors, match=r"host\.example\.org to controller-1 and to controller-2"):
        load(tmp_path, LEAST + tls + twice)
    with pytest.raises(ConfigErrors, match="needs the three tls files: without certificates"):
        load(tmp_path, LEAST + operators).node_config()
