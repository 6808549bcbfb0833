"""SCRAM credentials of users (KIP-554): what is kept, what is refused, and that no secret is told."""

import random

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import RemoveUserScramCredential, UserScramCredential
from quorum.controller.protocol import happenings as told
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.rights.scram_commands import (
    AlterUserScramCredentials,
    AlterUserScramCredentialsReply,
    ScramAlteration,
    ScramSecrets,
)
from quorum.controller.rights import scram
from tests.quorum.controller.cluster import Cluster

SECRETS = ScramSecrets(4_096, b"salt", b"s" * 32, b"v" * 32)
ALICE = ScramAlteration("alice", 1, SECRETS)


def alter(*alterations: ScramAlteration, dry: bool = False) -> AlterUserScramCredentials:
    return AlterUserScramCredentials(alterations, dry)


def test_a_credential_is_set_and_removed() -> None:
    """A repetition writes nothing; the story and the command's text have no secret."""
    cluster = Cluster()
    assert cluster.run(alter(ALICE, dry=True)).records == []
    ran = cluster.run(alter(ALICE))
    assert ran.records == [UserScramCredential("alice", 1, b"salt", b"s" * 32, b"v" * 32, 4_096)]
    assert ran.happenings == [told.UsersChanged(1, ("alice",))]
    assert "salt=" not in repr(alter(ALICE)) and "ssss" not in repr(alter(ALICE))
    assert cluster.run(alter(ALICE)).records == []
    gone = ScramAlteration("alice", 1, None)
    assert cluster.run(alter(gone)).records == [RemoveUserScramCredential("alice", 1)]
    assert cluster.run(alter(gone)).records == []


@pytest.mark.parametrize(
    ("alteration", "said"),
    [
        (ScramAlteration("", 1, SECRETS), "is empty"),
        (ScramAlteration("a\nb", 1, SECRETS), "printable"),
        (ScramAlteration("alice", 3, SECRETS), "no mechanism 3"),
        (ScramAlteration("alice", 0, None), "no mechanism 0"),
        (ScramAlteration("alice", 2, SECRETS), "must have 64 bytes each"),
        (ScramAlteration("alice", 1, ScramSecrets(4_095, b"salt", bytes(32), bytes(32))), "4096 to 16384"),
        (ScramAlteration("alice", 1, ScramSecrets(16_385, b"salt", bytes(32), bytes(32))), "4096 to 16384"),
        (ScramAlteration("alice", 1, ScramSecrets(4_096, b"", bytes(32), bytes(32))), "the salt has 0 bytes"),
        (ScramAlteration("alice", 1, ScramSecrets(4_096, bytes(65), bytes(32), bytes(32))), "the salt has 65 bytes"),
    ],
)
def test_an_impossible_credential_is_told_why(alteration: ScramAlteration, said: str) -> None:
    """The others of the request are set."""
    cluster = Cluster()
    bob = ScramAlteration("bob", 1, SECRETS)
    bad, good = cluster.ask(alter(alteration, bob), AlterUserScramCredentialsReply).results
    assert (bad.error, good.error) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
    assert said in bad.message and [*cluster.image.scram_credentials] == [("bob", 1)]


def test_a_request_and_a_cluster_have_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    twice = cluster.ask(alter(ALICE, ScramAlteration("alice", 1, None)), AlterUserScramCredentialsReply).results
    assert all("more than once" in each.message for each in twice)
    with pytest.raises(ControllerError, match="1,001 alterations"):
        cluster.run(alter(*[ALICE] * 1_001))
    monkeypatch.setattr(scram, "CREDENTIALS_MAX", 1)
    cluster.run(alter(ALICE))
    with pytest.raises(ControllerError, match="remove some first"):
        cluster.run(alter(ScramAlteration("bob", 1, SECRETS)))
    cluster.run(alter(ScramAlteration("alice", 1, ScramSecrets(9_000, b"s", bytes(32), bytes(32)))))


@pytest.mark.parametrize("seed", range(10))
def test_what_is_kept_is_what_the_dumb_twin_says(seed: int) -> None:
    """Any alterations; the list has users by name, in pages of any size, and iterations only."""
    dice, cluster, twin = random.Random(seed), Cluster(), dict[tuple[str, int], ScramSecrets]()
    for _ in range(80):
        user, mechanism = dice.choice("abcde"), dice.choice((1, 2))
        size = dice.choice((32, 64))
        iterations = dice.choice((4_096, 8_000, 16_384, 1))
        secrets = dice.choice((None, ScramSecrets(iterations, b"salt", bytes(size), bytes(size))))
        is_good = secrets is None or (iterations > 1 and size == 32 * mechanism)
        ran = cluster.run(alter(ScramAlteration(user, mechanism, secrets)))
        assert bool(ran.records) is (is_good and twin.get((user, mechanism)) != secrets)
        if is_good:
            twin.pop((user, mechanism), None)
            twin |= {} if secrets is None else {(user, mechanism): secrets}
        kept = cluster.image.scram_credentials
        assert {key: ScramSecrets(each[5], *each[2:5]) for key, each in kept.items()} == twin
        after, found = "", list[scram.DescribedUser]()
        while True:
            page = scram.describe_users(cluster.image, after, dice.randint(1, 3))
            found += page.users
            if page.is_last:
                break
            after = page.users[-1].user
        assert [(each.user, number, count) for each in found for number, count in each.credentials] == [
            (user, number, twin[user, number].iterations) for user, number in sorted(twin)
        ]
    assert twin
