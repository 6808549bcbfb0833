"""`quorumctl partitions reassign` and `rebalance`: plans, and what carries them out."""
