"""`quorumctl snapshot install`"""
