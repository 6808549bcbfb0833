"""A client's view of topics, partitions and leaders. Pure."""
