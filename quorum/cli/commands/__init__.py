"""One file per group of `quorumctl` commands, and the views they print."""
