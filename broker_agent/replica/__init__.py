"""The replicas of partitions on a broker: a log for each replica, and the pure decisions of leaders and followers."""
