"""A producer: its decisions, and the whole client."""
