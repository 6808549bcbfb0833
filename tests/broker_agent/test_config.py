"""A broker's configuration: defaults that work, and every mistake named at once, in words that say what to do."""

import io
import shutil
from pathlib import Path

import pytest

from broker_agent.config import BrokerConfig, load
from broker_agent.process import advertised, download_sizes, run_broker, session_config
from broker_agent.session.lifecycle import LeaseMode
from metadata_log.format.records import Endpoint
from service_kit.process.config import ConfigErrors
from service_kit.process.endpoints import HostPort
from service_kit.process.logs import Logs, get_logger
from service_kit.rpc.doors import doors_of
from service_kit.security.node_identity import BROKER, Node
from tests.processes.certificates import Authority

LEAST = {
    "node.id": "4",
    "controller.quorum.bootstrap.servers": "c1:9093,[::1]:9094",
    "metadata.log.dir": "/var/lib/metaquorum/b4",
}


def loaded(**changes: str) -> BrokerConfig:
    """The least configuration, changed. `__` stands for a dot in a name."""
    values = {**LEAST, **{name.replace("__", "."): value for name, value in changes.items()}}
    return load(None, {}, [f"{key}={value}" for key, value in values.items()])


def mistakes(**changes: str) -> list[str]:
    """What is wrong with that."""
    with pytest.raises(ConfigErrors) as caught:
        loaded(**changes)
    return [str(problem) for problem in caught.value.problems]


def test_three_keys_are_enough() -> None:
    """The rest has defaults; without TLS only loopback is bound."""
    config = loaded()

    assert config.node_id == 4
    assert config.controller_quorum_bootstrap_servers == (HostPort("c1", 9093), HostPort("::1", 9094))
    assert config.metadata_log_dir == Path("/var/lib/metaquorum/b4")
    assert [str(each) for each in config.advertised] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.lease_mode is LeaseMode.STRICT


def test_a_file_may_write_lists_as_lists(tmp_path: Path) -> None:
    """And environment and command line win over it."""
    path = tmp_path / "broker.yaml"
    path.write_text(
        "node.id: 4\nlisteners: [A://localhost:1, B://localhost:2]\n"
        "controller.quorum.bootstrap.servers: [c1:1, c2:2]\nmetadata.log.dir: /b4\n"
    )
    config = load(path, {"METAQUORUM__BROKER__RACK": "r1"}, ["node.id=5"])

    assert [str(each) for each in config.listeners] == ["A://localhost:1", "B://localhost:2"]
    assert (config.node_id, config.broker_rack) == (5, "r1")


def test_the_session_gets_its_times() -> None:
    """Under Kafka's names."""
    config = session_config(loaded(controlled__shutdown__deadline__ms="7000", lease__mode="advisory"))

    assert config.shutdown_deadline_ms == 7_000
    assert config.lease_mode is LeaseMode.ADVISORY


def test_a_data_plane_is_beside_the_agent_unless_it_is_said_otherwise() -> None:
    """`none` is never the default: with it replicas come into ISRs whatever data they have."""
    assert loaded().broker_data_plane == "external"
    assert loaded(broker__data__plane="none").broker_data_plane == "none"
    assert "broker.data.plane: one of partitions, external, none expected" in mistakes(broker__data__plane="maybe")[0]


async def test_a_broker_that_is_embedded_refuses_to_do_without_a_data_plane(tmp_path: Path) -> None:
    """A caller that asks for the agent has something beside it that moves data. Nothing is opened, bound or registered."""
    config = loaded(broker__data__plane="none", metadata__log__dir=str(tmp_path / "b4"))
    with pytest.raises(ConfigErrors, match="no data plane runs") as refused:
        await run_broker(config, lambda: 0, get_logger("test"), started=lambda agent: None)
    (problem,) = refused.value.problems
    assert (problem.key, problem.origin) == ("broker.data.plane", "--set")
    assert not (tmp_path / "b4").exists()


def test_the_sizes_of_pieces_reach_the_session_and_the_download() -> None:
    """Of the log and of a snapshot."""
    config = loaded(
        metadata__fetch__max__bytes="65536",
        metadata__fetch__snapshot__max__bytes="131072",
        metadata__fetch__piece__min__bytes="2048",
    )
    session, download = session_config(config), download_sizes(config)
    assert (session.piece_bytes_min, session.max_bytes) == (2_048, 64 << 10)
    assert (download.min_bytes, download.max_bytes) == (2_048, 128 << 10)


def test_port_0_is_advertised_as_the_port_that_was_bound() -> None:
    """Whatever host is advertised."""
    config = loaded(listeners="A://127.0.0.1:0", advertised__listeners="A://b4:0")

    assert advertised(config, (Endpoint("A", "127.0.0.1", 4711),)) == (Endpoint("A", "b4", 4711),)


