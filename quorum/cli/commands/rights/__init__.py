"""Commands about the clients of brokers."""
