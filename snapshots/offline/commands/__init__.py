"""The commands of `quorum-offline`."""
