"""Who has to confirm a snapshot file, and what refutes it."""

import pytest

from metadata_log.disk.identity import Identity
from metadata_log.format.ids import OffsetAndEpoch
from quorum.recovery.confirmation import Listed, NotConfirmed, QuorumView, VoterSnapshots, confirmed_by

FILE = Listed(OffsetAndEpoch(500, 3), 1_000, b"a" * 32)
EARLIER = Listed(OffsetAndEpoch(400, 3), 900, b"b" * 32)
NODE = Identity("cluster", 101, b"d" * 16, 1, "broker")


def view(*voters: VoterSnapshots, leader_id: int | None = 1, high_watermark: int | None = 600) -> QuorumView:
    return QuorumView("cluster", 1, leader_id, 3, high_watermark, voters)


def test_the_leader_alone_confirms() -> None:
    """It holds every committed record, and a majority has answered it lately."""
    silent = VoterSnapshots(3, (), "cannot be reached")
    assert confirmed_by(FILE, NODE, view(VoterSnapshots(1, (EARLIER, FILE)), VoterSnapshots(2), silent)) == (1,)


def test_a_majority_confirms_without_the_leader() -> None:
    """A leader that still writes its own snapshot at this mark has none yet."""
    assert confirmed_by(
        FILE, NODE, view(VoterSnapshots(1), VoterSnapshots(2, (FILE,)), VoterSnapshots(3, (FILE,)))
    ) == (2, 3)


@pytest.mark.parametrize("of_three", [(), (2,), (3,)])
def test_a_minority_does_not(of_three: tuple[int, ...]) -> None:
    """A controller of an undone history may say the same."""
    voters = [VoterSnapshots(each, (FILE,) if each in of_three else (EARLIER,)) for each in (1, 2, 3)]
    with pytest.raises(NotConfirmed, match=r"leader \(controller 1\) or a majority of the 3 voters"):
        confirmed_by(FILE, NODE, view(*voters))


@pytest.mark.parametrize(
    "theirs",
    [
        FILE._replace(sha256=b"x" * 32),
        FILE._replace(size=999),
        FILE._replace(end=OffsetAndEpoch(500, 4)),
        FILE._replace(end=OffsetAndEpoch(500, 2), sha256=b""),
    ],
)
def test_one_voter_with_another_snapshot_there_refutes_the_file(theirs: Listed) -> None:
    """Even if all others have the same file: one of the files is wrong, and nobody knows which."""
    with pytest.raises(NotConfirmed, match="controller 3 has another snapshot at offset 500"):
        confirmed_by(
            FILE, NODE, view(VoterSnapshots(1, (FILE,)), VoterSnapshots(2, (FILE,)), VoterSnapshots(3, (theirs,)))
        )


def test_a_voter_that_did_not_hash_its_file_says_nothing() -> None:
    """Size and end are no proof of the bytes."""
    unhashed = FILE._replace(sha256=b"")
    with pytest.raises(NotConfirmed, match="confirmed by no controller"):
        confirmed_by(FILE, NODE, view(*(VoterSnapshots(each, (unhashed,)) for each in (1, 2, 3))))


def test_nobody_leads() -> None:
    """A leader without a majority may be one that the others have replaced."""
    with pytest.raises(NotConfirmed, match="no controller leads"):
        confirmed_by(FILE, NODE, view(*(VoterSnapshots(each, (FILE,)) for each in (1, 2, 3)), leader_id=None))


@pytest.mark.parametrize("high_watermark", [None, 499])
def test_a_file_above_the_high_watermark_is_not_committed(high_watermark: int | None) -> None:
    with pytest.raises(NotConfirmed, match="the leader has a shorter history than the file"):
        confirmed_by(FILE, NODE, view(VoterSnapshots(1, (FILE,)), high_watermark=high_watermark))


def test_another_cluster_and_another_generation_confirm_nothing() -> None:
    all_have_it = view(*(VoterSnapshots(each, (FILE,)) for each in (1, 2, 3)))
    with pytest.raises(
        NotConfirmed, match="of cluster cluster, and the controllers that answered are of cluster other"
    ):
        confirmed_by(FILE, NODE, all_have_it._replace(cluster_id="other"))
    with pytest.raises(NotConfirmed, match="the cluster is of generation 2 since its recovery"):
        confirmed_by(FILE, NODE, all_have_it._replace(generation=2))
