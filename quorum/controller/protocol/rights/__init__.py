"""Commands about the clients of brokers, and their replies."""
