"""What lies in `deploy/` is true: the sample configurations are accepted as they stand, and units start what there is."""

import configparser
from pathlib import Path

import pytest

from broker_agent.__main__ import REPORT_DEATH
from broker_agent.config import load
from quorum.config import QuorumConfig
from service_kit.process.config import load_config

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


@pytest.mark.parametrize(("name", "config"), [("quorumd", "controller"), ("brokerd", "broker")])
def test_units_start_what_there_is(name: str, config: str) -> None:
    """A configuration that a restart will not mend is not tried again."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd" / f"{name}.service")
    service = unit["Service"]
    assert service["ExecStart"] == f"/opt/metaquorum/bin/{name} --config /etc/metaquorum/{config}.yaml"
    assert service["RestartPreventExitStatus"] == "78"
    assert service["Type"] == "notify"
    if name == "brokerd":
        assert (
            service["ExecStopPost"]
            == f"-/opt/metaquorum/bin/{name} {REPORT_DEATH} --config /etc/metaquorum/{config}.yaml"
        )
