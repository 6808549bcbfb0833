"""The log on disk: segments, notes, opening, recovery and repair."""
