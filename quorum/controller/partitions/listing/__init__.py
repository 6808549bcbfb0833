"""Reads of all partitions: lists by condition, counts, and the reassignments in progress."""
