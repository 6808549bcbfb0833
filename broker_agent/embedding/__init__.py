"""A broker inside of another process: the agent as a library."""
