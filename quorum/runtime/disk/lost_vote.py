"""Gives a directory that has forgotten its vote a new id: `quorum-state` is missing or damaged, although a node has run here.

A node that has forgotten its votes could vote a second time in the same epoch, so two leaders could be elected. The log may be
whole, but the node must never vote again as the same voter. A voter is its node id *and* its directory id (KIP-853), so the
directory gets a new id, durably, before any other step. Example with voters 1, 2 and 3:
    1. node 1 has voted for 2 in epoch 5; then its `quorum-state` is lost;
    2. node 1 restarts with a new directory id: as this replica it has promised nothing, and is not in the voter set;
    3. node 1 fetches as an observer; candidate 3 of epoch 5 gets no vote from node 1;
    4. an operator admits the new id as a voter, or node 1 joins by itself if `controller.quorum.auto.join.enable` is set.

The start of a lone voter is refused instead, because no other voter could admit the new id.
"""

import logging
from collections.abc import Callable

from metadata_log.disk.files import Directory
from metadata_log.disk.identity import Identity, write_identity
from metadata_log.format.errors import CorruptLog
from metadata_log.format.ids import Epoch, ReplicaKey, Uuid, uuid_text
from quorum.core.protocol.effects import ElectionState
from quorum.core.protocol.voters import VoterSet
from quorum.runtime.disk import election_file

logger = logging.getLogger(__name__)

NewDirectoryId = Callable[[], Uuid]


def begin_as_another(
    directory: Directory,
    identity: Identity,
    *,
    why: str,
    last_epoch: Epoch,
    voters: VoterSet,
    new_directory_id: NewDirectoryId | None,
) -> tuple[Identity, ElectionState]:
    """Gives the directory a new id and an unused vote, in the last epoch of the log.

    After a crash between the two writes the vote is still missing, and the next start gives the directory yet another id.

    Raises:
        CorruptLog: the node is the only voter, or `new_directory_id` is None.
    """
    former = ReplicaKey(identity.node_id, identity.directory_id)
    if new_directory_id is None or voters.keys == (former,):
        raise CorruptLog(
            f"{why}: this node has forgotten its vote; restore the file, or give the node a new directory id and let it "
            "fetch from the others"
        )
    identity = identity._replace(directory_id=new_directory_id())
    write_identity(directory, identity)
    election = ElectionState(last_epoch, None, None)
    election_file.save(directory, election)
    logger.error(
        "%s: this directory has forgotten its vote and must not vote again as %s. It goes on as %s, an observer, until that is "
        "admitted (quorumctl quorum add-voter; or controller.quorum.auto.join.enable)",
        why,
        uuid_text(former.directory_id),
        uuid_text(identity.directory_id),
    )
    return identity, election
