"""The quorum confirms a snapshot file, before the file becomes the state of a stopped node. Pure.

A snapshot file proves that its bytes are intact. The file does not prove that the cluster ever agreed on them: its chain begins
nowhere, and a file that somebody made up has good checksums, too. So the controllers are asked, by two calls that every operator
may make: DescribeQuorum (of the leader) and ListSnapshots (of each voter). A controller writes a snapshot only when its end is
committed, so a controller that lists the same end with the same SHA-256 confirms three things at once: the history is the
cluster's, the history is committed up to this end, and the records in the file are the state of this history. DescribeChain
would confirm the first only, and only controllers may call it.

The leader confirms, or a majority of the voters. One other controller is not enough, although it may say the same:

    1. Controllers 1, 2 and 3 have snapshots at 500. `quorum recover --to-offset 400` makes controller 1 the only voter of
       generation 2, and the records from 400 on are undone.
    2. Controller 3 still runs, because nobody stopped it. It lists the snapshot at 500, with the right SHA-256.
    3. An operator installs the file of controller 3 on broker 101. The state of broker 101 would be the undone history.
    4. The leader is controller 1. It does not list 500, and controller 3 is no voter: the file is refused.

A leader counts only if a majority has answered it lately, and if its generation of the cluster is the node's. A file that one
voter contradicts is refused, whoever confirms it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.disk.identity import Identity
from metadata_log.format.ids import Epoch, NodeId, Offset, OffsetAndEpoch


class NotConfirmed(Exception):
    """The quorum does not confirm the file. The message says why, and what to do. Nothing was changed."""


class Listed(NamedTuple):
    """A snapshot that a voter lists."""

    end: OffsetAndEpoch
    size: int
    sha256: bytes
    """Empty if the voter did not hash the file: the file is too large, or was deleted meanwhile."""


class VoterSnapshots(NamedTuple):
    """The snapshots of one voter."""

    node_id: NodeId
    snapshots: Sequence[Listed] = ()
    error: str | None = None
    """The reason why the voter could not be asked."""


class QuorumView(NamedTuple):
    """The quorum as its leader describes it, with the snapshots of each voter."""

    cluster_id: str
    generation: int
    leader_id: NodeId | None
    """None: no controller leads, or no majority has answered the leader lately."""
    epoch: Epoch
    high_watermark: Offset | None
    voters: Sequence[VoterSnapshots]


def confirmed_by(file: Listed, identity: Identity, quorum: QuorumView) -> tuple[NodeId, ...]:
    """Returns the voters that have the same file, in ascending order.

    Raises:
        NotConfirmed: the leader does not have the file, nor does a majority of the voters; or a voter contradicts it.
    """
    _check_cluster(identity, quorum)
    if quorum.leader_id is None:
        raise NotConfirmed(
            "no controller leads with a majority behind it now, so nobody can confirm the file. Nothing was changed. "
            "`quorumctl quorum status` shows what each controller knows"
        )
    if quorum.high_watermark is None or quorum.high_watermark < file.end.offset:
        known = "no offset yet" if quorum.high_watermark is None else f"offset {quorum.high_watermark}"
        raise NotConfirmed(
            f"the file ends at {file.end}, and the cluster is committed up to {known}. Nothing was changed. If the file is of "
            "this cluster, the leader has a shorter history than the file: do not go on before you know why"
        )
    having = [each for each in quorum.voters if _there(each, file.end.offset) is not None]
    for voter in having:
        _check_same(voter, file)
    same = tuple(sorted(each.node_id for each in having if (found := _there(each, file.end.offset)) and found.sha256))
    if quorum.leader_id in same or 2 * len(same) > len(quorum.voters):
        return same
    raise NotConfirmed(
        f"the file at {file.end} is confirmed by {_names(same)}, and the leader (controller {quorum.leader_id}) or a majority of "
        f"the {len(quorum.voters)} voters has to confirm it{_silent(quorum.voters)}. Nothing was changed. `quorumctl snapshot "
        "list` shows the snapshots that the controllers have; compact the log to one of their ends, or take the leader's file"
    )


def _check_cluster(identity: Identity, quorum: QuorumView) -> None:
    if quorum.cluster_id != identity.cluster_id:
        raise NotConfirmed(
            f"the directory is of cluster {identity.cluster_id}, and the controllers that answered are of cluster "
            f"{quorum.cluster_id}. Nothing was changed. Check the addresses"
        )
    if quorum.generation != identity.generation:
        raise NotConfirmed(
            f"the directory is of generation {identity.generation} of the cluster, and the cluster is of generation "
            f"{quorum.generation} since its recovery. Nothing was changed. A broker joins the generation by itself when it "
            "starts; a controller needs a new directory: `quorumctl storage format --from HOST:PORT`"
        )


def _there(voter: VoterSnapshots, offset: Offset) -> Listed | None:
    """The snapshot of the voter that ends at `offset`, of any epoch."""
    return next((each for each in voter.snapshots if each.end.offset == offset), None)


def _check_same(voter: VoterSnapshots, file: Listed) -> None:
    """Raises NotConfirmed if the voter has another snapshot at the same offset. A voter without a hash says nothing."""
    theirs = _there(voter, file.end.offset)
    assert theirs is not None, "the caller has found it"
    is_same_end = (theirs.end, theirs.size) == (file.end, file.size)
    if not is_same_end or theirs.sha256 not in (b"", file.sha256):
        raise NotConfirmed(
            f"controller {voter.node_id} has another snapshot at offset {file.end.offset}: {_text(theirs)} there, {_text(file)} "
            "here. Nothing was changed. The file is of another history, or one of the two is wrong: `quorumctl snapshot list` "
            "compares the controllers, `quorum-offline audit` finds the damage"
        )


def _text(listed: Listed) -> str:
    return f"epoch {listed.end.epoch}, {listed.size} bytes, sha256 {listed.sha256.hex()[:16] or 'unknown'}"


def _names(node_ids: Sequence[NodeId]) -> str:
    return "controller " + ", ".join(map(str, node_ids)) if node_ids else "no controller"


def _silent(voters: Sequence[VoterSnapshots]) -> str:
    errors = [f"controller {each.node_id}: {each.error}" for each in voters if each.error is not None]
    return f" ({'; '.join(errors)})" if errors else ""
