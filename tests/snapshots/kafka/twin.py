"""A second fold of Kafka's metadata log, of few lines, on the fields as Kafka names them. Knows nothing of our records."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from metadata_log.disk.read_only import LocalDirectory
from snapshots.offline.kafka.log_files import find_kafka_log
from snapshots.offline.kafka.messages import Fields
from snapshots.offline.kafka.records import Placed, Record
from snapshots.offline.kafka.scan import read_log, read_snapshot


class Twin:
    """The state of Kafka's cluster as plain dictionaries."""

    def __init__(self, placed: Iterable[Placed]) -> None:
        self.topics: dict[bytes, str] = {}
        self.partitions: dict[tuple[str, int], Fields] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.acls: dict[bytes, Fields] = {}
        self.scram: dict[tuple[str, int], Fields] = {}
        self.tokens: dict[str, Fields] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, Fields] = {}
        self.next_producer_id = -1
        for each in placed:
            if isinstance(each.record, Record):
                self._take(each.record.name.removesuffix("Record"), each.record.fields)

    def _take(self, kind: str, f: Fields) -> None:
        match kind:
            case "Topic":
                self.topics[f["topicId"]] = f["name"]
            case "RemoveTopic":
                name = self.topics.pop(f["topicId"])
                self.partitions = {key: value for key, value in self.partitions.items() if key[0] != name}
                self.configs.pop((2, name), None)
            case "Partition":
                elr = {name: f[name] or () for name in ("eligibleLeaderReplicas", "lastKnownElr")}
                self.partitions[self.topics[f["topicId"]], f["partitionId"]] = {**f, **elr}
            case "PartitionChange":
                self._change(self.partitions[self.topics[f["topicId"]], f["partitionId"]], f)
            case "ClearElr":
                for (name, _), old in self.partitions.items():
                    if f["topicName"] in ("", name) and (old["eligibleLeaderReplicas"] or old["lastKnownElr"]):
                        old.update(eligibleLeaderReplicas=(), lastKnownElr=(), partitionEpoch=old["partitionEpoch"] + 1)
            case "Config":
                values = self.configs.setdefault((f["resourceType"], f["resourceName"]), {})
                _set(values, f["name"], f["value"])
            case "ClientQuota":
                key = tuple(sorted((part["entityType"], part["entityName"]) for part in f["entity"]))
                _set(self.quotas.setdefault(key, {}), f["key"], None if f["remove"] else f["value"])
            case "FeatureLevel":
                _set(self.features, f["name"], f["featureLevel"] or None)
            case "AccessControlEntry" | "RemoveAccessControlEntry":
                _set(self.acls, f["id"], f if kind == "AccessControlEntry" else None)
            case "UserScramCredential" | "RemoveUserScramCredential":
                _set(self.scram, (f["name"], f["mechanism"]), f if kind == "UserScramCredential" else None)
            case "DelegationToken" | "RemoveDelegationToken":
                _set(self.tokens, f["tokenId"], f if kind == "DelegationToken" else None)
            case "RegisterBroker" | "UnregisterBroker":
                _set(self.brokers, f["brokerId"], dict(f) if kind == "RegisterBroker" else None)
            case "BrokerRegistrationChange":
                if f["fenced"]:
                    self.brokers[f["brokerId"]]["fenced"] = f["fenced"] == 1
            case "ProducerIds":
                self.next_producer_id = f["nextProducerId"]

    @staticmethod
    def _change(old: Fields, f: Fields) -> None:
        old["partitionEpoch"] += 1
        if f["leader"] != -2:
            old.update(leader=f["leader"], leaderEpoch=old["leaderEpoch"] + 1)
        lists = ("isr", "replicas", "removingReplicas", "addingReplicas", "eligibleLeaderReplicas", "lastKnownElr")
        old.update({name: f[name] for name in lists if f[name] is not None})
        if f["directories"]:
            old["directories"] = f["directories"]
        if f["leaderRecoveryState"] != -1:
            old["leaderRecoveryState"] = f["leaderRecoveryState"]


def _set(values: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def twin_of(directory: Path) -> Twin:
    """Fold the whole log of one node, on top of the oldest snapshot if the log begins above 0."""
    log = find_kafka_log(LocalDirectory(directory))
    if log.start_offset == 0:
        return Twin(read_log(log))
    base = log.snapshots[0]
    return Twin(chain(read_snapshot(log.directory, base.name), read_log(log, base.end.offset)))
