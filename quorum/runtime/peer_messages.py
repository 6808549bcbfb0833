"""Takes the messages of other controllers: hands Raft's messages to the core, and answers reads for repairs.

    a request  --> ReadLog, ReadSnapshot --> answered from this node's disk (`log_repair`)
                   RegisterController    --> the active controller (`registration`)
                   all other requests    --> the core, with the log's chain at the place of the request
    an answer  --> the core; the digest in the answer to a fetch is compared first (`agreement`)

The answers to this node's own reads do not come here: they are inputs of its repair (`quorum.runtime.protocol.peer_answers`).

A request about the quorum, for example a transfer, may raise an unexpected error in the core. If the core has changed nothing
yet, the node refuses the request with UNKNOWN_SERVER_ERROR, as a failed decision (`quorum.runtime.active.decisions`).

The core knows no bytes of the log. So the node looks up the chain for a request: the hash of all history below the offset in the
request. If the disk cannot read this place, the core learns of the damage first, because a leader that cannot read its own chain
must not judge a follower's log. Example:
    1. follower 2 fetches from 40; leader 1 looks up its chain at 40, and finds a damaged batch;
    2. the core takes `DamageFound`, and leader 1 resigns;
    3. the core takes the fetch, and answers NOT_LEADER_OR_FOLLOWER.
"""

from metadata_log.format.errors import CorruptLog
from quorum.core.protocol import inputs as raft
from quorum.core.protocol.effects import RefuseFailed
from quorum.core.protocol.messages import (
    ChainRequest,
    FetchRequest,
    FetchResponse,
    PeerRequest,
    QuorumChangeResponse,
    ReadLogRequest,
    ReadSnapshotRequest,
    RegisterControllerRequest,
    place_of,
)
from quorum.runtime.active.decisions import Accidents
from quorum.runtime.agreement import Agreement
from quorum.runtime.disk.log_reader import LogReader
from quorum.runtime.log_repair import LogRepair
from quorum.runtime.parts import Parts
from quorum.runtime.protocol.world import ReplyTo
from quorum.runtime.registration import Registration


class PeerMessages:
    """The desk for other controllers' messages on one node."""

    def __init__(
        self,
        parts: Parts,
        reader: LogReader,
        agreement: Agreement,
        log_repair: LogRepair,
        accidents: Accidents,
        registration: Registration,
    ) -> None:
        self._log, self._world, self._step = parts.log, parts.world, parts.step
        self._core, self._time, self._accidents = parts.core, parts.time, accidents
        self._found_damage = parts.found_damage
        self._reader = reader
        self._agreement = agreement
        self._log_repair = log_repair
        self._registration = registration

    def take_request(self, request: PeerRequest, reply_to: ReplyTo) -> None:
        if isinstance(request, ReadLogRequest | ReadSnapshotRequest):
            self._world.reply(reply_to, self._log_repair.lend(request))
            return
        if isinstance(request, RegisterControllerRequest):
            self._registration.take_request(request, reply_to)
            return
        if isinstance(request, FetchRequest):
            self._agreement.heard_fetch(request)
        place = place_of(request)
        chain: bytes | None = None
        try:
            chain = None if place is None else self._log.chain_at(place)
        except CorruptLog as e:
            self._found_damage(e)
            self._log_repair.report_disk()
            if isinstance(request, ChainRequest):
                self._world.reply(reply_to, self._reader.silent_witness())
                return
        self._step(raft.RequestReceived(request, reply_to, chain))

    def refuse_failed(self, failed: RefuseFailed) -> None:
        """Refuses a request about the quorum that ended with an unexpected error, and counts the accident."""
        refusal = self._accidents.note(failed.request, failed.error, self._time.now_ms, spoils=False).refusal()
        self._world.reply(failed.reply_to, QuorumChangeResponse(refusal.code, self._core.epoch, None, refusal.message))

    def take_response(self, event: raft.ResponseReceived) -> None:
        if isinstance(event.response, FetchResponse):
            self._agreement.heard_answer(event.source, event.response)
        self._step(event)
