"""Sessions of brokers and of other clients: the deadlines that both have, and the entities that end with a session."""
