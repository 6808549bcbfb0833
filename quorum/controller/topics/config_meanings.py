"""The meaning of each config key of topics and brokers, in one sentence. `quorumctl configs describe` shows it.

Example: `retention.ms`, on a topic: "How long a record is kept before it may be deleted; -1: without limit."
"""

from typing import Final

TOPIC_MEANINGS: Final = {
    "cleanup.policy": "Treatment of old segments: delete, compact, or both.",
    "compression.gzip.level": "Level of gzip, 1 to 9; -1: the default of gzip.",
    "compression.lz4.level": "Level of lz4.",
    "compression.type": "Compression of stored records; producer: as the producer sent them.",
    "compression.zstd.level": "Level of zstd.",
    "delete.retention.ms": "How long a tombstone is kept after compaction.",
    "file.delete.delay.ms": "How long a deleted segment's file stays on the disk.",
    "flush.messages": "Number of records after which the log is flushed to the disk.",
    "flush.ms": "Time after which the log is flushed to the disk.",
    "follower.replication.throttled.replicas": "Followers whose replication is throttled, as PARTITION:BROKER; *: all.",
    "index.interval.bytes": "Number of bytes of the log between two entries of the index.",
    "leader.replication.throttled.replicas": "Leaders whose replication is throttled, as PARTITION:BROKER; *: all.",
    "local.retention.bytes": "Size of a partition's log on the local disk with tiered storage; -2: as retention.bytes.",
    "local.retention.ms": "How long records stay on the local disk with tiered storage; -2: as retention.ms.",
    "max.compaction.lag.ms": "How long a record may wait for compaction at most.",
    "max.message.bytes": "Maximum size of a batch of records, after compression.",
    "message.timestamp.after.max.ms": "How far in the future a record's timestamp may be.",
    "message.timestamp.before.max.ms": "How far in the past a record's timestamp may be.",
    "message.timestamp.type": "Clock of a record's timestamp: the producer's (CreateTime) or the broker's (LogAppendTime).",
    "min.cleanable.dirty.ratio": "Share of a log that is not compacted yet, from which compaction begins.",
    "min.compaction.lag.ms": "How long a record stays out of compaction.",
    "min.insync.replicas": "Minimum number of replicas in sync for a write with acks=all.",
    "preallocate": "If true, the file of a new segment has its full size at once.",
    "remote.log.copy.disable": "If true, no further segments are copied to tiered storage.",
    "remote.log.delete.on.disable": "If true, segments in tiered storage are deleted when tiered storage is switched off.",
    "remote.storage.enable": "If true, the topic uses tiered storage.",
    "retention.bytes": "Maximum size of a partition before old segments are deleted; -1: without limit.",
    "retention.ms": "How long a record is kept before it may be deleted; -1: without limit.",
    "segment.bytes": "Maximum size of a segment's file.",
    "segment.index.bytes": "Maximum size of a segment's index.",
    "segment.jitter.ms": "Maximum random time by which a segment is rolled earlier.",
    "segment.ms": "Time after which a segment is rolled although it is not full.",
    "unclean.leader.election.enable": "If true, a replica out of sync may lead when no replica in sync can; records may be lost.",
}

BROKER_MEANINGS: Final = {
    "background.threads": "Number of threads for background work.",
    "compression.type": "Compression of stored records; producer: as the producer sent them.",
    "follower.replication.throttled.rate": "Bytes a second of throttled followers.",
    "leader.replication.throttled.rate": "Bytes a second of throttled leaders.",
    "log.cleanup.policy": "Treatment of old segments, for topics that do not say it.",
    "log.retention.bytes": "Maximum size of a partition of topics that do not say it; -1: without limit.",
    "log.retention.ms": "How long records are kept in topics that do not say it; -1: without limit.",
    "log.roll.ms": "Time after which a segment is rolled, for topics that do not say it.",
    "log.segment.bytes": "Maximum size of a segment's file, for topics that do not say it.",
    "max.connections": "Maximum number of connections to a broker.",
    "message.max.bytes": "Maximum size of a batch of records, for topics that do not say it.",
    "min.insync.replicas": "Minimum number of replicas in sync for a write with acks=all, for topics that do not say it.",
    "num.io.threads": "Number of threads that work on requests.",
    "num.network.threads": "Number of threads that read requests from the network.",
    "num.recovery.threads.per.data.dir": "Number of threads for each data directory at start and stop.",
    "num.replica.fetchers": "Number of threads that fetch from each other broker.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes a second for moves of replicas between a broker's directories.",
    "unclean.leader.election.enable": "If true, replicas out of sync may lead in topics that do not say it; records may be lost.",
}
