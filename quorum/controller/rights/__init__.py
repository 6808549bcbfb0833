"""Decisions about the clients of brokers: quotas, ACLs and SCRAM credentials (pure)."""
