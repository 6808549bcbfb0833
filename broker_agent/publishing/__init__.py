"""The news of a broker for its data plane: swaps of the cache, and the assignments of this broker's replicas."""
