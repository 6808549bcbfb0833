"""Look-ups for the system that embeds the agent: which quota holds for a client, and what ACLs allow (pure)."""
