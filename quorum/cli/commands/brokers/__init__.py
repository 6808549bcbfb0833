"""`quorumctl brokers`"""
