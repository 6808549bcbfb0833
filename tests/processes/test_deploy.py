"""What lies in `deploy/` is true: the sample configurations are accepted as they stand, and units start what there is."""

import configparser
import shlex
from pathlib import Path

import pytest
import yaml

from broker_agent.__main__ import REPORT_DEATH
from broker_agent.config import load
from quorum.config import QuorumConfig
from service_kit.process.config import load_config
from snapshots.offline.__main__ import main as quorum_offline

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_sample_controller() -> None:
    """Every key is known, and the values fit together."""
    config = load_config(QuorumConfig, DEPLOY / "config" / "controller.yaml", {})
    assert config.node_config().problems() == []
    assert config.tls_files is not None


def test_the_sample_broker() -> None:
    config = load(DEPLOY / "config" / "broker.yaml", {})
    assert [str(each) for each in config.controller_quorum_bootstrap_servers] == [
        "10.0.0.1:9001",
        "10.0.0.2:9001",
        "10.0.0.3:9001",
    ]


def read_unit(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd" / name)
    return unit


@pytest.mark.parametrize(("name", "config"), [("quorumd", "controller"), ("brokerd", "broker")])
def test_units_start_what_there_is(name: str, config: str) -> None:
    """A configuration that a restart will not mend is not tried again."""
    service = read_unit(f"{name}.service")["Service"]
    assert service["ExecStart"] == f"/opt/metaquorum/bin/{name} --config /etc/metaquorum/{config}.yaml"
    assert service["RestartPreventExitStatus"] == "78"
    assert service["Type"] == "notify"
    if name == "brokerd":
        assert (
            service["ExecStopPost"]
            == f"-/opt/metaquorum/bin/{name} {REPORT_DEATH} --config /etc/metaquorum/{config}.yaml"
        )


def test_the_nightly_audits_are_commands_that_there_are() -> None:
    """The timer's unit and the CronJob give words that `quorum-offline audit` accepts."""
    program, *of_unit = shlex.split(read_unit("metaquorum-audit.service")["Service"]["ExecStart"])
    assert program == "/opt/metaquorum/bin/quorum-offline"
    assert read_unit("metaquorum-audit.timer")["Timer"]["Persistent"] == "true"
    job = yaml.safe_load((DEPLOY / "kubernetes" / "audit.yaml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    program, *of_pod = pod["containers"][0]["command"]
    assert program == "quorum-offline" and pod["restartPolicy"] == "Never"
    for words, nodes in ((of_unit, 1), (of_pod, 3)):
        assert words[0] == "audit"
        parsed = quorum_offline.commands["audit"].make_context("audit", words[1:]).params
        assert len(parsed["directories"]) == nodes and parsed["report"] and parsed["summary_file"]
        assert parsed["baseline_file"]
