"""Settings from file, environment and command line, and the mistakes in them."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from service_kit.process.config import ELSEWHERE, NO_PATH, Config, ConfigErrors, ConfigProblem, effective, load_config
from service_kit.process.endpoints import HostPort, NodeAddress, parse_node_address
from service_kit.process.settings import canonical_key
from service_kit.security.tls_config import SecureConfig

Voter = Annotated[NodeAddress, BeforeValidator(lambda text: parse_node_address(str(text)))]


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


class Tls(BaseModel):
    key_file: Path | None = None
    key_password: str | None = None


class Sample(Config):
    node_id: int = Field(ge=0)
    controller_quorum_voters: tuple[Voter, ...]
    election_timeout_ms: int = Field(default=500, ge=10, le=60_000)
    batch: Annotated[int, AfterValidator(_even)] = 2
    rack: str | None = None
    verbose: bool = False
    tls: Tls = Tls()


def write(path: Path, text: str) -> Path:
    file = path / "c.yaml"
    file.write_text(text)
    return file


def mistakes(path: Path, text: str, env: dict[str, str] | None = None, sets: list[str] | None = None) -> list[str]:
    """What is wrong, with the directory left out."""
    with pytest.raises(ConfigErrors) as e:
        load_config(Sample, write(path, text), env or {}, sets or [])
    return [str(problem).replace(f"{path}/", "") for problem in e.value.problems]


GOOD = "node.id: 1\ncontroller.quorum.voters: 1@a:1,2@b:2\n"


def test_flat_and_nested_keys_are_one(tmp_path: Path) -> None:
    """Kafka's dotted keys, YAML's nesting and Python's underscores name the same thing."""
    voters = (NodeAddress(1, HostPort("a", 1)), NodeAddress(2, HostPort("b", 2)))

    flat = load_config(Sample, write(tmp_path, GOOD + "tls.key.file: /k\n"), {})
    nested = load_config(
        Sample,
        write(tmp_path, "node: {id: 1}\ncontroller:\n  quorum:\n    voters: ['1@a:1', '2@b:2']\ntls: {key_file: /k}"),
        {},
    )

    assert flat.model_dump() == nested.model_dump()
    assert flat.controller_quorum_voters == voters
    assert flat.tls.key_file == Path("/k")
    assert {canonical_key(k) for k in ("NODE__ID", "node_id", "node-id", " Node.Id ")} == {"node.id"}


def test_later_sources_win_and_are_remembered(tmp_path: Path) -> None:
    """default < file < environment < --set; `effective` says which it was, and hides secrets."""
    file = write(tmp_path, GOOD + "election.timeout.ms: 100\nrack: 7\ntls.key.password: hunter2\n")
    env = {"METAQUORUM__ELECTION_TIMEOUT_MS": "200", "METAQUORUM__VERBOSE": "true", "HOME": "/x"}

    config = load_config(Sample, file, env, ["election.timeout.ms=300"])

    assert (config.election_timeout_ms, config.verbose, config.rack) == (300, True, "7")
    assert [tuple(row) for row in effective(config)] == [
        ("batch", "2", "default"),
        ("controller.quorum.voters", "1@a:1,2@b:2", f"{file}:2"),
        ("election.timeout.ms", "300", "--set"),
        ("node.id", "1", f"{file}:1"),
        ("rack", "7", f"{file}:4"),
        ("tls.key.file", "", "default"),
        ("tls.key.password", "[hidden]", f"{file}:5"),
        ("verbose", "true", "METAQUORUM__VERBOSE"),
    ]


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    """An unknown key, a wrong type, a value out of range, one that its own rule refuses, a missing key: one answer."""
    text = "election.timout.ms: 5\nelection.timeout.ms: fast\ncontroller.quorum.voters: 1@a\nbatch: 3\n"

    assert mistakes(tmp_path, text, {"METAQUORUM__WHAT": "1"}, ["verbose", "verbose=perhaps"]) == [
        "--set: key=value expected, not 'verbose'",
        "c.yaml:1: election.timout.ms: no such key; did you mean election.timeout.ms?",
        f"METAQUORUM__WHAT: what: {ELSEWHERE}",
        "node.id: required, but not given",
        "c.yaml:3: controller.quorum.voters: host:port expected (IPv6 as [::1]:9093), not 'a'",
        "c.yaml:2: election.timeout.ms: input should be a valid integer, unable to parse string as an integer, not 'fast'",
        "c.yaml:4: batch: must be even",
        "--set: verbose: input should be a valid boolean, unable to interpret input, not 'perhaps'",
    ]


def test_an_empty_path_is_refused_by_name() -> None:
    """1. A unit file has `--set tls.private.key=$KEY`, and KEY is not set.  2. The daemon does not take the current directory for
    the key, and does not start without TLS: it names the key."""
    empty = [f"tls.{key}=" for key in ("certificate.chain", "private.key", "certificate.authority")]
    with pytest.raises(ConfigErrors) as refused:
        load_config(SecureConfig, None, {}, empty)
    assert [str(each) for each in refused.value.problems] == [f"--set: {each[:-1]}: {NO_PATH}" for each in empty]


def test_out_of_range_and_yes_for_a_number(tmp_path: Path) -> None:
    """YAML's `yes` is true, and Python's true is 1: a node must not get the id 1 that way."""
    assert mistakes(tmp_path, "node.id: yes\ncontroller.quorum.voters: 1@a:1\nelection.timeout.ms: 5\n") == [
        "c.yaml:1: node.id: a number expected, not true",
        "c.yaml:3: election.timeout.ms: input should be greater than or equal to 10, not 5",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a\n", "c.yaml:1: a mapping of keys to values expected"),
        ("a: [\n", "c.yaml:2: not YAML: expected the node content, but found '<stream end>'"),
        (GOOD + "node_id: 2\n", "c.yaml:3: node.id: given already at c.yaml:1"),
        ("a: &x 1\nb: *x\n", "c.yaml:2: anchors and aliases are not allowed in config files"),
        (
            GOOD + "rack: !!python/object/apply:os.system [ls]\n",
            (
                "c.yaml:3: rack: not a plain value: could not determine a constructor for the tag "
                "'tag:yaml.org,2002:python/object/apply:os.system'"
            ),
        ),
        ("? [a]\n: 1\n", "c.yaml:1: a key must be plain text"),
        (GOOD + "rack: 2026-13-45\n", "c.yaml:3: rack: not a plain value: month must be in 1..12"),
        ("a: " + "[" * 500_000, "c.yaml:1: nested too deeply (more than 16 levels)"),
        ("#" * (1 << 20) + "\n", "c.yaml: larger than 1 MiB"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, problem: str) -> None:
    """The line is named; nothing in a file can run code, fill the memory or overflow the stack."""
    assert problem in mistakes(tmp_path, text)


def test_no_file_and_no_text(tmp_path: Path) -> None:
    """A file that is not there is a mistake like others; no file at all is fine."""
    with pytest.raises(ConfigErrors) as e:
        load_config(Sample, tmp_path / "gone.yaml", {"METAQUORUM__NODE__ID": "1"})
    assert e.value.problems[0] == ConfigProblem("", "No such file or directory", f"{tmp_path}/gone.yaml")

    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigErrors, match="not UTF-8: invalid start byte at byte 3"):
        load_config(Sample, binary, {})

    assert load_config(Sample, None, {}, ["node.id=1", "controller.quorum.voters=1@a:1"]).node_id == 1
