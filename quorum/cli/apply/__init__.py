"""`quorumctl topics apply`: the file, its difference from the cluster, and the changes."""
