"""The strict replay in shares without Spark: for laws that are tried on many logs."""

from collections.abc import Iterable, Sequence

from metadata_log.format.batch import Batch
from metadata_log.format.ids import Offset
from metadata_log.format.partition_runs import PartitionRun
from metadata_log.format.records import MetadataRecord, Topic
from metadata_log.image.skips import skips_in
from snapshots.offline.shares.dealing import Dealer, Row, topics_in, topics_of
from snapshots.offline.shares.replayed import Replayed, add_up, result_of
from snapshots.offline.shares.share import Share


def replay_shares(
    batches: Sequence[Batch],
    cuts: Iterable[Offset],
    *,
    shares: int = 3,
    base: Sequence[MetadataRecord | PartitionRun] = (),
    since: Offset = 0,
) -> Replayed:
    """Replay the log in memory, as the Spark job does."""
    named = [(each.topic_id, each.name) for each in base if isinstance(each, Topic)]
    topics = topics_of([*named, *(each for batch in batches for each in topics_in(batch))], shares)
    skips = [*skips_in(batches)]
    dealer = Dealer(topics, skips, since)
    rows: list[Row] = []
    for batch in batches:
        dealer.take(batch)
        rows += dealer.full_rows()
    rows += dealer.rows()
    rows += Dealer(topics, skips, since).take_canonical(base)
    rows.sort(key=lambda row: row[:3])
    wanted, results = sorted(set(cuts)), []
    for number in range(shares):
        share = Share(number, wanted)
        for _, generation, _, offsets, sizes, payload in (row for row in rows if row[0] == number):
            share.take(generation, offsets, sizes, payload)
        share.finish()
        results.append(result_of(share, number))
    return add_up(results, wanted)
