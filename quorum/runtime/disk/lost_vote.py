"""A directory that has forgotten its vote: `quorum-state` is gone or unreadable, although the directory has been in use.

Whom this directory voted for, and in which epochs, is not known any more; asked again, it could vote a second time in one
epoch, and that makes two leaders. Its log may be whole, but as this voter it must never speak again (KIP-853: a replica is
its node id *and* its directory id). So the directory gets another id, durably, before anything else is done. Under that it
has promised nothing and is not in the voter set: it fetches as an observer, and votes again only when it has been admitted
under the new id, by an operator or by itself where `controller.quorum.auto.join.enable` says so.

A lone voter is refused instead: there is nobody who could admit it.
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
    """Gives the directory another id, and a vote that it has not used: in the log's last epoch at least.

    After a crash in between the vote is still missing, and the next start gives it yet another id.

    Raises:
        CorruptLog: if that would help nobody, or ids may not be given here (None).
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
