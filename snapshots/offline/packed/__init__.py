"""The records of each entity in few rows, undecoded, and their fold: the second half of a compaction."""
