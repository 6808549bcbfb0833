"""Real brokers that store and serve records."""
