"""The log of a broker, as its watches read it."""
