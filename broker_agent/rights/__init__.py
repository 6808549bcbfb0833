"""Look-ups for the system that embeds the agent: which quota holds for a client (pure)."""
