"""A producer's decisions: partitions, batches, sequences, retries. Pure."""
