"""Every method of every service: does a call of it read, or change something?

An answer that is lost means two different things. A read that got no answer changed nothing, so the caller asks again, here or
elsewhere. A change that got no answer may have taken effect:

    1. A client asks controller 1 to delete the topic `orders`; controller 1 hands the request on to the leader, controller 2.
    2. Controller 2 commits the change, and crashes before it answers.
    3. Controller 1 finds DeleteTopics below, and tells its client that the request may have taken effect.
    4. If the client asks for ListTopics instead, controller 1 tells the client to ask again.

Forwarders, clients and the generated page docs/api.md use this table. A test compares it with the .proto files, so
that no method is missing and none is left over.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final


class Kind(Enum):
    """The effect of a call on the cluster."""

    READ = "read"
    """Nothing. The caller may repeat the call."""
    CHANGE = "change"
    """A repeated call is a second change, or is refused because the first one was made."""
    CHANGE_ONCE = "change, once per request id"
    """Calls with the same request id change the cluster once, and get the same answer."""
    GOAL = "change towards a goal"
    """A call with a request id names a goal, such as "controller 4 votes". A repeated call finds the goal reached since the
    first call, and then changes nothing; or it works for the goal again, which does no harm."""


ADMIN: Final[Mapping[str, Kind]] = {
    "CreateTopics": Kind.CHANGE_ONCE,
    "CreatePartitions": Kind.CHANGE_ONCE,
    "DeleteTopics": Kind.CHANGE_ONCE,
    "ListTopics": Kind.READ,
    "DescribeTopics": Kind.READ,
    "IncrementalAlterConfigs": Kind.CHANGE_ONCE,
    "DescribeConfigs": Kind.READ,
    "AlterConfigKeys": Kind.CHANGE_ONCE,
    "DescribeConfigKeys": Kind.READ,
    "AlterLabels": Kind.CHANGE_ONCE,
    "ListLabels": Kind.READ,
    "ElectLeaders": Kind.CHANGE_ONCE,
    "AlterPartitionReassignments": Kind.CHANGE_ONCE,
    "ListPartitionReassignments": Kind.READ,
    "DescribeFeatures": Kind.READ,
    "UpdateFeatures": Kind.CHANGE_ONCE,
    "DescribeClientQuotas": Kind.READ,
    "AlterClientQuotas": Kind.CHANGE_ONCE,
    "DescribeAcls": Kind.READ,
    "CreateAcls": Kind.CHANGE_ONCE,
    "DeleteAcls": Kind.CHANGE_ONCE,
    "DescribeUserScramCredentials": Kind.READ,
    "AlterUserScramCredentials": Kind.CHANGE_ONCE,
    "ListBrokers": Kind.READ,
    "FenceBroker": Kind.CHANGE_ONCE,
    "UnfenceBroker": Kind.CHANGE_ONCE,
    "DrainBroker": Kind.CHANGE_ONCE,
    "UndrainBroker": Kind.CHANGE_ONCE,
    "UnregisterBroker": Kind.CHANGE_ONCE,
    "DescribePartitionHealth": Kind.READ,
    "ListPartitions": Kind.READ,
    "DescribeCluster": Kind.READ,
    "DescribeQuorum": Kind.READ,
    "AddVoter": Kind.GOAL,
    "RemoveVoter": Kind.GOAL,
    "TransferLeadership": Kind.GOAL,
    "CanRestart": Kind.READ,
    "CreateSnapshot": Kind.GOAL,
    "SkipBatch": Kind.GOAL,
    "ListSnapshots": Kind.READ,
    "Submit": Kind.CHANGE_ONCE,
    "ReadTree": Kind.READ,
}
"""The methods of AdminService."""

API: Final[Mapping[str, Mapping[str, Kind]]] = {
    "AdminService": ADMIN,
    "ClusterMetadataService": {
        "Metadata": Kind.READ,
        "BrokerStatus": Kind.READ,
        "ClusterStatus": Kind.READ,
        "Configs": Kind.READ,
    },
    "EntityService": {
        "Transact": Kind.CHANGE_ONCE,
        "GetEntities": Kind.READ,
        "ListEntities": Kind.READ,
        "AlterKinds": Kind.CHANGE_ONCE,
        "DescribeKinds": Kind.READ,
        "OpenSession": Kind.CHANGE_ONCE,
        "CloseSession": Kind.CHANGE_ONCE,
        "ListSessions": Kind.READ,
        "KeepAlive": Kind.CHANGE,
    },
    "WatchService": {
        "Watch": Kind.READ,
    },
    "PartitionService": {
        "Append": Kind.CHANGE,
        "FetchRecords": Kind.READ,  # of a follower also an acknowledgement: a repeated one does no harm
        "ListOffsets": Kind.READ,
        "OffsetForLeaderEpoch": Kind.READ,
        "AllocateProducerId": Kind.CHANGE,
    },
    "DataPlaneService": {
        "WatchAssignments": Kind.READ,
        "Lease": Kind.READ,
    },
    "BrokerService": {
        "RegisterBroker": Kind.CHANGE,
        "ReportDeath": Kind.GOAL,
        "MetadataFetch": Kind.CHANGE,  # a fetch renews the broker's session
        "MetadataFetchOnce": Kind.CHANGE,
        "FetchMetadataSnapshot": Kind.READ,
        "AlterPartition": Kind.CHANGE,
        "AssignReplicasToDirs": Kind.CHANGE,
        "AllocateProducerIds": Kind.CHANGE,
    },
    "VoterService": {
        "Vote": Kind.CHANGE,
        "BeginQuorumEpoch": Kind.CHANGE,
        "EndQuorumEpoch": Kind.CHANGE,
        "Fetch": Kind.CHANGE,  # a fetch acknowledges records, and may advance the high watermark
        "FetchSnapshot": Kind.CHANGE,  # likewise a sign of life to the leader
        "ReadLog": Kind.READ,
        "ReadSnapshot": Kind.READ,
        "DescribeChain": Kind.READ,
        "AddVoter": Kind.CHANGE,
        "RemoveVoter": Kind.CHANGE,
        "UpdateVoter": Kind.CHANGE,
        "RegisterController": Kind.CHANGE,
    },
}
"""The methods by service."""


_FORWARDED: Final[Mapping[str, Kind]] = {**API["EntityService"], **ADMIN}


def changes_nothing(method: str, request: Any) -> bool:
    """Tells whether a call of this method of AdminService or EntityService is a read, or a change that is only tried out
    (`validate_only`)."""
    return _FORWARDED[method] is Kind.READ or bool(getattr(request, "validate_only", False))
