"""`quorumctl quorum`"""
