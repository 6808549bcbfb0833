"""A broker's store that has fetched from a controller."""

from collections.abc import Iterable

from broker_agent.store import BrokerStore
from metadata_log.format.batch import Batch


def follow(store: BrokerStore, batches: Iterable[Batch], previous_chain: bytes) -> None:
    """Applies the batches, writes the snapshots that are due, and closes the store."""
    store.recover()
    for batch in batches:
        store.apply(batch.data, previous_chain)
        previous_chain = batch.chain
        job = store.take_snapshot_job()
        if job is not None:
            job.run()
            store.snapshot_written(job)
    store.close()
