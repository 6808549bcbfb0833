"""`quorumctl partitions reassign` and `rebalance`: plans, and the code that carries a plan out."""
