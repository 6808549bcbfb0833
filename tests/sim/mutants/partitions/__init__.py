"""Bugs of partitions with records."""
