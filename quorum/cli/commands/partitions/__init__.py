"""`quorumctl partitions`"""
