"""Plans for the replicas of partitions, and the code that carries a plan out."""
