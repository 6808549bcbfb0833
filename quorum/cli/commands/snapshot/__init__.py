"""`quorumctl snapshot`"""
