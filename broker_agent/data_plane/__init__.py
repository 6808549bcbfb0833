"""The data plane inside of `brokerd`: the tasks, threads and calls around the replicas of one broker."""
