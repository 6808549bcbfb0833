"""The groups of `quorumctl` commands: a group is a file, and a room if one file is not enough."""
