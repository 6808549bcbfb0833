"""Log directories: assignments, losses, and both in any order."""
