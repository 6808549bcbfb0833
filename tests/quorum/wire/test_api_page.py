"""docs/api.md says what the .proto files and the services say."""

import re
import runpy
from pathlib import Path
from typing import Final

import pytest

from metadata_log.format.errors import ErrorCode
from tests.quorum.wire.test_refusals import TABLE

ROOT: Final = Path(__file__).resolve().parents[3]
SCRIPT: Final = runpy.run_path(str(ROOT / "scripts" / "api_page.py"))
COMMENTS: Final[dict[str, str]] = SCRIPT["comments"]()


NEED_A_STATE: Final = {
    "BrokerService.ReportDeath": {"UNSUPPORTED_VERSION"},
    "VoterService.ReadLog": {"STORAGE_ERROR"},
    "VoterService.AddVoter": {"BROKER_NOT_AVAILABLE", "UNSUPPORTED_VERSION"},
    "VoterService.RemoveVoter": {"BROKER_NOT_AVAILABLE"},
    "VoterService.UpdateVoter": {"BROKER_NOT_AVAILABLE"},
    "VoterService.RegisterController": {"BROKER_NOT_AVAILABLE"},
    "EntityService.Transact": {"INVALID_ENTITY"},
    "EntityService.AlterKinds": {"POLICY_VIOLATION"},
    "EntityService.OpenSession": {"POLICY_VIOLATION"},
    "AdminService.ReadTree": {"THROTTLING_QUOTA_EXCEEDED", "STORAGE_ERROR", "RECORD_BATCH_TOO_LARGE"},
    "AdminService.UpdateFeatures": {"FEATURE_UPDATE_FAILED"},
    "AdminService.CreateAcls": {"POLICY_VIOLATION"},
    "AdminService.DeleteAcls": {"POLICY_VIOLATION"},
    "AdminService.AlterUserScramCredentials": {"POLICY_VIOLATION"},
    "AdminService.AlterClientQuotas": {"POLICY_VIOLATION"},
    "AdminService.DeleteTopics": {"POLICY_VIOLATION", "TOPIC_DELETION_DISABLED"},
    "AdminService.IncrementalAlterConfigs": {"POLICY_VIOLATION"},
    "AdminService.AlterLabels": {"POLICY_VIOLATION", "UNSUPPORTED_VERSION"},
    "AdminService.AlterConfigKeys": {"POLICY_VIOLATION", "UNSUPPORTED_VERSION"},
    "AdminService.AlterPartitionReassignments": {
        "UNSUPPORTED_VERSION",
        "INVALID_REPLICATION_FACTOR",
        "THROTTLING_QUOTA_EXCEEDED",
    },
    "AdminService.ElectLeaders": {"PREFERRED_LEADER_NOT_AVAILABLE", "ELIGIBLE_LEADERS_NOT_AVAILABLE"},
    "AdminService.FenceBroker": {"POLICY_VIOLATION"},
    "AdminService.UnfenceBroker": {"POLICY_VIOLATION", "UNSUPPORTED_VERSION"},
    "AdminService.DrainBroker": {"POLICY_VIOLATION", "UNSUPPORTED_VERSION"},
    "AdminService.UndrainBroker": {"POLICY_VIOLATION", "UNSUPPORTED_VERSION"},
    "AdminService.AddVoter": {"UNSUPPORTED_VERSION"},
    "AdminService.RemoveVoter": {"NOT_READY"},
    "AdminService.SkipBatch": {"POLICY_VIOLATION", "UNSUPPORTED_VERSION"},
    "BrokerService.AssignReplicasToDirs": {"UNSUPPORTED_VERSION", "NOT_LEADER_OR_FOLLOWER"},
}
"""The errors that no request alone can cause: the node has to be in a certain state, or to have a certain config."""


def _named(comment: str) -> set[str]:
    return {code.name for code in ErrorCode} & set(re.findall(r"[A-Z_]{6,}", comment))


def test_the_page_is_fresh() -> None:
    """The page has a table for each service and message; nobody writes in it by hand."""
    is_fresh = (ROOT / "docs" / "api.md").read_text() == SCRIPT["page"]()
    assert is_fresh, "docs/api.md is stale: run `make pages`, and commit the page with the code"


def test_everything_has_a_comment() -> None:
    """Each service, method, message, field, enum and value: a stranger's editor shows these comments, and nothing else."""
    assert [name for name, comment in COMMENTS.items() if not comment] == []


@pytest.mark.parametrize("rpc", TABLE)
def test_a_method_s_comment_names_its_errors(rpc: str) -> None:
    """Those that its service names hold for each of its methods; a stream's calls have those of the methods."""
    service = rpc.split(".")[0]
    known = _named(COMMENTS[rpc]) | _named(COMMENTS[service])
    if rpc == "AdminService.Submit":
        known |= _named(COMMENTS["AdminService.CreateTopics"])
    assert {row.code.name for row in TABLE[rpc]} <= known


@pytest.mark.parametrize("rpc", TABLE)
def test_each_error_in_a_method_s_comment_has_a_row(rpc: str) -> None:
    """The codes after "Errors:" or "Errors of a topic:". A code that no node returns would mislead every client."""
    lists = re.findall(r"Errors(?: of an? \w+)?:([^.]*)", re.sub(r"\([^)]*\)", "", COMMENTS[rpc]))
    named = {code for codes in lists for code in re.findall(r"[A-Z_]{6,}", codes)}
    rows = {row.code.name for row in TABLE[rpc]}
    missing = named - rows - NEED_A_STATE.get(rpc, set())
    assert not missing, f"{rpc}: no row in tests/quorum/wire/test_refusals.py expects {missing}, nor does NEED_A_STATE"
    assert not (extra := NEED_A_STATE.get(rpc, set()) - (named - rows)), f"{rpc}: NEED_A_STATE needs no {extra}"
