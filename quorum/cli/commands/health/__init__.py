"""`quorumctl health`"""
