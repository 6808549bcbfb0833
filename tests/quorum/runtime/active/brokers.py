"""Brokers that register with a lone node."""

from metadata_log.format.ids import NodeId
from metadata_log.format.records import METADATA_VERSION_MAX, Endpoint, FeatureRange
from quorum.controller.protocol.commands import RegisterBrokerCommand, RegisterBrokerReply
from quorum.runtime.protocol.world import Submission
from tests.quorum.runtime.lone_node import LoneNode


def uuid(broker_id: NodeId) -> bytes:
    """The incarnation of the broker."""
    return (1 + broker_id).to_bytes(16, "big")


def register(lone: LoneNode, broker_id: NodeId) -> int:
    """Registers the broker. Returns its epoch."""
    endpoints = (Endpoint("CLIENT", "127.0.0.1", 9_000 + broker_id),)
    features = (FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),)
    command = RegisterBrokerCommand(broker_id, uuid(broker_id), endpoints, features, None, (uuid(1_000 + broker_id),))
    reply_to = lone.new_reply_to()
    lone.turn(Submission(command, reply_to, lone.now_ms + 1_000))
    lone.run_until_idle()
    reply = lone.answers[reply_to]
    assert isinstance(reply, RegisterBrokerReply)
    return reply.broker_epoch
