"""Conditions, counts and lists of partitions."""
