"""`--version` of the daemons: an operator compares what runs on two machines without reading a package list."""

import pytest

from broker_agent.__main__ import main as brokerd
from quorum.__main__ import main as quorumd
from service_kit.process.release import release_line


@pytest.mark.parametrize("daemon", [quorumd, brokerd])
def test_a_daemon_says_its_release_and_ends(daemon: object, capsys: pytest.CaptureFixture[str]) -> None:
    """No configuration is needed for it, and the words are those of `quorumctl --version`."""
    assert callable(daemon)
    with pytest.raises(SystemExit) as ended:
        daemon(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == release_line() + "\n"
