"""All decisions about entities, kinds and sessions of clients, for the controller.

Example. A client opens a session, and puts ("lock", "a") with the session as the owner.
    1  `decide(OpenSession)` returns the record of the session, and sets its deadline.
    2  `transact` finds the session in the image, and returns the record of the entity.
    3  The client dies. The controller finds the session due, and `decide(EndExpiredSessions)` returns the removal of the
       entity and the end of the session.
"""

import random
from typing import assert_never

from metadata_log.image.metadata_image import MetadataImage
from quorum.controller.entities.kinds import alter_kinds
from quorum.controller.entities.sessions import ClientSessions
from quorum.controller.entities.transact import Surroundings, transact
from quorum.controller.partitions.broker_view import BrokerView
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import Decision
from quorum.controller.protocol.entity_commands import (
    AlterKinds,
    CloseSession,
    EndExpiredSessions,
    OpenSession,
    Transact,
)
from quorum.controller.topics.topic_commands import Topics


class ClientEntities:
    """Decides the commands of embedders, and owns the sessions of clients."""

    def __init__(self, config: ControllerConfig, rng: random.Random, topics: Topics) -> None:
        self.sessions = ClientSessions()
        self._config = config
        self._rng = rng
        self._topics = topics

    def transact(self, image: MetadataImage, command: Transact, view: BrokerView, now_ms: int) -> Decision:
        """Raises ControllerError: see `transact`."""
        done = transact(image, command, Surroundings(self._topics, view, self._config, self._rng))
        self.sessions.decided(image, done.records, now_ms)
        return done

    def decide(
        self, image: MetadataImage, command: AlterKinds | OpenSession | CloseSession | EndExpiredSessions, now_ms: int
    ) -> Decision:
        """Raises ControllerError: UNSUPPORTED_VERSION, INVALID_REQUEST, POLICY_VIOLATION; nothing was done."""
        match command:
            case AlterKinds():
                done = alter_kinds(image, command)
            case OpenSession():
                done = self.sessions.open(image, command, now_ms)
            case CloseSession():
                done = self.sessions.close(image, command)
            case EndExpiredSessions():
                done = self.sessions.end_expired(image, now_ms)
            case _:
                assert_never(command)
        self.sessions.decided(image, done.records, now_ms)
        return done
