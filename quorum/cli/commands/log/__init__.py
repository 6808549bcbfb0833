"""`quorumctl log`"""
