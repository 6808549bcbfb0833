"""A whole cluster of daemons on one machine, for development, tests and demonstrations."""
