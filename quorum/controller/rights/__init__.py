"""Decisions about the clients of brokers: their quotas, and what describes them (pure)."""