def test_whose_certificates_are_whose() -> None:
    """A subject has commas of its own, so that a list of several is written in the file."""
    files = {f"tls__{name}": f"/{name}" for name in ("certificate__chain", "private__key", "certificate__authority")}
    config = loaded(
        **files,
        tls__node__names="broker-4@B4.example.org,controller-1@c1",
        admin__principals="CN=alice",
        entities__principals="CN=worker",
    )
    assert config.tls_files is not None
    assert [str(each) for each in config.access.node_names] == ["broker-4@b4.example.org", "controller-1@c1"]
    assert config.access.admin_principals == {"CN=alice"}
    assert config.access.entity_principals == {"CN=worker"}
    assert any("broker-ID@name expected" in each for each in mistakes(**files, tls__node__names="b4.example.org"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificates can be made")
def test_a_broker_says_whether_every_certificate_operates_the_cluster(tmp_path: Path) -> None:
    """Without `admin.principals` whoever has a certificate of the authority may change everything, through this broker too."""
    files = Authority(tmp_path / "ca").sign_node(BROKER, 4, "test-cluster")
    given = {
        "tls__certificate__chain": str(files.certificate_chain),
        "tls__private__key": str(files.private_key),
        "tls__certificate__authority": str(files.certificate_authority),
    }
    for more, is_open in (({}, True), ({"admin__principals": "CN=alice"}, False)):
        stream = io.StringIO()
        with Logs("info", "json", stream=stream):
            config, warn = loaded(**given, **more), get_logger("test").warning
            doors = doors_of(Node(BROKER, 4), "test-cluster", config.tls_files, config.access, warn)
        assert doors.admin_principals == (set() if is_open else {"CN=alice"})
        assert ("admin.principals is not set" in stream.getvalue()) is is_open, stream.getvalue()


def test_all_mistakes_are_named_at_once() -> None:
    """Whoever mends one does not find the next only then."""
    found = mistakes(node__id="four", lease__mode="loose", listeners="127.0.0.1:9092", listneers="x")

    assert len(found) == 4
    for part in ("node.id: ", "lease.mode: one of strict, advisory", "NAME://host:port", "did you mean listeners?"):
        assert any(part in mistake for mistake in found), (part, found)


def test_what_is_missing_is_said() -> None:
    """All of it."""
    with pytest.raises(ConfigErrors) as caught:
        load(None, {}, [])

    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"listeners": "A://0.0.0.0:9092", "advertised__listeners": "A://b4:9092"}, "without TLS"),
        ({"listeners": "A://0.0.0.0:9092", "allow__insecure__remote": "true"}, "no address that others"),
        ({"advertised__listeners": "TLS://b4:9092"}, "same listeners"),
        ({"metadata__fetch__max__wait__ms": "4000"}, "no room for three fetches"),
        ({"listeners": "A://localhost:1,A://localhost:2"}, "named twice"),
        ({"controller__quorum__bootstrap__servers": "c1"}, "host:port"),
        ({"controller__quorum__bootstrap__servers": "c1:0"}, "port 0 cannot be called"),
        ({"node__id": "-1"}, "greater than or equal to 0"),
        ({"log__level": "loud"}, "one of debug, info"),
        ({"tls__private__key": "/k.pem"}, "tls"),
        ({"admin__principals": "CN=alice"}, "needs the three tls files: without certificates"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(changes: dict[str, str], words: str) -> None:
    """And with where it was said."""
    found = mistakes(**changes)

    assert any(words in mistake for mistake in found), found


def test_a_broker_with_partitions_needs_log_directories_of_its_own() -> None:
    """And a log directory without such a data plane would never be used."""
    config = loaded(broker__data__plane="partitions", log__dirs="/disk1, /disk2")
    assert config.log_dirs == (Path("/disk1"), Path("/disk2"))

    assert "needs at least one log directory" in mistakes(broker__data__plane="partitions")[0]
    assert "is for broker.data.plane: partitions, and not external" in mistakes(log__dirs="/disk1")[0]
    for twice in ("/disk1,/disk1", "/disk1,/var/lib/metaquorum/b4"):
        assert "named twice" in mistakes(broker__data__plane="partitions", log__dirs=twice)[0]


def test_a_broker_with_partitions_has_no_data_plane_beside_it() -> None:
    """Two data planes would both act on the same assignments."""
    for key in ("data__plane__listener", "data__plane__hook"):
        value = "127.0.0.1:0" if key.endswith("listener") else "/bin/obey"
        found = mistakes(broker__data__plane="partitions", log__dirs="/disk1", **{key: value})
        assert key.replace("__", ".") in found[0]
        assert "inside of it" in found[0]


def test_brokers_fetch_from_each_other_at_a_listener_that_exists() -> None:
    found = mistakes(broker__data__plane="partitions", log__dirs="/disk1", inter__broker__listener__name="X")
    assert "inter.broker.listener.name: 'X' is none of the listeners" in found[0]


def test_a_followers_fetch_is_shorter_than_the_lag_that_costs_its_place() -> None:
    found = mistakes(broker__data__plane="partitions", log__dirs="/disk1", replica__lag__time__max__ms="900")
    assert "leaves no room for two fetches" in found[0]
