"""Partitions: placement, elections, ISR changes, and walks in slices."""
