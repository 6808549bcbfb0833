"""Decisions about the clients of brokers: quotas and ACLs (pure)."""
