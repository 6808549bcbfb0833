"""Laws of replicas: the brokers and log directories they are placed on, and how they move."""
