"""Archived segments in larger, compressed files: the format, the merge, and a view of an archive without merged files."""
