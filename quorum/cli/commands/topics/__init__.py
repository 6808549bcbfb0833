"""`quorumctl topics`"""
