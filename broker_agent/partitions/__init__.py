"""The partitions of this broker: logs, leaders, followers and fetchers together, as inputs and effects."""
